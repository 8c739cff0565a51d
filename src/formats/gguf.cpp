#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/foreign_file.h"

namespace outrider {
namespace {

// Real files have some 50 keys, 300,000 vocabulary entries, as many merges, and 2,000 tensors.
// These limits keep what is built from a header, some 40 bytes for an empty string, to a bounded
// size.
constexpr std::uint64_t kKeysMax = 1 << 16;
constexpr std::uint64_t kTensorsMax = 1 << 16;
constexpr std::uint64_t kArrayElementsMax = 1 << 24;  // of all arrays together
constexpr std::uint32_t kDimensionsMax = 4;
constexpr std::uint64_t kAlignmentDefault = 32;

enum class ValueType : std::uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};

constexpr std::string_view kGgufMagic = "GGUF";

// `path`: where the bytes are, if they are a file's.
void check_magic(std::span<const std::byte> bytes, const std::string& origin,
                 const std::filesystem::path& path) {
  if (bytes.size() < kGgufMagic.size() ||
      std::memcmp(bytes.data(), kGgufMagic.data(), kGgufMagic.size()) != 0)
    throw Error("{}: {}", origin, refusal_of_file(bytes, path));
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string origin)
      : bytes_(bytes), reader_(bytes, origin), origin_(std::move(origin)) {}

