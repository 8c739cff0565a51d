// Text as it comes from files, pipes and terminals. Flags and strings in JSON are no such text:
// they are taken byte for byte.

#pragma once

#include <string>
#include <string_view>

namespace outrider {

// The same text, whatever program wrote it: without a byte order mark of UTF-8 at its beginning,
// and with LF for CR LF. Throws Error, which begins with `name`, if a byte order mark says that it
// is UTF-16 or UTF-32. Lines may come one by one, with their ends; `begins` is true for the first.
std::string plain_text(std::string_view bytes, std::string_view name, bool begins = true);

}  // namespace outrider
