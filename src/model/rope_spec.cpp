#include "model/rope_spec.h"

#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

// Factors below it would make angles larger than numerics/rope.h takes.
constexpr double kFactorMin = 0.7;
constexpr double kBaseMax = 1e12;

class RopeReader {
 public:
  RopeReader(const FamilyFile& file, int dims, std::string_view base_key)
      : file_(file), dims_(dims), base_(file.number(base_key, 1, kBaseMax)) {}

  Rope read(RopePairing pairing) const {
    Rope rope{.pairing = pairing, .frequencies = rope_frequencies(dims_, base_), .longer = {}};
    const std::string type = file_.text("rope.scaling.type");
    const double factor = scaling_factor();
    if (type == "linear") {
      for (double& frequency : rope.frequencies) frequency /= factor;
    } else if (type == "yarn") {
      read_yarn(rope, factor);
    } else if (type == "longrope") {
      // The factors of its tensors are all there is: publishers' own factor only says what these
      // make of the context.
      if (factor != 1) refuse("rope.scaling.factor", factor, "1 beside longrope");
    } else if (type != "none") {
      throw Error(
          "{}: rope scaling \"{}\" is not supported in this version; choose a model with none, "
          "linear, yarn or longrope",
          file_.origin(), printable(type));
    }
    rope.magnitude *= file_.number("rope.scaling.attn_factor", 0.01, 100);
    divide_by_factors(rope);
    return rope;
  }

 private:
  [[noreturn]] void refuse(std::string_view name, double value, std::string_view expected) const {
    throw Error(
        "{}: {} is {}, expected {}; this version supports nothing else, choose another model",
        file_.origin(), file_.key(name), value, expected);
  }

  // Files say 0 where nothing is scaled.
  double scaling_factor() const {
    const std::string_view name =
        file_.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    const double factor = file_.number(name, 0, 1e6);
    if (factor == 0) return 1;
    if (factor < 1) refuse(name, factor, "0 or a number from 1 to 1e6");
    return factor;
  }

  int trained_length() const {
    return file_.integer("rope.scaling.original_context_length", 1, 1 << 24);
  }

  void read_yarn(Rope& rope, double factor) const {
    // Frequencies are mixed fully; a negative number says nothing.
    const double mixed = file_.number("rope.scaling.yarn_ext_factor", -1, 1);
    if (mixed >= 0 && mixed != 1) refuse("rope.scaling.yarn_ext_factor", mixed, "1");
    rope.frequencies =
        yarn_frequencies(dims_, base_,
                         {.factor = factor,
                          .trained_length = trained_length(),
                          .turns_kept = file_.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6),
                          .turns_slowed = file_.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6)});
    // What the file says; else the paper's rule, over the same rule for what the model's scores
    // are scaled by besides (DeepSeek's mscale_all_dim).
    const double besides = file_.number("rope.scaling.yarn_log_multiplier", 0, 100);
    rope.magnitude = file_.given_number("rope.scaling.yarn_attn_factor", 0.01, 100)
                         .value_or(yarn_magnitude(factor) / yarn_magnitude(factor, besides));
  }

  // Empty: the file has no such tensor.
  std::vector<float> factors(const char* name) const {
    const TensorView* tensor = file_.checkpoint().find(name);
    if (tensor == nullptr) return {};
    if (tensor->type != TensorType::f32 || tensor->elements() != dims_ / 2) {
      throw Error("{}: tensor {} is {} [{}], expected F32 [{}]; convert the model again",
                  file_.origin(), name, traits(tensor->type).name, fmt::join(tensor->shape, ", "),
                  dims_ / 2);
    }
    std::vector<float> values(static_cast<std::size_t>(dims_ / 2));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const float value : values) {
      if (value >= kFactorMin && value <= 1e6) continue;
      throw Error(
          "{}: tensor {} holds {}, expected numbers from {} to 1e6; convert the model again",
          file_.origin(), name, value, kFactorMin);
    }
    return values;
  }

  static std::vector<double> divided(std::vector<double> frequencies,
                                     const std::vector<float>& factors) {
    for (std::size_t i = 0; i < factors.size(); ++i) frequencies[i] /= factors[i];
    return frequencies;
  }

  void divide_by_factors(Rope& rope) const {
    const std::vector<float> always = factors("rope_freqs.weight");
    const std::vector<float> shorter = factors("rope_factors_short.weight");
    const std::vector<float> longer = factors("rope_factors_long.weight");
    if (shorter.empty() != longer.empty()) {
      throw Error("{}: tensor rope_factors_{}.weight is missing; convert the model again",
                  file_.origin(), shorter.empty() ? "short" : "long");
    }
    if (!always.empty() && !longer.empty()) {
      throw Error(
          "{}: tensors rope_freqs.weight and rope_factors_long.weight exclude each other; "
          "convert the model again",
          file_.origin());
    }
    rope.frequencies = divided(std::move(rope.frequencies), always);
    if (longer.empty()) return;
    rope.longer = {trained_length(), divided(rope.frequencies, longer)};
    rope.frequencies = divided(std::move(rope.frequencies), shorter);
  }

  const FamilyFile& file_;
  const int dims_;
  const double base_;
};

}  // namespace

Rope scaled_rope(const FamilyFile& file, RopePairing pairing, int dims, std::string_view base_key) {
  return RopeReader(file, dims, base_key).read(pairing);
}

Rope plain_rope(const FamilyFile& file, RopePairing pairing, int dims, std::string_view base_key) {
  return {.pairing = pairing,
          .frequencies = rope_frequencies(dims, file.number(base_key, 1, kBaseMax)),
          .longer = {}};
}

}  // namespace outrider