  Checkpoint read() {
    Checkpoint checkpoint;
    checkpoint.path = origin_;
    checkpoint.metadata = Metadata(origin_);
    const Counts counts = read_preamble();
    for (std::uint64_t i = 0; i < counts.keys; ++i) read_entry(checkpoint.metadata);
    const std::uint64_t alignment = alignment_of(checkpoint.metadata);
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < counts.tensors; ++i) {
      offsets.push_back(read_tensor_header(checkpoint.tensors.emplace_back(), alignment));
      const std::string& name = checkpoint.tensors.back().name;
      if (!checkpoint.tensor_index.emplace(name, i).second) {
        throw Error("{}: tensor {} appears twice; convert the model again", origin_,
                    printable(name));
      }
    }
    place_tensors(checkpoint.tensors, offsets, alignment);
    return checkpoint;
  }

 private:
  struct Counts {
    std::uint64_t keys, tensors;
  };

  Counts read_preamble() {
    check_magic(bytes_, origin_, {});
    reader_.take(kGgufMagic.size(), "the magic number");
    const auto version = reader_.read<std::uint32_t>("the version");
    if (version != 2 && version != 3) {
      const bool swapped = (version & 0xffff) == 0 && version != 0;
      const std::uint32_t number = swapped ? __builtin_bswap32(version) : version;
      throw Error("{}: is GGUF version {}{}, expected 2 or 3{}; {}", origin_, number,
                  swapped ? " in big-endian bytes" : "", swapped ? " in little-endian" : "",
                  number > 3 && !swapped ? "a later version of this program may read it"
                                         : "convert the model again");
    }
    Counts counts;
    counts.tensors = read_count("tensors", kTensorsMax);
    counts.keys = read_count("keys", kKeysMax);
    return counts;
  }

  std::uint64_t read_count(std::string_view of_what, std::uint64_t most) {
    const auto count = reader_.read<std::uint64_t>(fmt::format("the number of {}", of_what));
    if (count > most) {
      throw Error("{}: claims to hold {} {}, expected at most {}; it is damaged, fetch it again",
                  origin_, static_cast<std::int64_t>(count), of_what, most);
    }
    return count;
  }

  std::string read_string(std::string_view what) {
    const auto length = reader_.read<std::uint64_t>(what);
    const auto bytes = reader_.take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void read_entry(Metadata& metadata) {
    std::string key = read_string("a key");
    if (key.empty())
      throw Error("{}: a key at byte {} is empty; convert the model again", origin_,
                  reader_.offset());
    const std::string what = fmt::format("key {}", printable(key));
    const auto type = reader_.read<std::uint32_t>(what);
    MetadataValue value = type == static_cast<std::uint32_t>(ValueType::array)
                              ? read_array(what)
                              : read_value(type, what);
    metadata.insert(std::move(key), std::move(value));
  }

  MetadataValue read_value(std::uint32_t type, const std::string& what) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::uint8: return std::int64_t{reader_.read<std::uint8_t>(what)};
      case ValueType::int8: return std::int64_t{reader_.read<std::int8_t>(what)};
      case ValueType::uint16: return std::int64_t{reader_.read<std::uint16_t>(what)};
      case ValueType::int16: return std::int64_t{reader_.read<std::int16_t>(what)};
      case ValueType::uint32: return std::int64_t{reader_.read<std::uint32_t>(what)};
      case ValueType::int32: return std::int64_t{reader_.read<std::int32_t>(what)};
      case ValueType::int64: return reader_.read<std::int64_t>(what);
      case ValueType::uint64: {
        const auto value = reader_.read<std::uint64_t>(what);
        if (std::in_range<std::int64_t>(value)) return static_cast<std::int64_t>(value);
        return value;
      }
      case ValueType::float32: return double{reader_.read<float>(what)};
      case ValueType::float64: return reader_.read<double>(what);
      case ValueType::boolean: return read_boolean(what);
      case ValueType::string: return read_string(what);
      case ValueType::array: break;  // an array's elements are no arrays
    }
    throw Error(
        "{}: {} has value type {}, expected 0 to 12{}; convert the model again", origin_, what,
        type,
        type == static_cast<std::uint32_t>(ValueType::array) ? " and no arrays in arrays" : "");
  }

  bool read_boolean(const std::string& what) {
    const auto value = reader_.read<std::uint8_t>(what);
    if (value > 1)
      throw Error("{}: {} holds {} as a boolean, expected 0 or 1; convert the model again", origin_,
                  what, value);
    return value == 1;
  }

  MetadataValue read_array(const std::string& what) {
    const auto type = reader_.read<std::uint32_t>(what);
    const auto count = reader_.read<std::uint64_t>(what);
    if (count > kArrayElementsMax - array_elements_) {
      throw Error(
          "{}: {} claims {} elements, expected at most {} in all arrays together; the file is "
          "damaged, fetch it again",
          origin_, what, static_cast<std::int64_t>(count), kArrayElementsMax);
    }
    array_elements_ += count;
    switch (static_cast<ValueType>(type)) {
      case ValueType::float32: return read_numbers<double, float>(count, what);
      case ValueType::float64: return read_numbers<double, double>(count, what);
      case ValueType::uint8: return read_numbers<std::int64_t, std::uint8_t>(count, what);
      case ValueType::int8: return read_numbers<std::int64_t, std::int8_t>(count, what);
      case ValueType::uint16: return read_numbers<std::int64_t, std::uint16_t>(count, what);
      case ValueType::int16: return read_numbers<std::int64_t, std::int16_t>(count, what);
      case ValueType::uint32: return read_numbers<std::int64_t, std::uint32_t>(count, what);
      case ValueType::int32: return read_numbers<std::int64_t, std::int32_t>(count, what);
      case ValueType::int64: return read_numbers<std::int64_t, std::int64_t>(count, what);
      case ValueType::uint64: return read_numbers<std::int64_t, std::uint64_t>(count, what);
      case ValueType::boolean: {
        std::vector<bool> values;
        for (std::uint64_t i = 0; i < count; ++i) values.push_back(read_boolean(what));
        return values;
      }
      case ValueType::string: {
        std::vector<std::string> values;
        for (std::uint64_t i = 0; i < count; ++i) values.push_back(read_string(what));
        return values;
      }
      case ValueType::array:
        throw Error("{}: {} is an array of arrays, expected one level; convert the model again",
                    origin_, what);
    }
    throw Error("{}: {} is an array of value type {}, expected 0 to 12; convert the model again",
                origin_, what, type);
  }

  // Taking the bytes checks that the file has them, before memory for their values is allocated.
  template <typename Value, typename Stored>
  std::vector<Value> read_numbers(std::uint64_t count, const std::string& what) {
    ByteReader elements(reader_.take(count * sizeof(Stored), what), origin_);
    std::vector<Value> values(count);
    for (Value& value : values) {
      const auto stored = elements.read<Stored>(what);
      if constexpr (std::is_same_v<Stored, std::uint64_t>) {
        if (!std::in_range<std::int64_t>(stored)) {
          throw Error("{}: {} has an element {}, expected at most {}; convert the model again",
                      origin_, what, stored, std::numeric_limits<std::int64_t>::max());
        }
      }
      value = static_cast<Value>(stored);  // NOLINT(bugprone-signed-char-misuse): an int8_t counts
    }
    return values;
  }

  std::uint64_t alignment_of(const Metadata& metadata) const {
    const std::int64_t alignment =
        metadata.integer("general.alignment").value_or(kAlignmentDefault);
    // GGUF asks for a multiple of 8.
    if (alignment < 8 || !std::in_range<std::uint32_t>(alignment) ||
        !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
      throw Error(
          "{}: general.alignment is {}, expected a power of two from 8 to 2147483648; convert the "
          "model again",
          origin_, alignment);
    }
    return static_cast<std::uint64_t>(alignment);
  }

  // Reads everything but tensor.bytes, of which only the size is set; returns the offset that the
  // file states.
  std::uint64_t read_tensor_header(TensorView& tensor, std::uint64_t alignment) {
    tensor.name = read_string("a tensor's name");
    if (tensor.name.empty()) {
      throw Error("{}: the name of the tensor at byte {} is empty; convert the model again",
                  origin_, reader_.offset());
    }
    const std::string what = fmt::format("tensor {}", printable(tensor.name));
    const auto n_dimensions = reader_.read<std::uint32_t>(what);
    if (n_dimensions < 1 || n_dimensions > kDimensionsMax) {
      throw Error("{}: {} has {} dimensions, expected 1 to {}; convert the model again", origin_,
                  what, n_dimensions, kDimensionsMax);
    }
    for (std::uint32_t i = 0; i < n_dimensions; ++i) {
      const auto extent = reader_.read<std::int64_t>(what);
      if (extent < 1) {
        throw Error(
            "{}: {} has dimension {} of size {}, expected at least 1; convert the model again",
            origin_, what, i, extent);
      }
      tensor.shape.push_back(extent);
    }
    tensor.type = read_tensor_type(what);
    const auto offset = reader_.read<std::uint64_t>(what);
    if (offset % alignment != 0) {
      throw Error(
          "{}: {} begins at {} of the tensor bytes, expected a multiple of {}; convert the model "
          "again",
          origin_, what, offset, alignment);
    }
    return offset;
  }

  TensorType read_tensor_type(const std::string& what) {
    const auto number = reader_.read<std::uint32_t>(what);
    const auto type = tensor_type_from_gguf(number);
    if (!type) {
      std::string readable;
      for (const TensorTypeTraits& t : gguf_tensor_types())
        readable += fmt::format("{}{}", readable.empty() ? "" : ", ", t.name);
      throw Error("{}: {} has type {}, which is not read; choose a file in {}", origin_, what,
                  gguf_type_name(number), readable);
    }
    return *type;
  }

  // Points the tensors at their bytes, after checking that each lies inside the file and that none
  // overlap.
  void place_tensors(std::vector<TensorView>& tensors, const std::vector<std::uint64_t>& offsets,
                     std::uint64_t alignment) const {
    const std::uint64_t first = (reader_.offset() + alignment - 1) / alignment * alignment;
    const std::uint64_t available = bytes_.size() - std::min<std::uint64_t>(first, bytes_.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::uint64_t size = size_of(tensors[i]);
      if (offsets[i] > available || size > available - offsets[i]) {
        throw Error(
            "{}: tensor {} needs {} bytes at {} of the tensor bytes, of which the file has {}; it "
            "is cut off or damaged, fetch it again",
            origin_, printable(tensors[i].name), size, offsets[i], available);
      }
      tensors[i].bytes = bytes_.subspan(first + offsets[i], size);
    }
    std::vector<const TensorView*> by_place;
    for (const TensorView& tensor : tensors) by_place.push_back(&tensor);
    std::sort(by_place.begin(), by_place.end(), [](const TensorView* a, const TensorView* b) {
      return a->bytes.data() < b->bytes.data();
    });
    for (std::size_t i = 1; i < by_place.size(); ++i) {
      const TensorView &before = *by_place[i - 1], &after = *by_place[i];
      if (before.bytes.data() + before.bytes.size() > after.bytes.data()) {
        throw Error("{}: tensors {} and {} overlap; convert the model again", origin_,
                    printable(before.name), printable(after.name));
      }
    }
  }

  std::uint64_t size_of(const TensorView& tensor) const {
    const TensorTypeTraits& type = traits(tensor.type);
    const auto columns = static_cast<std::uint64_t>(tensor.columns());
    if (columns % type.block_elements != 0) {
      throw Error(
          "{}: tensor {} has rows of {} elements, but {} stores blocks of {}; convert the model "
          "again",
          origin_, printable(tensor.name), columns, type.name, type.block_elements);
    }
    // Elements must be countable in int64 as well, which TensorView::elements() relies on.
    std::optional<std::uint64_t> elements = columns;
    for (std::size_t i = 1; i < tensor.shape.size() && elements; ++i) {
      elements = checked_multiply(*elements, static_cast<std::uint64_t>(tensor.shape[i]));
    }
    const auto size = elements ? checked_multiply(*elements / type.block_elements, type.block_bytes)
                               : std::nullopt;
    if (!size || !std::in_range<std::int64_t>(*elements)) {
      throw Error(
          "{}: tensor {} has more elements than can be counted; the file is damaged, fetch it "
          "again",
          origin_, printable(tensor.name));
    }
    return *size;
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  std::string origin_;
  std::uint64_t array_elements_ = 0;  // so far
};

