// Any bytes as a connection's input, the first two choosing where it is cut: a request, the
// beginning of one or a refusal, and the same in pieces as whole.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "http/request_parser_test.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace outrider;
  if (n < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(bytes) + 2, n - 2);
  const ParseOutcome whole = parse_in_pieces(input);
  CHECK(whole.key() == parse_in_pieces(input, {bytes[0], bytes[1]}).key());
  CHECK(whole.status == 0 || (whole.status >= 400 && whole.status < 600));
  return 0;
}
