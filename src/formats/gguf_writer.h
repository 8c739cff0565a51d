// Writes GGUF files: small models for tests, and altered copies of real ones.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "formats/checkpoint.h"
#include "formats/tensor_type.h"

namespace outrider {

// GGUF's number for values of a C++ type.
template <typename T>
constexpr std::uint32_t gguf_value_type() {
  if constexpr (std::is_same_v<T, bool>)
    return 7;
  else if constexpr (std::is_convertible_v<T, std::string_view>)
    return 8;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? 6 : 12;
  else {
    static_assert(std::is_integral_v<T>);
    constexpr std::uint32_t kSigned = sizeof(T) == 1   ? 1
                                      : sizeof(T) == 2 ? 3
                                      : sizeof(T) == 4 ? 5
                                                       : 11;
    return std::is_signed_v<T> ? kSigned : kSigned - 1;
  }
}

class GgufWriter {
 public:
  // alignment: as general.alignment, which is written if it is not 32.
  explicit GgufWriter(std::uint32_t version = 3, std::uint32_t alignment = 32);

  // A number, a bool, text, or a vector of these, in the GGUF type of T. Does not check that a key
  // is written only once.
  template <typename T>
  void add(std::string_view key, const T& value) {
    write_text(entries_, key);
    entries_.write(gguf_value_type<T>());
    write_value(entries_, value);
    ++n_keys_;
  }
  template <typename T>
  void add(std::string_view key, const std::vector<T>& values) {
    write_text(entries_, key);
    entries_.write(std::uint32_t{9});
    entries_.write(gguf_value_type<T>());
    entries_.write(std::uint64_t{values.size()});
    for (const T& value : values) write_value(entries_, value);  // vector<bool> converts
    ++n_keys_;
  }
  // A value read from another file; integers become 64 bits wide.
  void add(std::string_view key, const MetadataValue& value);

  // shape[0] is the number of columns. bytes.size() must match type and shape.
  void add_tensor(std::string_view name, TensorType type, std::span<const std::int64_t> shape,
                  std::span<const std::byte> bytes);

  std::vector<std::byte> bytes() const;
  void save(const std::filesystem::path& path) const;  // throws Error if it cannot be written

 private:
  static void write_text(ByteWriter& out, std::string_view text) {
    out.write(std::uint64_t{text.size()});
    out.write(text);
  }
  template <typename T>
  static void write_value(ByteWriter& out, const T& value) {
    if constexpr (std::is_convertible_v<T, std::string_view>)
      write_text(out, value);
    else if constexpr (std::is_same_v<T, bool>)
      out.write(static_cast<std::uint8_t>(value));
    else
      out.write(value);
  }

  std::uint32_t version_, alignment_;
  std::uint64_t n_keys_ = 0, n_tensors_ = 0;
  ByteWriter entries_, headers_, tensors_;
};

}  // namespace outrider
