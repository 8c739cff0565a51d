#include "base/plain_text.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {
namespace {

using namespace std::string_view_literals;

struct OtherEncoding {
  std::string_view mark, name;
};
// UTF-32 first: its mark begins with that of UTF-16.
constexpr OtherEncoding kOthers[] = {{"\xff\xfe\0\0"sv, "UTF-32"},
                                     {"\0\0\xfe\xff"sv, "UTF-32"},
                                     {"\xff\xfe"sv, "UTF-16"},
                                     {"\xfe\xff"sv, "UTF-16"}};
constexpr std::string_view kMark = "\xef\xbb\xbf";

}  // namespace

std::string plain_text(std::string_view bytes, std::string_view name, bool begins) {
  if (begins) {
    for (const OtherEncoding& other : kOthers)
      if (bytes.starts_with(other.mark))
        throw Error(
            "{0}: is {1} by its byte order mark, expected UTF-8; iconv -f {1} -t UTF-8 converts it",
            name, other.name);
    if (bytes.starts_with(kMark)) bytes.remove_prefix(kMark.size());
  }
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find("\r\n", at), bytes.size());
    text += bytes.substr(at, end - at);
    at = end + 1;  // past the CR
    if (end == bytes.size()) break;
  }
  return text;
}

}  // namespace outrider
