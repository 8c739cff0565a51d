// Any bytes are a matrix or an Error; a matrix's rows lie inside the bytes.

#include "base/error.h"
#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace outrider;
  try {
    const NpyMatrix matrix(std::as_bytes(std::span(bytes, size)), "fuzz.npy");
    if (matrix.rows() > 0) matrix.row(matrix.rows() - 1);
  } catch (const Error&) {
  }
  return 0;
}
