#include "base/bytes.h"

#include "base/error.h"

namespace outrider {
namespace {

// How many bytes the well-formed UTF-8 character at the start of `text` has (Unicode 15, table
// 3-7); 0 if there is none.
std::size_t utf8_character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return (at(i) & 0xc0) == 0x80; };
  const unsigned first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && second < 0xa0;
    const bool surrogate = first == 0xed && second > 0x9f;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && second < 0x90;
    const bool too_large = first == 0xf4 && second > 0x8f;
    return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const std::size_t character = utf8_character_bytes(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters too.
    const bool control =
        byte < 0x20 || byte == 0x7f ||
        (byte == 0xc2 && character == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    const bool plain = character > 0 && !control && byte != '"' && byte != '\\';
    const std::string piece =
        plain ? std::string(text.substr(0, character)) : fmt::format("\\x{:02x}", byte);
    if (out.size() + piece.size() > bytes_max) return out + "...";
    out += piece;
    text.remove_prefix(plain ? character : 1);
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
