// Choosing a token among the 151,936 logits that Qwen2.5 has, on one thread. It should take very
// little time compared with a pass of the model.

#include <fmt/format.h>

#include <memory>
#include <random>
#include <vector>

#include "cpu/fast_choice.h"
#include "kernels.h"

namespace outrider {
namespace {

constexpr std::size_t kVocabulary = 151'936;

struct Case {
  const char* name;
  Filters filters;
};
constexpr Case kCases[] = {
    {"greedy", {.temperature = 0}},
    {"noise", {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 1}},
    {"default_filters", {}},
    {"every_filter", {.typical_p = 0.9f, .temperature = 1}},
    {"top_p_alone", {.top_k = 0, .top_p = 0.95f, .min_p = 0, .temperature = 1}},
    {"every_filter_without_top_k", {.top_k = 0, .typical_p = 0.95f}},
};

}  // namespace

void add_choice(const KernelBench& bench) {
  const auto logits = std::make_shared<std::vector<float>>(kVocabulary);
  std::minstd_rand rng;
  std::normal_distribution<float> normal(0, 3);
  for (float& logit : *logits) logit = normal(rng);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::reference) continue;
    for (const Case& c : kCases) {
      add_kernel(bench, fmt::format("choice/{}/{}", c.name, name(isa)), {},
                 [logits, c, isa]() -> KernelBody {
                   const auto memory = std::make_shared<ChoiceMemory>();
                   return [logits, c, isa, memory](int thread, std::size_t iteration) {
                     if (thread != 0) return;
                     ChoiceRequest request;
                     request.filters = c.filters;
                     request.noise.seed = iteration;
                     Choice choice;
                     choose(*logits, request, isa, *memory, choice);
                   };
                 });
    }
  }
}

}  // namespace outrider
