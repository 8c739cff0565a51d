// Which way to read a head's file, and the type of its weights in memory, chosen by how often the
// head is then right (speculation/head_agreement.h).

#pragma once

#include <filesystem>
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

// How often it was right, in whole places.
Agreement agreement_of(const HeadChoice& choice);

// What was chosen with the very file that a head was made for, as its config.json says it
// (model/made_for.h), so that nothing need be measured with that file. options and tries_types: as
// for choose_head(). Nothing if it does not say how often it was right, or if it names a type that
// choose_head() would not take.
std::optional<HeadChoice> choice_named_by(const Head& head, const LoadOptions& options,
                                          bool tries_types);

// Writes what choose_head() found with the file that the head was made for into the object
// "outrider" of its config.json, as "agreement": {"right", "places", "type"}. All else in it stays
// (change_config() in formats/config_file.h). head: the folder, or a file of weights in it. Throws
// Error if there is no such object, or as change_config() does.
void write_agreement(const std::filesystem::path& head, const HeadChoice& choice);

// Measures all readings of a head that the target has loaded as its producer's, and, if
// `tries_types`, larger types than that of its options; leaves the best one loaded. Another one is
// taken only if it is clearly better. Throws as measure_agreement() does.
HeadChoice choose_head(Backend& target, const Tokenizer& tokenizer, const Head& head,
                       const LoadOptions& options, bool tries_types, const LoadProgress& progress);

}  // namespace outrider
