#include "base/bytes.h"

#include "base/error.h"
#include "base/utf8.h"

namespace outrider {

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const Character c = character_at(text, 0);
    // U+0080 to U+009F are control characters too.
    const bool control = c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0);
    const bool plain = c.code < kIllFormed && !control && c.code != '"' && c.code != '\\';
    const std::string piece = plain ? std::string(text.substr(0, c.n_bytes))
                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    if (out.size() + piece.size() > bytes_max) return out + "...";
    out += piece;
    text.remove_prefix(plain ? c.n_bytes : 1);
  }
  return out;
}

std::span<const std::byte> ByteReader::take(std::uint64_t n_bytes, std::string_view what) {
  if (n_bytes > remaining()) {
    throw Error(
        "{}: {} at byte {} needs {} bytes, but the file ends after {} more; it is cut off or "
        "damaged, fetch it again",
        origin_, what, offset_, n_bytes, remaining());
  }
  const auto part = bytes_.subspan(offset_, n_bytes);
  offset_ += n_bytes;
  return part;
}

void ByteWriter::write(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

}  // namespace outrider
