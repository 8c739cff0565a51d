// Every family computes what transformers computes: small random models, written by llama.cpp's
// converter, on sequences beyond their windows and trained lengths (scripts/golden/families.py).
// And each property of a family matters: a spec without it fails the same comparison.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "cpu/backend.h"
#include "numerics/rope.h"
#include "support/golden_families.h"

namespace outrider {
namespace {

using testing::golden_families;
using testing::golden_model;
using testing::golden_texts;
using testing::GoldenTexts;

struct Distance {
  double mean_kl;    // of the expected distribution from the model's
  double agreement;  // share of the positions whose best token is the same
};

// The divergence of two distributions over the best tokens and all others together, which is at
// most that over all tokens.
double divergence(std::span<const float> best, std::span<const float> log_probabilities,
                  std::span<const float> logits) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  const auto log_q = [&](float token) {
    return logits[static_cast<std::size_t>(token)] - highest - std::log(sum);
  };
  double kl = 0, p_first = 1, q_rest = 1 - std::exp(log_q(best[0]));
  for (std::size_t i = 1; i < best.size(); ++i) {
    const double log_p = log_probabilities[i - 1], p = std::exp(log_p);
    kl += p * (log_p - log_q(best[i]));
    p_first -= p;
    q_rest -= std::exp(log_q(best[i]));
  }
  const double log_p_rest = log_probabilities.back(), p_rest = std::exp(log_p_rest);
  p_first -= p_rest;
  return kl + p_first * (std::log(p_first) - log_q(best[0])) +
         p_rest * (log_p_rest - std::log(std::max(q_rest, 1e-12)));
}

// The model over the sequences, in chunks that end within pages, with float32 in the cache.
Distance distance(const Model& model, const GoldenTexts& expected) {
  const auto length = static_cast<int>(expected.length);
  const std::unique_ptr<Backend> backend = load_cpu(
      model, {.context = length, .batch_rows = 40, .cache_type = CacheType::f32, .n_threads = 2},
      available_isas().back());
  Distance total = {0, 0};
  for (std::size_t text = 0; text < expected.n_texts; ++text) {
    const OwnedSequence sequence(*backend);
    for (int first = 0; first < length; first += 40) {
      std::vector<Row> rows;
      for (int position = first; position < std::min(length, first + 40); ++position) {
        const float token = expected.tokens[text * expected.length + position];
        rows.push_back({.sequence = sequence.id(),
                        .token = static_cast<Token>(token),
                        .position = position,
                        .wants_logits = true});
        if (position > first) rows.back().parent = EarlierRow{position - first - 1};
      }
      const Pass pass = backend->forward(rows);
      std::vector<ChoiceRequest> requests;
      for (int row = 0; row < static_cast<int>(rows.size()); ++row)
        requests.push_back({.row = row, .filters = {.temperature = 0}, .wants_logits = true});
      const std::vector<Choice> choices = backend->choose(pass, requests);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const std::size_t at = text * expected.length + first + row;
        const auto best = std::span(expected.best).subspan(at * expected.n_best, expected.n_best);
        const auto log_probabilities =
            std::span(expected.log_probabilities).subspan(at * expected.n_best, expected.n_best);
        total.mean_kl += divergence(best, log_probabilities, choices[row].logits);
        total.agreement += choices[row].token == static_cast<Token>(best[0]);
      }
      backend->commit(sequence.id(), pass.slots);
    }
  }
  const double n = static_cast<double>(expected.length * expected.n_texts);
  return {total.mean_kl / n, total.agreement / n};
}

constexpr double kKlMax = 1e-5, kAgreementMin = 0.995;
bool is_equal(const Distance& d) {
  return d.mean_kl <= kKlMax && d.agreement >= kAgreementMin;
}

// A property of a spec, switched off. Nothing: the spec does not have it.
struct Change {
  const char* name;
  std::function<std::optional<ModelSpec>(ModelSpec)> without;
};

// The change of every attention that `has`, of the others nothing.
Change of_attention(const char* name, const std::function<bool(const Attention&)>& has,
                    const std::function<void(Attention&)>& change) {
  return {name, [=](ModelSpec spec) -> std::optional<ModelSpec> {
            bool any = false;
            for (LayerSpec& layer : spec.layers) {
              for (Operation& operation : layer.operations) {
                auto* attention = std::get_if<Attention>(&operation.body);
                if (!attention || !has(*attention)) continue;
                change(*attention);
                any = true;
              }
            }
            return any ? std::optional(spec) : std::nullopt;
          }};
}
Change of_operation(const char* name, const std::function<bool(Operation&)>& change) {
  return {name, [=](ModelSpec spec) -> std::optional<ModelSpec> {
            bool any = false;
            for (LayerSpec& layer : spec.layers)
              for (Operation& operation : layer.operations) any |= change(operation);
            return any ? std::optional(spec) : std::nullopt;
          }};
}
template <typename T>
Change of_model(const char* name, T ModelSpec::*member, T otherwise) {
  return {name, [=](ModelSpec spec) -> std::optional<ModelSpec> {
            if (spec.*member == otherwise) return std::nullopt;
            spec.*member = otherwise;
            return spec;
          }};
}

