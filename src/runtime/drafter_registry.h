// The kinds of drafters that there are, and the words that choose among them. A drafter is one file
// in speculation/drafters/ and one row of this table.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speculation/drafter_kind.h"

namespace outrider {

std::span<const DrafterKind* const> drafter_kinds();

// One drafter as asked for.
struct DraftChoice {
  const DrafterKind* kind;
  std::string value;  // what stood after '='; empty if nothing did
  bool late = false;  // made during the first answers (LateDrafter); left out if that fails
  friend bool operator==(const DraftChoice&, const DraftChoice&) = default;
};

// Reads off | auto | NAME[=VALUE][+NAME[=VALUE]…]: no drafters; all that need no value, with those
// that run a model if `draft_model` names one; or those named, in order. '+' separates only before
// a known name, the first '=' ends a name, so values may hold both. `draft_model`, which may be
// empty, is the value of a kind that runs a model or a head and was given none; a kind whose value
// is optional takes it only if it is such a head. Throws Error for anything else, with a hint where
// one helps.
std::vector<DraftChoice> parse_draft(std::string_view text, std::string_view draft_model);

// "lookup, model=MODEL": the kinds as parse_draft() reads them.
std::string drafter_names();

}  // namespace outrider