Checkpoint read_one_file(const std::filesystem::path& path) {
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem))
    throw Error("{}: {}", path.string(), refusal_of_folder(path));
  MappedFile file(path);
  check_magic(file.bytes(), path.string(), path);
  Checkpoint checkpoint = read_gguf(file.bytes(), path.string());
  checkpoint.files.push_back(std::move(file));
  return checkpoint;
}

// The other parts of a model that llama.cpp's gguf-split cut into files NAME-00001-of-0000N.gguf.
// The first holds all metadata.
class PartReader {
 public:
  PartReader(Checkpoint& whole, const std::filesystem::path& first, std::int64_t n_parts)
      : whole_(whole), first_(first), n_parts_(n_parts) {
    constexpr std::int64_t kPartsMax = 10'000;
    if (n_parts > kPartsMax)
      throw Error("{}: split.count is {}, expected at most {}", first.string(), n_parts, kPartsMax);
  }

  void read_others() {
    const std::string ending = ending_of(1);
    const std::string name = first_.filename().string();
    if (!name.ends_with(ending)) {
      throw Error(
          "{}: is the first of {} parts of a model and must be called NAME{}, so that the others "
          "can be found; rename it",
          first_.string(), n_parts_, ending);
    }
    const std::string stem = name.substr(0, name.size() - ending.size());
    for (std::int64_t number = 2; number <= n_parts_; ++number)
      read(first_.parent_path() / (stem + ending_of(number)), number);
    const std::optional<std::int64_t> n_tensors = whole_.metadata.integer("split.tensors.count");
    if (n_tensors && *n_tensors != static_cast<std::int64_t>(whole_.tensors.size())) {
      throw Error("{}: its {} parts hold {} tensors, expected {}; fetch them again",
                  first_.string(), n_parts_, whole_.tensors.size(), *n_tensors);
    }
  }

