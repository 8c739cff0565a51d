#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace outrider {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "outrider: internal error: %s does not hold (%s:%d)\n", condition, file,
               line);
  std::abort();
}

}  // namespace outrider
