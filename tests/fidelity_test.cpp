// Real models stay as near to exact arithmetic as they were: against the most probable next tokens
// by transformers in float32 on the dequantized weights (scripts/fidelity.py --guard). Bits do not
// depend on the machine, so neither do these divergences.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "support/tiny_model.h"

namespace outrider {
namespace {

using Json = nlohmann::json;

struct Case {
  const char* model;
  double mean_kl;  // measured, in nats, of the positions in the file
};

// KL(exact || ours) over the stored tokens and all others together.
double divergence(const Json& position, std::span<const float> logits) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  double kl = 0, p_rest = 1, q_rest = 1;
  for (std::size_t i = 0; i < position["tokens"].size(); ++i) {
    const double log_p = position["log_probabilities"][i];
    const std::size_t token = position["tokens"][i];
    const double log_q = logits[token] - highest - std::log(sum);
    kl += std::exp(log_p) * (log_p - log_q);
    p_rest -= std::exp(log_p);
    q_rest -= std::exp(log_q);
  }
  constexpr double kLeast = 1e-9;
  p_rest = std::max(p_rest, kLeast);
  return kl + p_rest * std::log(p_rest / std::max(q_rest, kLeast));
}

class Fidelity : public ::testing::TestWithParam<Case> {};

TEST_P(Fidelity, IsWhatItWas) {
  const std::string name = GetParam().model;
  const auto path = testing::cached_model(name + ".gguf");
  if (!path) GTEST_SKIP() << name << " is not in OUTRIDER_CACHE";
  const Model model = interpret_checkpoint(std::make_shared<const Checkpoint>(read_gguf(*path)));
  const Json texts =
      Json::parse(std::ifstream(OUTRIDER_SOURCE_DIR "/tests/golden/fidelity/" + name + ".json"));
  const auto backend =
      load_cpu(model, {.context = 512, .batch_rows = 512, .n_threads = 2}, available_isas().back());
  double kl = 0;
  int n = 0, n_same = 0;
  for (const Json& text : texts) {
    const OwnedSequence sequence(*backend);
    std::vector<Row> rows;
    for (const Token token : text["tokens"]) {
      const int at = static_cast<int>(rows.size());
      rows.push_back({.sequence = sequence.id(), .token = token, .position = at});
      if (at > 0) rows.back().parent = EarlierRow{at - 1};
    }
    for (const Json& position : text["positions"]) rows[position["position"]].wants_logits = true;
    const Pass pass = backend->forward(rows);
    for (const Json& position : text["positions"]) {
      const ChoiceRequest request{
          .row = position["position"], .filters = {.temperature = 0}, .wants_logits = true};
      const Choice choice = backend->choose(pass, std::span(&request, 1))[0];
      kl += divergence(position, choice.logits);
      n_same += choice.token == position["tokens"][0].get<Token>();
      ++n;
    }
  }
  ASSERT_GE(n, 40);
  EXPECT_NEAR(kl / n, GetParam().mean_kl, 0.02 * GetParam().mean_kl);
  EXPECT_GE(n_same, n * 0.9);
}

// What the models were measured with. A change that makes one of these larger needs a reason.
INSTANTIATE_TEST_SUITE_P(, Fidelity,
                         ::testing::Values(Case{"smollm2-135m", 0.002930},
                                           Case{"gemma3-270m", 0.004659},
                                           Case{"qwen2.5-coder-0.5b", 0.000835},
                                           Case{"qwen2.5-coder-1.5b", 0.001823}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace outrider