 private:
  std::string ending_of(std::int64_t number) const {
    return fmt::format("-{:05}-of-{:05}.gguf", number, n_parts_);
  }

  void read(const std::filesystem::path& path, std::int64_t number) {
    if (!std::filesystem::exists(path)) {
      throw Error("{}: part {} of {} of this model is missing: {}", first_.string(), number,
                  n_parts_, path.string());
    }
    Checkpoint part = read_one_file(path);
    const auto count = part.metadata.integer("split.count");
    const auto place = part.metadata.integer("split.no");
    const auto n_tensors = part.metadata.integer("split.tensors.count");
    if (count != n_parts_ || place != number - 1 ||
        n_tensors != whole_.metadata.integer("split.tensors.count")) {
      throw Error("{}: is no part {} of {} of the model that begins with {}; fetch it again",
                  path.string(), number, n_parts_, first_.filename().string());
    }
    for (TensorView& tensor : part.tensors) {
      if (!whole_.tensor_index.emplace(tensor.name, whole_.tensors.size()).second) {
        throw Error("{}: tensor {} is in an earlier part, too; fetch the parts again",
                    path.string(), printable(tensor.name));
      }
      whole_.tensors.push_back(std::move(tensor));
    }
    whole_.files.push_back(std::move(part.files.front()));
  }

  Checkpoint& whole_;
  const std::filesystem::path first_;
  const std::int64_t n_parts_;
};

}  // namespace

Checkpoint read_gguf(std::span<const std::byte> bytes, std::string origin) {
  return GgufReader(bytes, std::move(origin)).read();
}

Checkpoint read_gguf(const std::filesystem::path& path) {
  Checkpoint checkpoint = read_one_file(path);
  const std::int64_t n_parts = checkpoint.metadata.integer("split.count").value_or(1);
  if (n_parts > 1 && checkpoint.metadata.integer("split.no").value_or(0) == 0)
    PartReader(checkpoint, path, n_parts).read_others();
  return checkpoint;
}

}  // namespace outrider
