#include "model/rope_spec.h"

#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

constexpr double kDefaultBase = 10000;
// Factors below it would make angles larger than numerics/rope.h takes.
constexpr double kFactorMin = 0.7;

class RopeReader {
 public:
  RopeReader(const Checkpoint& checkpoint, std::string_view architecture, int dims)
      : checkpoint_(checkpoint),
        metadata_(checkpoint.metadata),
        prefix_(fmt::format("{}.rope.", architecture)),
        dims_(dims),
        base_(rope_base(metadata_, prefix_ + "freq_base").value_or(kDefaultBase)) {}

  Rope read(RopePairing pairing) const {
    Rope rope{.pairing = pairing, .frequencies = {}, .longer = {}};
    const std::string scaling = metadata_.string(prefix_ + "scaling.type").value_or("none");
    if (scaling == "none" || scaling == "longrope") {
      rope.frequencies = rope_frequencies(dims_, base_);
    } else if (scaling == "linear") {
      rope.frequencies = rope_frequencies(dims_, base_);
      const double factor = number("scaling.factor", {}, 1, 1e6);
      for (double& frequency : rope.frequencies) frequency /= factor;
    } else if (scaling == "yarn") {
      read_yarn(rope);
    } else {
      throw Error(
          "{}: rope scaling \"{}\" is not supported in this version; choose a model with none, "
          "linear, yarn or longrope",
          metadata_.origin(), printable(scaling));
    }
    rope.magnitude *= number("scaling.attn_factor", 1.0, 0.01, 100);
    divide_by_factors(rope);
    return rope;
  }

 private:
  // A number in [least, most]; absent: `otherwise`, or an Error without one.
  double number(std::string_view name, std::optional<double> otherwise, double least,
                double most) const {
    const std::string key = fmt::format("{}{}", prefix_, name);
    const std::optional<double> found = metadata_.number(key);
    if (!found && otherwise) return *otherwise;
    const double value = found ? *found : metadata_.require_number(key);
    if (!(value >= least && value <= most)) {
      throw Error("{}: {} is {}, expected a number from {} to {}; convert the model again",
                  metadata_.origin(), key, value, least, most);
    }
    return value;
  }

  int trained_length() const {
    return static_cast<int>(
        metadata_.require_integer(prefix_ + "scaling.original_context_length", 1, 1 << 24));
  }

  void read_yarn(Rope& rope) const {
    const double factor = number("scaling.factor", {}, 1, 1e6);
    if (number("scaling.yarn_ext_factor", 1.0, -1, 1) == 0) {  // converters leave it out: 1
      throw Error(
          "{}: {}scaling.yarn_ext_factor is 0, expected 1; this version mixes frequencies "
          "fully, choose another model",
          metadata_.origin(), prefix_);
    }
    rope.frequencies =
        yarn_frequencies(dims_, base_,
                         {.factor = factor,
                          .trained_length = trained_length(),
                          .turns_kept = number("scaling.yarn_beta_fast", 32.0, 1e-3, 1e6),
                          .turns_slowed = number("scaling.yarn_beta_slow", 1.0, 1e-3, 1e6)});
    // What the file says; else the paper's rule, over the same rule for what the model's scores
    // are scaled by besides (DeepSeek's mscale_all_dim).
    const double besides = number("scaling.yarn_log_multiplier", 0.0, 0, 100);
    rope.magnitude = number("scaling.yarn_attn_factor",
                            yarn_magnitude(factor) / yarn_magnitude(factor, besides), 0.01, 100);
  }

  // Empty: the file has no such tensor.
  std::vector<float> factors(const char* name) const {
    const TensorView* tensor = checkpoint_.find(name);
    if (tensor == nullptr) return {};
    if (tensor->type != TensorType::f32 || tensor->elements() != dims_ / 2) {
      throw Error("{}: tensor {} is {} [{}], expected F32 [{}]; convert the model again",
                  metadata_.origin(), name, traits(tensor->type).name,
                  fmt::join(tensor->shape, ", "), dims_ / 2);
    }
    std::vector<float> values(static_cast<std::size_t>(dims_ / 2));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    for (const float value : values) {
      if (value >= kFactorMin && value <= 1e6) continue;
      throw Error(
          "{}: tensor {} holds {}, expected numbers from {} to 1e6; convert the model again",
          metadata_.origin(), name, value, kFactorMin);
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
                  metadata_.origin(), shorter.empty() ? "short" : "long");
    }
    if (!always.empty() && !longer.empty()) {
      throw Error(
          "{}: tensors rope_freqs.weight and rope_factors_long.weight exclude each other; "
          "convert the model again",
          metadata_.origin());
    }
    rope.frequencies = divided(std::move(rope.frequencies), always);
    if (longer.empty()) return;
    rope.longer = {trained_length(), divided(rope.frequencies, longer)};
    rope.frequencies = divided(std::move(rope.frequencies), shorter);
  }

  const Checkpoint& checkpoint_;
  const Metadata& metadata_;
  const std::string prefix_;
  const int dims_;
  const double base_;
};

}  // namespace

std::optional<double> rope_base(const Metadata& metadata, std::string_view key) {
  const std::optional<double> base = metadata.number(key);
  if (base && !(*base >= 1 && *base <= 1e12)) {
    throw Error("{}: {} is {}, expected a number from 1 to 1e12; convert the model again",
                metadata.origin(), key, *base);
  }
  return base;
}

Rope scaled_rope(const Checkpoint& checkpoint, std::string_view architecture, RopePairing pairing,
                 int dims) {
  return RopeReader(checkpoint, architecture, dims).read(pairing);
}

Rope plain_rope(RopePairing pairing, int dims, double base) {
  return {.pairing = pairing, .frequencies = rope_frequencies(dims, base), .longer = {}};
}

}  // namespace outrider
