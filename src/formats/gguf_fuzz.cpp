// Any bytes are a file or an Error; a file's tensors lie inside it.

#include "base/error.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace outrider;
  const auto file_bytes = std::as_bytes(std::span(bytes, size));
  try {
    const Checkpoint file = read_gguf(file_bytes, "fuzz.gguf");
    for (const TensorView& tensor : file.tensors) {
      CHECK(tensor.bytes.data() >= file_bytes.data());
      CHECK(tensor.bytes.data() + tensor.bytes.size() <= file_bytes.data() + file_bytes.size());
      CHECK(tensor.elements() > 0 && file.find(tensor.name) != nullptr);
    }
  } catch (const Error&) {
  }
  return 0;
}
