// Any bytes in normal form C: the same as utf8proc's own way, which sorts marks in quadratic time,
// so only for short texts.

#include <utf8proc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/normal_form.h"

using namespace outrider;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  const std::string text(reinterpret_cast<const char*>(bytes), n);
  const std::string made = to_nfc(text).value_or(text);
  CHECK(!to_nfc(made));

  const std::string whole = well_formed(text);
  utf8proc_uint8_t* theirs = nullptr;
  const utf8proc_ssize_t n_theirs =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(whole.data()),
                   static_cast<utf8proc_ssize_t>(whole.size()), &theirs,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(n_theirs >= 0);
  CHECK(to_nfc(whole).value_or(whole) ==
        std::string(reinterpret_cast<const char*>(theirs), static_cast<std::size_t>(n_theirs)));
  std::free(theirs);
  return 0;
}
