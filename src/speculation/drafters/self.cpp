#include "speculation/drafters/self.h"

#include <algorithm>

#include "base/error.h"
#include "base/numbers.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"
#include "speculation/drafters/model.h"

namespace outrider {

SelfDrafter::SelfDrafter(std::shared_ptr<Backend> target, std::vector<int> layers)
    : GrowingDrafter(target, {.target_vocabulary = target->spec().vocabulary,
                              .passes = {.layers = std::move(layers)}}) {}

void SelfDrafter::begin(DraftSequence sequence, CacheScope) {
  add(sequence, {});
}

void SelfDrafter::bind(DraftSequence sequence, SequenceId target) {
  sequences_.at(sequence).id = target;
}

bool SelfDrafter::prepare(const DraftRequest& request, Sequence& sequence,
                          std::span<const DraftRequest>, int&) {
  sequence.length = sequence.size();
  // So many rows the target's pass has room for, too: there are pages for them.
  sequence.n_rows_max = 1 + request.limits.nodes;
  return backend_->committed(sequence.id) == sequence.length - 1;
}

// Their roots alone.
bool SelfDrafter::prefill(std::span<Draft> drafts, double&) {
  const Stopwatch watch;
  Batch batch;
  for (Draft& draft : drafts) batch.ask_place(draft, 0);
  const PassWork work = work_of(batch);
  compute(batch);
  curve_.refine(work, watch.ms());
  return true;
}

void SelfDrafter::finish(std::span<const Draft> drafts) {
  for (const Draft& draft : drafts) backend_->discard(draft.sequence->id);
}

void SelfDrafter::measure_costs() {
  if (sequences_.empty()) return time_passes(OwnedSequence(*backend_).id());
  time_passes(sequences_.begin()->second.id);
}

std::vector<int> parse_layers(std::string_view text) {
  std::vector<int> layers;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const auto dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_number<int>(part.substr(dash + 1));
    constexpr int kMost = 100'000;  // more than any model has
    if (!first || !last || *first < 0 || *last < *first || *last > kMost)
      throw Error("expected numbers of layers, as in 3,5,8-12");
    for (int layer = *first; layer <= *last; ++layer) layers.push_back(layer);
    if (part.size() == text.size()) break;
    text.remove_prefix(part.size() + 1);
  }
  std::ranges::sort(layers);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

std::string layers_text(std::span<const int> layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += fmt::format("{}", layers[i]);
    if (end - i > 1) text += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> layers_without(std::span<const int> left_out, int n_layers) {
  for (const int layer : left_out)
    if (layer >= n_layers)
      throw Error("layer {} cannot be left out: the model's layers are 0 to {}", layer,
                  n_layers - 1);
  std::vector<int> layers;
  for (int layer = 0; layer < n_layers; ++layer)
    if (!std::ranges::binary_search(left_out, layer)) layers.push_back(layer);
  if (layers.empty()) throw Error("all {} layers are left out", n_layers);
  return layers;
}

std::vector<int> usual_skipped_layers(int n_layers) {
  std::vector<int> layers;
  if (n_layers < 4) return layers;
  for (int layer = n_layers / 4; layer < n_layers - n_layers / 4; layer += 2)
    layers.push_back(layer);
  return layers;
}

namespace {

// "self=q4_128": a draft model that is the target itself in four bits. ML-SpecQD, Georganas et al.
// 2025, arXiv:2503.13565.
const DrafterKind& self_copy_kind() {
  static const DrafterKind kind{
      .name = "self",
      .value = "q4_128",
      .is_automatic = false,
      .help = "the model itself in four bits",
      .load_options =
          [](LoadOptions options, const Tokenizer&, const ModelSpec&, const Tokenizer&,
             const DrafterFlagValues&) {
            options.requantize = TensorType::q4_128;
            return options;
          },
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        return std::make_unique<ModelDrafter>(
            context.model,
            ModelDrafterOptions{.target_vocabulary = context.vocabulary, .name = "self"});
      },
      .uses_target = true,
      .copies_target = true};
  return kind;
}

}  // namespace

const DrafterKind& self_kind() {
  static const DrafterKind kind{
      .name = "self",
      .value = "LAYERS|q4_128",
      .value_is_optional = true,
      .is_automatic = false,  // docs/speculation.md, "Every drafter": it does not pay on CPUs
      .help =
          "the model's own layers without some (3,5,8-12; none given: those that tune self "
          "found), or a copy of it in four bits",
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        const int n_layers = context.target->spec().n_layers();
        if (context.value.empty()) {
          const auto tuned = context.tuned_layers ? context.tuned_layers() : std::nullopt;
          return std::make_unique<SelfDrafter>(
              context.target,
              layers_without(tuned.value_or(usual_skipped_layers(n_layers)), n_layers));
        }
        try {
          return std::make_unique<SelfDrafter>(
              context.target, layers_without(parse_layers(context.value), n_layers));
        } catch (const Error& error) {
          throw Error("self={}: {}", context.value, error.what());
        }
      },
      .uses_target = true,
      .of_value = [](std::string_view value) -> const DrafterKind* {
        return value == self_copy_kind().value ? &self_copy_kind() : &self_kind();
      }};
  return kind;
}

}  // namespace outrider
