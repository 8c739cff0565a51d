// Which way to read a head's file, and the type of its weights in memory, chosen by how often the
// head is then right (speculation/head_agreement.h).

#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/backend.h"
#include "model/head.h"
#include "text/tokenizer.h"

namespace outrider {

struct HeadChoice {
  std::string reading;   // of Head::other_readings; empty: the producer's
  std::string type;      // of its larger weights: a TensorType's name; empty: as in the file
  double agreement = 0;  // share of places at which it was right
  int places = 0;
};

nlohmann::json json_of(const HeadChoice& choice);
std::optional<HeadChoice> head_choice_from(const nlohmann::json& json);

// The head as a choice says; nothing if it has no such reading.
std::optional<HeadToLoad> head_as_chosen(const Head& head, const LoadOptions& options,
                                         const HeadChoice& choice);

// Measures all readings of a head that the target has loaded as its producer's, and, if
// `tries_types`, larger types than that of its options; leaves the best one loaded. Another one is
// taken only if it is clearly better. Throws as measure_agreement() does.
HeadChoice choose_head(Backend& target, const Tokenizer& tokenizer, const Head& head,
                       const LoadOptions& options, bool tries_types, const LoadProgress& progress);

}  // namespace outrider
