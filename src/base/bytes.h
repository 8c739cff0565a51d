// Reads little-endian bytes, with every length checked, and writes them.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace outrider {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

// The product of sizes that a file states; nothing if it does not fit.
inline std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

// Text from outside, made fit for one line of a message: control characters, quotes and ill-formed
// UTF-8 are escaped, long text is cut.
std::string printable(std::string_view text, std::size_t bytes_max = 80);

// Reads forward through bytes, which must outlive it.
class ByteReader {
 public:
  // `origin` names the bytes in messages.
  ByteReader(std::span<const std::byte> bytes, std::string origin)
      : bytes_(bytes), origin_(std::move(origin)) {}

  const std::string& origin() const { return origin_; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

  // The next bytes. Throws Error, naming origin, offset and `what`, if fewer remain.
  std::span<const std::byte> take(std::uint64_t n_bytes, std::string_view what);

  template <typename T>
  requires std::is_arithmetic_v<T> T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::string origin_;
};

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void write(T value) { write(std::as_bytes(std::span(&value, 1))); }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Zeros up to the next multiple of `alignment`.
  void pad(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace outrider
