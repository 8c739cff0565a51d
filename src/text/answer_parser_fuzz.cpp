// Any text as an answer in any format, in any pieces: the pieces do not matter, nothing is lost,
// and arguments are objects.
//
// Input: a byte each for the row of the tools' table, the row of the reasoning's, flags, and the
// pieces; then the text.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/answer_parser_test.h"

using namespace outrider;

namespace {

template <typename Row>
const Row* row_of(std::span<const Row> rows, unsigned pick) {
  pick %= static_cast<unsigned>(rows.size()) + 1;
  return pick == rows.size() ? nullptr : &rows[pick];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 4) return 0;
  const AnswerFormat format{row_of(reasoning_syntaxes(), bytes[1]),
                            row_of(tool_syntaxes(), bytes[0])};
  AnswerParserOptions options;
  if (bytes[2] & 1u) options.tools = kTestTools;
  options.parallel_calls = (bytes[2] & 2u) == 0;
  if ((bytes[2] & 4u) && format.reasoning != nullptr)
    options.begun = std::string(format.reasoning->opens[0]) + "\n";
  if ((bytes[2] & 8u) && format.tools != nullptr && !format.tools->answer_name.empty())
    options.begun = format.tools->opens[0];
  const std::string text = well_formed({reinterpret_cast<const char*>(bytes + 4), n - 4});

  std::vector<std::size_t> ends;
  unsigned random = bytes[3];
  for (std::size_t end = 0;;) {
    random = random * 1664525 + 1013904223;
    end += 1 + (random >> 24) % 7;
    if (end >= text.size()) break;
    ends.push_back(end);
  }
  const auto deltas = read_answer(format, options, text);
  CHECK(read_answer(format, options, text, ends) == deltas);
  CHECK(wrong_with(format, options, text, deltas) == "");
  return 0;
}
