#include "formats/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/foreign_file.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
// Files of 600B have 100,000 tensors in all shards.
constexpr std::size_t kSafetensorsMax = 1 << 18;
constexpr std::size_t kSafetensorsDimensionsMax = 8;
// An index of 100,000 tensors has 8 MB.
constexpr std::size_t kIndexBytesMax = 16 << 20;
constexpr std::size_t kShardsMax = 10'000;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr const char* kConvertAgain = "convert it again";
constexpr const char* kFetchAgain = "it is cut off or damaged, fetch it again";

struct DtypeName {
  std::string_view name;
  TensorType type;
};
constexpr DtypeName kDtypes[] = {
    {"F32", TensorType::f32},      {"F16", TensorType::f16}, {"BF16", TensorType::bf16},
    {"I64", TensorType::i64},      {"I32", TensorType::i32}, {"U8", TensorType::u8},
    {"BOOL", TensorType::boolean},
};

// The number of elements, if it and all products of a part of the extents can be counted: those
// come about where TensorView multiplies them, before a factor of 0.
std::optional<std::uint64_t> count_elements(const std::vector<std::int64_t>& shape) {
  std::optional<std::uint64_t> without_zeros = 1;
  for (const std::int64_t extent : shape) {
    if (!without_zeros) break;
    without_zeros = checked_multiply(*without_zeros, std::max<std::uint64_t>(extent, 1));
  }
  if (!without_zeros || !std::in_range<std::int64_t>(*without_zeros)) return std::nullopt;
  return std::ranges::find(shape, 0) == shape.end() ? *without_zeros : 0;
}

