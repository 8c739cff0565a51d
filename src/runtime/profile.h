// What a profile's document holds: what an engine has learned, and the prefetch pattern that the
// target's backend has chosen. The store has documents of another kind, too, with the layers that
// tune self found (Runtime::keep_self_layers).

#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "speculation/learned.h"

namespace outrider {

struct Profile {
  std::string tuning = {};  // of the target: Backend::tuning()
  Learned learned = {};
};

nlohmann::json json_of(const Profile& profile);
// Nothing for a document that json_of() would not make: other fields, numbers that are no times, no
// probabilities, no variances.
std::optional<Profile> profile_from(const nlohmann::json& json);

}  // namespace outrider
