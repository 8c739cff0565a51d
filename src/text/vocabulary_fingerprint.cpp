#include "text/vocabulary_fingerprint.h"

#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace outrider {

VocabularyFingerprint vocabulary_fingerprint(const Tokenizer& tokenizer) {
  Sha256 sha;
  for (Token token = 0; token < tokenizer.size(); ++token) {
    const std::string_view text = tokenizer.text(token);
    const std::uint64_t head[] = {static_cast<std::uint64_t>(tokenizer.kind(token)), text.size()};
    sha.update(std::as_bytes(std::span(head)));
    sha.update(std::as_bytes(std::span(text)));
  }
  const std::string hex = sha.hex();
  VocabularyFingerprint fingerprint;
  for (std::size_t i = 0; i < fingerprint.size(); ++i)
    fingerprint[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return fingerprint;
}

std::string hex_of(const VocabularyFingerprint& fingerprint) {
  std::string hex;
  for (const std::byte byte : fingerprint)
    hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return hex;
}

}  // namespace outrider
