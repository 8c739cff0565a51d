#include "formats/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/new_file.h"

namespace outrider {
namespace {

std::string_view type_name(TensorType type) {
  switch (type) {
    case TensorType::f32: return "F32";
    case TensorType::f16: return "F16";
    case TensorType::bf16: return "BF16";
    case TensorType::i32: return "I32";
    case TensorType::i64: return "I64";
    default: CHECK(false);
  }
}

std::uint64_t bytes_of(const TensorToWrite& tensor) {
  const auto elements = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1},
                                        std::multiplies<>());
  return static_cast<std::uint64_t>(elements) * traits(tensor.type).block_bytes;
}

// Length, and the header with spaces behind it so that tensors begin at multiples of 64 bytes.
std::string header(std::span<const TensorToWrite> tensors,
                   const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json;
  json["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::uint64_t end = begin + bytes_of(tensor);
    json[tensor.name] = {
        {"dtype", type_name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = json.dump();
  constexpr std::size_t kAlignment = 64;
  text.append((kAlignment - (sizeof(std::uint64_t) + text.size()) % kAlignment) % kAlignment, ' ');
  std::string length;
  for (int byte = 0; byte < 8; ++byte)
    length.push_back(static_cast<char>(text.size() >> (8 * byte) & 0xff));
  return length + text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  NewFile file(path);
  const std::string head = header(tensors, metadata);
  file.write(std::as_bytes(std::span(head)));
  for (const TensorToWrite& tensor : tensors) {
    std::uint64_t n_given = 0;
    tensor.give([&](std::span<const std::byte> bytes) {
      n_given += bytes.size();
      file.write(bytes);
    });
    CHECK(n_given == bytes_of(tensor));
  }
  file.complete();
}

}  // namespace outrider
