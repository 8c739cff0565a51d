#include "cpu/outputs.h"

#include <algorithm>
#include <numeric>

namespace outrider {

Outputs::Outputs(const LoadOptions& options, int vocabulary)
    : ids_(options.output_ids),
      places_(ids_.size()),
      n_first_(ids_.size()),
      n_max_(ids_.size() + static_cast<std::size_t>(options.output_room)),
      vocabulary_(vocabulary) {
  std::iota(places_.begin(), places_.end(), 0u);
  if (!options.output_names.empty()) {
    std::ranges::sort(places_, {},
                      [&](std::uint32_t place) { return options.output_names[place]; });
    for (std::size_t i = 0; i < places_.size(); ++i) ids_[i] = options.output_names[places_[i]];
  }
  ids_.reserve(n_max_);
  places_.reserve(n_max_);
}

std::vector<Token> Outputs::add(std::span<const Token> tokens) {
  std::vector<Token> added;
  added.reserve(tokens.size());
  for (const Token token : tokens) {
    const auto at = std::ranges::lower_bound(ids_, token);
    const bool is_known = at != ids_.end() && *at == token;
    if (ids_.size() == n_max_ || token >= vocabulary_ || is_known) continue;
    places_.insert(places_.begin() + (at - ids_.begin()), static_cast<std::uint32_t>(ids_.size()));
    ids_.insert(at, token);
    added.push_back(token);
  }
  return added;
}

bool Outputs::remove_added() {
  if (ids_.size() == n_first_) return false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (places_[i] >= n_first_) continue;
    ids_[kept] = ids_[i];
    places_[kept++] = places_[i];
  }
  ids_.resize(kept);
  places_.resize(kept);
  return true;
}

}  // namespace outrider