std::vector<Change> changes() {
  const auto has_rope = [](const Attention& a) { return a.rope.has_value(); };
  return {
      of_model("norm", &ModelSpec::norm, NormKind::rms),
      of_model("embedding_scale", &ModelSpec::embedding_scale, 1.0f),
      of_model("output_scale", &ModelSpec::output_scale, 1.0f),
      of_model("logit_scale", &ModelSpec::logit_scale, 1.0f),
      of_model("logit_softcap", &ModelSpec::logit_softcap, std::optional<double>()),
      of_attention(
          "scale",
          [](const Attention& a) { return std::abs(a.scale - 1 / std::sqrt(a.key_dim)) > 1e-9; },
          [](Attention& a) { a.scale = 1 / std::sqrt(a.key_dim); }),
      of_attention(
          "softcap", [](const Attention& a) { return a.softcap.has_value(); },
          [](Attention& a) { a.softcap.reset(); }),
      of_attention(
          "window",  // shorter than the sequences
          [](const Attention& a) { return a.window.value_or(96) < 96; },
          [](Attention& a) { a.window.reset(); }),
      of_attention("rope", has_rope, [](Attention& a) { a.rope.reset(); }),
      of_attention("pairing", has_rope,
                   [](Attention& a) {
                     RopePairing& pairing = a.rope->pairing;
                     pairing = pairing == RopePairing::halves ? RopePairing::adjacent
                                                              : RopePairing::halves;
                   }),
      of_attention(
          "rope on a part", [](const Attention& a) { return a.rope && a.rope->dims() < a.key_dim; },
          [](Attention& a) { a.rope->frequencies = rope_frequencies(a.key_dim, 10000); }),
      of_attention(
          "frequencies",  // scaled, or of another base
          [](const Attention& a) {
            return a.rope && !(a.rope->longer && a.rope->longer->length < 96) &&
                   a.rope->frequencies != rope_frequencies(a.rope->dims(), 10000);
          },
          [](Attention& a) { a.rope->frequencies = rope_frequencies(a.rope->dims(), 10000); }),
      of_attention(
          "magnitude", [](const Attention& a) { return a.rope && a.rope->magnitude != 1; },
          [](Attention& a) { a.rope->magnitude = 1; }),
      of_attention(
          "longer", [](const Attention& a) { return a.rope && a.rope->longer.has_value(); },
          [](Attention& a) {
            const bool is_longer = a.rope->longer->length < 96;
            a.rope->longer->length = is_longer ? 96 : 95;
          }),
      of_attention(
          "qk_norm", [](const Attention& a) { return a.qk_norm != HeadNorm::none; },
          [](Attention& a) { a.qk_norm = HeadNorm::none; }),
      of_attention(
          "query_growth", [](const Attention& a) { return a.query_growth.has_value(); },
          [](Attention& a) { a.query_growth.reset(); }),
      of_operation("pre_norm",
                   [](Operation& o) { return std::exchange(o.pre_norm, {}).has_value(); }),
      of_operation("post_norm",
                   [](Operation& o) { return std::exchange(o.post_norm, {}).has_value(); }),
      of_operation("shares_input",
                   [](Operation& o) { return std::exchange(o.shares_input, false); }),
      of_operation("activation",
                   [](Operation& o) {
                     auto* mlp = std::get_if<Mlp>(&o.body);
                     if (!mlp) return false;
                     mlp->activation = mlp->activation == Activation::silu ? Activation::gelu_tanh
                                                                           : Activation::silu;
                     return true;
                   }),
      of_operation("has_bias of the MLP",
                   [](Operation& o) {
                     auto* mlp = std::get_if<Mlp>(&o.body);
                     return mlp && std::exchange(mlp->has_bias, false);
                   }),
      of_attention(
          "has_bias", [](const Attention& a) { return a.has_bias; },
          [](Attention& a) { a.has_bias = false; }),
  };
}

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  const Model model_ = golden_model(GetParam());
  const GoldenTexts expected_ = golden_texts(GetParam());
};

TEST_P(Families, ComputeWhatTransformersComputes) {
  ASSERT_GE(expected_.length * expected_.n_texts, 1000u);
  const Distance found = distance(model_, expected_);
  RecordProperty("mean_kl", fmt::format("{:.1e}", found.mean_kl));
  RecordProperty("agreement", fmt::format("{:.4f}", found.agreement));
  EXPECT_LE(found.mean_kl, kKlMax);
  EXPECT_GE(found.agreement, kAgreementMin);
}

TEST_P(Families, FailWithoutAnyOfTheirProperties) {
  int n_changes = 0;
  for (const Change& change : changes()) {
    const std::optional<ModelSpec> spec = change.without(model_.spec);
    if (!spec) continue;
    ++n_changes;
    Model changed = model_;
    changed.spec = *spec;
    const Distance found = distance(changed, expected_);
    EXPECT_FALSE(is_equal(found)) << change.name << ": " << found.mean_kl << ", "
                                  << found.agreement;
  }
  EXPECT_GE(n_changes, 4);
}

INSTANTIATE_TEST_SUITE_P(, Families, ::testing::ValuesIn(golden_families()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace outrider
