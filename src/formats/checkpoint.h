// What a model file holds, whatever its format: metadata by key and tensors by name. Metadata keys
// are GGUF's.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "formats/tensor_type.h"

namespace outrider {

// An integer of any width (uint64 only above what int64 holds), a float of any width, a bool, a
// string, or an array of one of these.
using MetadataValue =
    std::variant<std::int64_t, std::uint64_t, double, bool, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;

class Metadata {
 public:
  // `origin` names the file in messages.
  explicit Metadata(std::string origin = "") : origin_(std::move(origin)) {}

  const std::string& origin() const { return origin_; }
  void insert(std::string key, MetadataValue value);  // throws Error if the key exists
  const MetadataValue* find(std::string_view key) const;
  const std::map<std::string, MetadataValue, std::less<>>& entries() const { return entries_; }

  // The value, or nothing if the key is absent. Throws Error, naming file and key, if the value has
  // another type or does not fit: integers of any width convert to int64, integers and floats to
  // double.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  // Pointers into this object; null if absent.
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;
  const std::vector<std::string>* strings(std::string_view key) const;

  // As above, but an absent key is an Error as well; integers must lie in [least, most].
  std::int64_t require_integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  double require_number(std::string_view key) const;
  std::string require_string(std::string_view key) const;

 private:
  template <typename T>
  const T* find_as(std::string_view key) const;  // null if absent, Error if of another type
  template <typename T>
  T require(std::string_view key, std::optional<T> value) const;

  std::string origin_;
  std::map<std::string, MetadataValue, std::less<>> entries_;
};

// A tensor inside a mapped file. shape[0] is the number of columns (contiguous elements), as GGUF
// orders it.
struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  std::int64_t columns() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
  std::int64_t elements() const { return columns() * rows(); }
};

// Owns the mapped files that its tensors point into.
struct Checkpoint {
  std::string path;  // as the user gave it; of several files the first
  Metadata metadata;
  std::vector<TensorView> tensors;                            // in file order
  std::unordered_map<std::string, std::size_t> tensor_index;  // name to place in `tensors`
  std::vector<MappedFile> files;  // its parts; empty: it was read from memory

  std::size_t file_bytes() const;
  // prefetch: these bytes of a tensor are needed soon; release: no longer. See MappedFile.
  void prefetch(std::span<const std::byte> bytes) const;
  void release(std::span<const std::byte> bytes) const;
  const TensorView* find(std::string_view name) const;
};

}  // namespace outrider
