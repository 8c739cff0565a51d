// Unicode's normal form C (Unicode 15, annex 15): characters that can be written as one or as
// several code points are written as one, marks stand in a fixed order.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outrider {

// The text in normal form C; nothing if it is in it already. Text without characters that can
// combine is found so without allocating. Bytes that are no well-formed character stay as they are,
// and no character combines across them. Time is linear in the text but for marks that follow each
// other, which are sorted; working memory is at most 24 bytes per byte of the longest run of
// characters that can combine. Thread-safe.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace outrider
