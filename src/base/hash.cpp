#include "base/hash.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"

namespace outrider {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr &&
        EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, digest, &length) == 1);
  std::string out;
  for (unsigned i = 0; i < length; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256_of_file(const std::filesystem::path& path, const Progress& progress) {
  const MappedFile file(path);
  return sha256_of_files({&file, 1}, path.string(), progress);
}

std::string sha256_of_files(std::span<const MappedFile> files, std::string_view name,
                            const Progress& progress) {
  constexpr std::size_t kChunk = std::size_t{16} << 20;
  std::size_t total = 0, done = 0;
  for (const MappedFile& file : files) total += file.bytes().size();
  const std::string activity =
      fmt::format("checking {}", std::filesystem::path(name).filename().string());
  Sha256 sha256;
  for (const MappedFile& file : files) {
    for (std::size_t place = 0; place < file.bytes().size(); place += kChunk) {
      if (progress.interrupted && progress.interrupted()) throw Error("{}: interrupted", name);
      const auto rest = file.bytes().subspan(place);
      const auto chunk = rest.first(std::min(kChunk, rest.size()));
      sha256.update(chunk);
      file.release(chunk);
      done += chunk.size();
      if (progress.advance) progress.advance(activity, done, total);
    }
  }
  return sha256.hex();
}

}  // namespace outrider
