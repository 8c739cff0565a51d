// A text of the project's that is part of the program (cmake/embed.cmake).

#pragma once

#include <span>
#include <string_view>

namespace outrider {

struct EmbeddedFile {
  std::string_view name;  // without folders
  std::string_view text;
};

}  // namespace outrider
