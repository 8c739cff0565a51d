// Any bytes are a file or an Error; a file's tensors lie inside it and fill it.

#include "base/error.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace outrider;
  const auto file_bytes = std::as_bytes(std::span(bytes, size));
  try {
    const Checkpoint file = read_safetensors(file_bytes, "fuzz.safetensors");
    std::size_t tensor_bytes = 0;
    for (const TensorView& tensor : file.tensors) {
      CHECK(tensor.bytes.data() >= file_bytes.data() + 8);
      CHECK(tensor.bytes.data() + tensor.bytes.size() <= file_bytes.data() + file_bytes.size());
      CHECK(tensor.bytes.size() ==
            static_cast<std::size_t>(tensor.elements()) * traits(tensor.type).block_bytes);
      CHECK(file.find(tensor.name) == &tensor);
      tensor_bytes += tensor.bytes.size();
    }
    CHECK(tensor_bytes + 8 <= size);
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