// Reads the header as it is parsed: no tree of it is made, which would take a hundred times its
// size, and anything else than what belongs there ends it at once.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `data`: the bytes after the header.
  HeaderReader(Checkpoint& checkpoint, std::span<const std::byte> data)
      : checkpoint_(checkpoint), origin_(checkpoint.path), data_(data) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(std::int64_t) override { unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape) {
      add_extent(value);
    } else if (place_ == Place::offsets && offsets_.size() < 2) {
      offsets_.push_back(value);
    } else if (place_ == Place::offsets) {
      throw Error("{}: {} has more than two data_offsets; {}", origin_, what(), kConvertAgain);
    } else {
      unexpected("a number");
    }
    return true;
  }
  bool number_float(double, const std::string&) override {
    unexpected("a number with a fraction or beyond 64 bits");
  }
  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      checkpoint_.metadata.insert(std::move(key_), std::move(value));
    } else if (place_ == Place::tensor && field_ == Field::dtype) {
      set_dtype(value);
    } else {
      unexpected("a string");
    }
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // not in text

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header && key_ == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) appears_twice(kMetadataKey);
      place_ = Place::metadata;
    } else if (place_ == Place::header) {
      begin_tensor();
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool key(std::string& value) override {
    if (place_ == Place::tensor) {
      begin_field(value);
    } else {
      key_ = std::move(value);
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) end_tensor();
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == Field::dtype) unexpected("an array");
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Error("{}: its header is no valid JSON at byte {}; {}", origin_, byte, kFetchAgain);
  }

  // After the last tensor: they must fill the file, each byte belonging to one.
  void check_places() const {
    struct Span {
      std::uint64_t begin, end;
      const TensorView* tensor;
    };
    std::vector<Span> spans;
    for (const TensorView& tensor : checkpoint_.tensors) {
      const auto begin = static_cast<std::uint64_t>(tensor.bytes.data() - data_.data());
      spans.push_back({begin, begin + tensor.bytes.size(), &tensor});
    }
    // Those without elements come before one that begins there.
    std::ranges::sort(spans, {}, [](const Span& s) { return std::tuple(s.begin, s.end); });
    std::uint64_t end = 0;
    const TensorView* before = nullptr;
    for (const Span& span : spans) {
      if (span.begin < end) {
        throw Error("{}: tensors {} and {} overlap; {}", origin_, printable(before->name),
                    printable(span.tensor->name), kConvertAgain);
      }
      if (span.begin > end) unused(end, span.begin);
      end = span.end;
      before = span.tensor;
    }
    if (end < data_.size()) unused(end, data_.size());
  }

 private:
  enum class Place { outside, header, metadata, tensor, shape, offsets };
  enum class Field { dtype, shape, data_offsets };
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};

  std::string what() const { return "tensor " + printable(tensor_.name); }

  [[noreturn]] void unexpected(std::string_view found) const {
    std::string where, expected;
    switch (place_) {
      case Place::outside: where = "its header", expected = "an object"; break;
      case Place::header:
        where = fmt::format("key {} of its header", printable(key_)), expected = "an object";
        break;
      case Place::metadata:
        where = fmt::format("key {} of {}", printable(key_), kMetadataKey), expected = "a string";
        break;
      case Place::tensor:
        where = fmt::format("{} of {}", kFields[static_cast<int>(field_)], what());
        expected = field_ == Field::dtype ? "a string" : "an array";
        break;
      case Place::shape:
      case Place::offsets:
        where = fmt::format("{} of {}", kFields[static_cast<int>(field_)], what());
        expected = "whole numbers from 0";
    }
    throw Error("{}: {} holds {}, expected {}; {}", origin_, where, found, expected, kConvertAgain);
  }
  [[noreturn]] void appears_twice(std::string_view key) const {
    throw Error("{}: its header has {} twice; {}", origin_, printable(key), kConvertAgain);
  }
  [[noreturn]] void unused(std::uint64_t begin, std::uint64_t end) const {
    throw Error("{}: bytes {} to {} of the {} after the header belong to no tensor; {}", origin_,
                begin, end, data_.size(), kFetchAgain);
  }

  void begin_tensor() {
    if (key_.empty())
      throw Error("{}: a tensor's name is empty, expected text; {}", origin_, kConvertAgain);
    if (checkpoint_.tensor_index.contains(key_)) appears_twice(key_);
    if (checkpoint_.tensors.size() == kSafetensorsMax)
      throw Error("{}: has more than {} tensors, expected fewer", origin_, kSafetensorsMax);
    place_ = Place::tensor;
    tensor_ = {};
    tensor_.name = std::move(key_);
    offsets_.clear();
    seen_.clear();
  }

  void begin_field(const std::string& name) {
    const auto found = std::ranges::find(kFields, name);
    if (found == std::end(kFields)) {
      throw Error("{}: {} has a field {}, expected dtype, shape and data_offsets; {}", origin_,
                  what(), printable(name), kConvertAgain);
    }
    field_ = static_cast<Field>(found - std::begin(kFields));
    if (!seen_.insert(field_).second)
      throw Error("{}: {} has {} twice; {}", origin_, what(), name, kConvertAgain);
  }

  void set_dtype(const std::string& name) {
    const auto found = std::ranges::find(kDtypes, name, &DtypeName::name);
    if (found == std::end(kDtypes)) {
      throw Error(
          "{}: {} has type {}, which is not read; expected weights in F32, F16 or BF16, or a table "
          "in I64, I32, U8 or BOOL",
          origin_, what(), printable(name));
    }
    tensor_.type = found->type;
  }

  void add_extent(std::uint64_t extent) {
    if (tensor_.shape.size() == kSafetensorsDimensionsMax) {
      throw Error("{}: {} has more than {} dimensions, expected fewer; {}", origin_, what(),
                  kSafetensorsDimensionsMax, kConvertAgain);
    }
    if (!std::in_range<std::int64_t>(extent)) too_many_elements();
    tensor_.shape.push_back(static_cast<std::int64_t>(extent));
  }

  [[noreturn]] void too_many_elements() const {
    throw Error("{}: {} has more elements than can be counted; {}", origin_, what(), kFetchAgain);
  }

  void end_tensor() {
    for (std::size_t i = 0; i < std::size(kFields); ++i) {
      if (!seen_.contains(static_cast<Field>(i)))
        throw Error("{}: {} has no {}; {}", origin_, what(), kFields[i], kConvertAgain);
    }
    if (offsets_.size() != 2) {
      throw Error("{}: {} has {} data_offsets, expected where it begins and ends; {}", origin_,
                  what(), offsets_.size(), kConvertAgain);
    }
    const auto [begin, end] = std::pair(offsets_[0], offsets_[1]);
    if (begin > end || end > data_.size()) {
      throw Error("{}: {} is at {} to {} of the bytes after the header, of which there are {}; {}",
                  origin_, what(), begin, end, data_.size(), kFetchAgain);
    }
    const TensorTypeTraits& type = traits(tensor_.type);
    const auto elements = count_elements(tensor_.shape);
    const auto size = elements ? checked_multiply(*elements, type.block_bytes) : std::nullopt;
    if (!size) too_many_elements();
    if (*size != end - begin) {
      throw Error("{}: {} is {} [{}], which takes {} bytes, but has {}; {}", origin_, what(),
                  type.name, fmt::join(tensor_.shape, ", "), *size, end - begin, kConvertAgain);
    }
    std::ranges::reverse(tensor_.shape);
    tensor_.bytes = data_.subspan(begin, *size);
    checkpoint_.tensor_index.emplace(tensor_.name, checkpoint_.tensors.size());
    checkpoint_.tensors.push_back(std::move(tensor_));
  }

  Checkpoint& checkpoint_;
  const std::string& origin_;
  const std::span<const std::byte> data_;
  Place place_ = Place::outside;
  std::string key_;  // the last in the header or the metadata
  bool has_metadata_ = false;
  // Of the tensor that is being read.
  TensorView tensor_;  // its shape in the file's order
  std::vector<std::uint64_t> offsets_;
  Field field_ = Field::dtype;
  std::set<Field> seen_;
};

