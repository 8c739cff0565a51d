#include "runtime/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace outrider {
namespace {

using Json = nlohmann::json;
using Fits = std::vector<Calibration::Fit>;
using Points = std::vector<CostCurve::Point>;

Json json_of(const Points& points) {
  Json json = Json::array();
  for (const CostCurve::Point& point : points) json.push_back({point.rows, point.ms, point.weight});
  return json;
}

Json json_of(const Fits& fits) {
  Json json = Json::array();
  for (const Calibration::Fit& fit : fits)
    json.push_back(
        {fit.intercept, fit.slope, fit.intercept_variance, fit.covariance, fit.slope_variance});
  return json;
}

// Throws Json::exception for what has another form, and gives nothing for impossible numbers.
std::optional<Points> points_from(const Json& json) {
  Points points;
  for (const Json& entry : json) {
    const auto [rows, ms, weight] = entry.get<std::tuple<int, double, double>>();
    if (rows < 1 || rows > 1 << 16 || !(ms > 0 && ms < 1e9) || !(weight >= 1)) return {};
    if (!points.empty() && rows <= points.back().rows) return {};
    points.push_back({.rows = rows, .ms = ms, .weight = weight});
  }
  return points;
}

std::optional<Fits> fits_from(const Json& json) {
  Fits fits;
  for (const Json& entry : json) {
    const auto numbers = entry.get<std::array<double, 5>>();
    for (const double number : numbers)
      if (!std::isfinite(number) || std::abs(number) > 100) return {};
    const auto [intercept, slope, intercept_variance, covariance, slope_variance] = numbers;
    if (intercept_variance < 0 || slope_variance < 0) return {};
    fits.push_back({intercept, slope, intercept_variance, covariance, slope_variance});
  }
  return fits;
}

std::optional<Calibration::Recent> recent_from(const Json& json) {
  const auto [confidence, best_guess, weight] = json.get<std::array<double, 3>>();
  if (!(std::abs(confidence) <= 100 && std::abs(best_guess) <= 100 && weight >= 0 && weight < 1e6))
    return {};
  return Calibration::Recent{confidence, best_guess, weight};
}

}  // namespace

Json json_of(const Profile& profile) {
  Json drafters = Json::array();
  for (const Learned::OfDrafter& drafter : profile.learned.drafters) {
    const auto& [confidence, best_guess, weight] = drafter.acceptance.recent;
    drafters.push_back({{"passes", json_of(drafter.passes)},
                        {"confidences", json_of(drafter.acceptance.confidences)},
                        {"levels", json_of(drafter.acceptance.best_guesses)},
                        {"shifts", {confidence, best_guess, weight}},
                        {"riders", {drafter.riders.tokens, drafter.riders.doublings}}});
  }
  return {{"tuning", profile.tuning},
          {"passes", json_of(profile.learned.passes)},
          {"logits", profile.learned.logits_ms},
          {"attention", profile.learned.attention_ms},
          {"answers", {profile.learned.answers, profile.learned.answer_tokens}},
          {"speed", profile.learned.speed},
          {"bank", profile.learned.bank},
          {"drafters", drafters}};
}

std::optional<Profile> profile_from(const Json& json) {
  try {
    Profile profile{.tuning = json.at("tuning").get<std::string>(), .learned = {}};
    const auto passes = points_from(json.at("passes"));
    if (!passes) return {};
    profile.learned.passes = *passes;
    profile.learned.logits_ms = json.at("logits").get<double>();
    profile.learned.attention_ms = json.at("attention").get<double>();
    std::tie(profile.learned.answers, profile.learned.answer_tokens) =
        json.at("answers").get<std::pair<double, double>>();
    profile.learned.speed = json.at("speed").get<double>();
    profile.learned.bank = json.at("bank").get<double>();
    for (const double number :
         {profile.learned.logits_ms, profile.learned.attention_ms, profile.learned.answers,
          profile.learned.answer_tokens, profile.learned.speed, profile.learned.bank})
      if (!(number >= 0 && number < 1e9)) return {};
    for (const Json& entry : json.at("drafters")) {
      const auto own = points_from(entry.at("passes"));
      const auto confidences = fits_from(entry.at("confidences"));
      const auto best_guesses = fits_from(entry.at("levels"));
      const auto recent = recent_from(entry.at("shifts"));
      const auto [tokens, doublings] = entry.at("riders").get<std::array<double, 2>>();
      const bool are_riders_valid =
          tokens >= 0 && tokens < 1e9 && doublings >= 0 && doublings < 1e9;
      if (!own || !confidences || !best_guesses || !recent || !are_riders_valid) return {};
      profile.learned.drafters.push_back({.passes = *own,
                                          .acceptance = {*confidences, *best_guesses, *recent},
                                          .riders = {tokens, doublings}});
    }
    return profile;
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace outrider
