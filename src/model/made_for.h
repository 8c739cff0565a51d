// What a head says of the model that it was made for: the object "outrider" in the config.json of
// those that `outrider train` makes. Other producers' heads have none.

#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/model.h"

namespace outrider {

// How often a head was right about a model's own most likely tokens (speculation/head_agreement.h).
struct Agreement {
  int right = 0, places = 0;  // 0 <= right <= places

  double share() const { return places == 0 ? 0 : static_cast<double>(right) / places; }
};

struct MadeFor {
  std::string name;        // of the model as it was asked for; shown to people, and not compared
  std::string file;        // SHA-256 of its whole file, of its parts one after another
  std::string vocabulary;  // hex_of(vocabulary_fingerprint())
  int embedding = 0, n_layers = 0, vocabulary_size = 0;
  // Position of the first row that it was trained with: 2 where the features of position 0, which
  // are like no others (docs/training.md), were left out. Rows before it are not attended to.
  int first_row = 1;
  // With that file. Nothing: it was not measured yet.
  std::optional<Agreement> agreement = {};
  // The type in memory that the head's larger weights then had, as HeadChoice::type; empty: it is
  // not said.
  std::string type = {};
};

// What the config.json in the folder of `weights` says; nothing if there is no such object. Throws
// Error, naming the file and the key, for one that is not complete or of other types.
std::optional<MadeFor> read_made_for(const nlohmann::json& config, const std::string& weights);

// Throws Error, naming config.json and both models, if the target has another shape.
void check_shape(const MadeFor& made_for, const std::string& weights, const Model& target);

}  // namespace outrider