// The header's text; `path`: where the bytes are, if they are a file's.
std::string_view header_of(std::span<const std::byte> bytes, const std::string& origin,
                           const fs::path& path) {
  std::uint64_t size = 0;
  const bool begins_well = bytes.size() > sizeof(size) && bytes[sizeof(size)] == std::byte{'{'};
  if (!begins_well) throw Error("{}: {}", origin, refusal_of_file(bytes, path, Wanted::head));
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > kHeaderBytesMax) {
    throw Error("{}: claims a header of {} bytes, expected at most {}; {}", origin, size,
                kHeaderBytesMax, kFetchAgain);
  }
  const std::uint64_t available = bytes.size() - sizeof(size);
  if (size > available) {
    throw Error("{}: its header has {} bytes, of which the file has {}; {}", origin, size,
                available, kFetchAgain);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(size), size);
  // The parser takes it for the end.
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    throw Error("{}: its header is no valid JSON at byte {}; {}", origin, nul + 1, kFetchAgain);
  return text;
}

Checkpoint read_bytes(std::span<const std::byte> bytes, std::string origin, const fs::path& path) {
  const std::string_view header = header_of(bytes, origin, path);
  Checkpoint checkpoint;
  checkpoint.path = std::move(origin);
  checkpoint.metadata = Metadata(checkpoint.path);
  HeaderReader reader(checkpoint, bytes.subspan(sizeof(std::uint64_t) + header.size()));
  nlohmann::json::sax_parse(header, &reader);
  reader.check_places();
  return checkpoint;
}

Checkpoint read_shard(const fs::path& path) {
  MappedFile file(path);
  Checkpoint checkpoint = read_bytes(file.bytes(), path.string(), path);
  checkpoint.files.push_back(std::move(file));
  return checkpoint;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\\0"sv) == name.npos;
}

