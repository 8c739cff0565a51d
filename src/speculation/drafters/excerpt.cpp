#include "speculation/drafters/excerpt.h"

#include <algorithm>
#include <limits>

namespace outrider {

int Excerpt::n_known(int size) const {
  return has_gap() ? size - first : std::numeric_limits<int>::max();
}

Excerpt Excerpt::with(int n_context, int size, int n_computed) const {
  const int wanted = std::max(0, size - n_context);
  const int n_kept = has_gap() ? kept : n_computed;
  const Excerpt other{n_kept, std::max(n_kept, wanted)};
  const bool knows = !has_gap() || first <= wanted;
  return knows && length(size) - n_computed <= size - other.first ? *this : other;
}

int Excerpt::n_to_prefill(int n_context, int size, int n_computed) const {
  const Excerpt next = with(n_context, size, n_computed);
  return next.length(size) - (next == *this ? n_computed : next.kept);
}

}  // namespace outrider