// The names of the tensors of each file, by what an index says.
std::map<std::string, std::set<std::string>> shards_of(const fs::path& index) {
  const MappedFile file(index);
  const std::string origin = index.string();
  if (file.bytes().size() > kIndexBytesMax) {
    throw Error("{}: has {} bytes, expected an index of at most {}", origin, file.bytes().size(),
                kIndexBytesMax);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const nlohmann::ordered_json json = parse_ordered_json(text, origin);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) {
    throw Error(
        "{}: has no object weight_map, expected an index of safetensors files; give such an index, "
        "a .safetensors file or the folder with it",
        origin);
  }
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      throw Error("{}: tensor {} is in {}, expected the name of a file in the same folder", origin,
                  printable(tensor),
                  shard.is_string() ? printable(shard.get_ref<const std::string&>())
                                    : fmt::format("a {}", json_type(shard)));
    }
    shards[shard.get_ref<const std::string&>()].insert(tensor);
    if (shards.size() > kShardsMax)
      throw Error("{}: names more than {} files, expected fewer", origin, kShardsMax);
  }
  if (shards.empty()) throw Error("{}: names no tensor; fetch the checkpoint again", origin);
  return shards;
}

Checkpoint read_shards(const fs::path& index) {
  Checkpoint whole;
  whole.path = index.string();
  whole.metadata = Metadata(whole.path);
  const auto shards = shards_of(index);
  std::size_t n = 0;
  for (const auto& [name, tensors] : shards) {
    ++n;
    const fs::path path = index.parent_path() / name;
    std::error_code problem;
    if (!fs::exists(path, problem)) {
      throw Error("{}: file {} of {} of this checkpoint is missing: {}", whole.path, n,
                  shards.size(), (index.parent_path() / printable(name)).string());
    }
    Checkpoint shard = read_shard(path);
    for (const std::string& tensor : tensors) {
      if (shard.find(tensor) == nullptr) {
        throw Error("{}: has no tensor {}, which {} says is there; fetch the files again",
                    path.string(), printable(tensor), index.filename().string());
      }
    }
    for (TensorView& tensor : shard.tensors) {
      if (!tensors.contains(tensor.name)) {
        throw Error("{}: has a tensor {}, which {} does not say is there; fetch the files again",
                    path.string(), printable(tensor.name), index.filename().string());
      }
      // An index is a map, so no other file has it.
      whole.tensor_index.emplace(tensor.name, whole.tensors.size());
      whole.tensors.push_back(std::move(tensor));
    }
    if (whole.metadata.entries().empty()) {
      for (const auto& [key, value] : shard.metadata.entries()) whole.metadata.insert(key, value);
    }
    whole.files.push_back(std::move(shard.files.front()));
  }
  return whole;
}

// The file or index in a folder.
fs::path weights_in(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    std::error_code problem;
    if (fs::is_regular_file(folder / name, problem)) return folder / name;
  }
  std::vector<fs::path> found;
  std::error_code problem;
  fs::directory_iterator entry(folder, problem), end;
  for (; !problem && entry != end; entry.increment(problem))
    if (entry->path().extension() == ".safetensors") found.push_back(entry->path());
  if (problem) throw Error("{}: cannot be read: {}", folder.string(), problem.message());
  if (found.empty())
    throw Error("{}: {}", folder.string(), refusal_of_folder(folder, Wanted::head));
  if (found.size() > 1) {
    const fs::path first = std::ranges::min(found).filename();
    throw Error(
        "{}: holds {} .safetensors files, expected model.safetensors, its index or one; "
        "give the path of one, as {}",
        folder.string(), found.size(), (folder / printable(first.string())).string());
  }
  return found.front();
}

}  // namespace

Checkpoint read_safetensors(std::span<const std::byte> bytes, std::string origin) {
  return read_bytes(bytes, std::move(origin), {});
}

Checkpoint read_safetensors(const fs::path& path) {
  std::error_code problem;
  const fs::path weights = fs::is_directory(path, problem) ? weights_in(path) : path;
  Checkpoint checkpoint =
      weights.extension() == ".json" ? read_shards(weights) : read_shard(weights);
  return checkpoint;
}

}  // namespace outrider
