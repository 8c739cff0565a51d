#include "training/features.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "training/own_prompts.h"
#include "training/seeded_random.h"

namespace outrider {
namespace {

constexpr int kPromptsAtOnce = 16 * kShardTexts;  // that are made together
constexpr float kUsualTemperature = 0.8f;

// Of the two halves of prompts, and of the two temperatures, every combination is held out.
bool is_own(int number) {
  return (number + number / 20) % 2 == 0;
}
bool is_greedy(int number) {
  return (number / 2 + number / 40) % 2 == 0;
}

class Maker {
 public:
  Maker(Engine& engine, const OpenedModel& model, FeatureFolder& folder, const FeatureWork& work,
        const FeatureWatcher& watcher)
      : engine_(engine),
        model_(model),
        tokenizer_(*model.tokenizer),
        folder_(folder),
        work_(work),
        watcher_(watcher),
        built_(work.data ? SourceTexts() : read_sources(TextSources::of_this_machine()),
               work.seed) {
    if (model.chat_template)
      own_.emplace(engine, tokenizer_, *model.chat_template, work.seed, work.n_parallel);
    if (!work.data) {
      if (watcher.found) watcher.found(built_.material());
      return;
    }
    for (const std::string& text : *work.data)
      if (accepts(text)) given_.push_back(text);
  }

  FeatureCounts run() {
    check_room();
    for (const ShardPrompt& prompt : folder_.prompts()) note(prompt);
    n_tokens_ = count_features(folder_).answer_tokens;
    complete_shards();
    while (n_tokens_ < work_.n_tokens && add_prompts()) complete_shards();
    FeatureCounts counts = count_features(folder_);
    if (counts.n_shards == 0)
      throw Error("{}: there is no prompt to answer", folder_.path().string());
    counts.n_left_out = n_left_out_;
    return counts;
  }

 private:
  // What was made for this prompt is not made again.
  void note(const ShardPrompt& prompt) {
    if (prompt.source == PromptSource::own && own_) own_->note(prompt.text);
    if (prompt.source == PromptSource::built) built_.note(prompt.text);
  }

  void check_room() const {
    if (!fits(tokens_of("a")))
      throw Error(
          "the context of {} tokens has no room for answers of {} tokens and their prompts: give a "
          "larger -c or a smaller -n",
          engine_.target().options().context, work_.n_predict);
  }

  bool accepts(const std::string& text) {
    const bool accepted = !work_.without.shares_passage(text) && fits(tokens_of(text));
    if (!accepted) ++n_left_out_;
    return accepted;
  }

  // An answer needs room, too.
  bool fits(const std::vector<Token>& tokens) const {
    return !tokens.empty() &&
           std::ssize(tokens) + work_.n_predict <= engine_.target().options().context;
  }

  std::vector<Token> tokens_of(const std::string& prompt) const {
    std::vector<TextPiece> pieces{{.text = prompt}};
    if (model_.chat_template) {
      const Message message{.role = "user", .content = prompt};
      pieces = model_.chat_template->render({&message, 1}, /*add_generation_prompt=*/true);
    }
    return tokenizer_.encode_whole(pieces);
  }

  // As many prompts as the missing tokens are expected to need; false if there are none.
  bool add_prompts() {
    const int first = static_cast<int>(folder_.prompts().size());
    const double usual_length =
        first > 0 ? std::max(1.0, static_cast<double>(n_tokens_) / first) : work_.n_predict / 2.0;
    const double missing = static_cast<double>(work_.n_tokens - n_tokens_) / usual_length;
    const int n = static_cast<int>(std::clamp(missing + 1, 2.0, double{kPromptsAtOnce}));
    if (watcher_.began) watcher_.began("prompts");
    std::vector<ShardPrompt> prompts = work_.data ? given(first, n) : own_and_built(first, n);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      prompts[i].number = first + static_cast<int>(i);
      prompts[i].shard = folder_.n_shards() + static_cast<int>(i) / kShardTexts;
    }
    if (!prompts.empty()) folder_.add_prompts(prompts);
    return !prompts.empty();
  }

  std::vector<ShardPrompt> given(int first, int n) const {
    std::vector<ShardPrompt> prompts;
    for (int i = first; i < std::min(first + n, static_cast<int>(given_.size())); ++i)
      prompts.push_back(
          {.source = PromptSource::data, .text = given_[static_cast<std::size_t>(i)]});
    return prompts;
  }

  // Half and half; what one kind lacks the other gives.
  std::vector<ShardPrompt> own_and_built(int first, int n) {
    int n_built = 0;
    for (int number = first; number < first + n; ++number) n_built += is_own(number) ? 0 : 1;
    std::deque<ShardPrompt> built, own;
    add_built(built, n_built);
    for (std::string& text : own_texts(n - static_cast<int>(built.size()), first))
      own.push_back({.source = PromptSource::own, .text = std::move(text)});
    add_built(built, n - static_cast<int>(own.size()));
    std::vector<ShardPrompt> prompts;
    for (int number = first; !own.empty() || !built.empty(); ++number) {
      std::deque<ShardPrompt>& from =
          (is_own(number) && !own.empty()) || built.empty() ? own : built;
      prompts.push_back(std::move(from.front()));
      from.pop_front();
    }
    return prompts;
  }

  // As many as are wanted in all, if there are so many.
  void add_built(std::deque<ShardPrompt>& prompts, int n) {
    const auto accepted = [&](const std::string& text) {
      stepped(0);
      return accepts(text);
    };
    while (std::ssize(prompts) < n) {
      std::optional<BuiltPrompt> prompt = built_.next(accepted);
      if (!prompt) return;
      prompts.push_back({.source = PromptSource::built, .text = std::move(prompt->text)});
    }
  }

  std::vector<std::string> own_texts(int n, int first) {
    if (own_)
      return own_->make(
          n, first, [&](const std::string& text) { return accepts(text); },
          [&](int n_computed) { stepped(n_computed); });
    // A text from its beginning, if something marks that.
    return std::vector<std::string>(fits(tokens_of("")) ? static_cast<std::size_t>(n) : 0);
  }

  float temperature_of(const ShardPrompt& prompt) const {
    if (work_.temperature) return *work_.temperature;
    if (prompt.text.empty()) return 1;  // which begins all texts alike
    return is_greedy(prompt.number) ? 0 : kUsualTemperature;
  }

  // Answers all prompts whose shards are missing.
  void complete_shards() {
    std::vector<PromptToAnswer> missing;
    std::map<int, std::vector<BatchAnswer>> answers;  // by shard
    std::map<int, std::size_t> n_missing;             // answers of the shard
    for (const ShardPrompt& prompt : folder_.prompts()) {
      if (folder_.has_shard(prompt.shard)) continue;
      SamplingParams sampling{.filters = {.temperature = temperature_of(prompt)}, .bias = {}};
      sampling.seed = seed_of(work_.seed, kAnswerSeeds, static_cast<std::uint64_t>(prompt.number));
      missing.push_back({.number = prompt.number,
                         .tokens = tokens_of(prompt.text),
                         .sampling = std::move(sampling),
                         .n_predict = work_.n_predict});
      ++n_missing[prompt.shard];
    }
    if (missing.empty()) return;
    if (watcher_.began) watcher_.began("answers");
    std::vector<int> taps = feature_taps(engine_.target().spec());
    taps.push_back(engine_.target().spec().n_layers());  // the final state
    const auto take = [&](BatchAnswer answer) {
      const int shard = folder_.prompts()[static_cast<std::size_t>(answer.number)].shard;
      std::vector<BatchAnswer>& of_shard = answers[shard];
      n_tokens_ += answer.tokens.size() - static_cast<std::size_t>(answer.n_prompt);
      of_shard.push_back(std::move(answer));
      if (of_shard.size() < n_missing[shard]) return;
      std::erase_if(of_shard, [&](const BatchAnswer& each) { return shares_passage(each); });
      folder_.write_shard(shard, std::move(of_shard));
      answers.erase(shard);
    };
    answer_batch(engine_, tokenizer_, missing,
                 {.n_parallel = work_.n_parallel, .taps = taps, .cuts_repetition = true}, take,
                 [&](int n_computed) { stepped(n_computed); });
    // Without the answers that were left out: the next prompts depend on it.
    n_tokens_ = count_features(folder_).answer_tokens;
  }

  bool shares_passage(const BatchAnswer& answer) {
    const auto tokens = std::span(answer.tokens).subspan(static_cast<std::size_t>(answer.n_prompt));
    // Short answers are shared by chance: "Yes."
    const std::string text = tokenizer_.decode(tokens);
    const bool shares =
        tokens.size() > SharedPassages::kWords && work_.without.shares_passage(text);
    if (shares) ++n_left_out_;
    return shares;
  }

  void stepped(int n_computed) {
    n_computed_ += static_cast<std::uint64_t>(n_computed);
    if (watcher_.stepped) watcher_.stepped(n_tokens_, n_computed_);
  }

  static constexpr std::uint64_t kAnswerSeeds = ~std::uint64_t{0};  // no prompt's number

  Engine& engine_;
  const OpenedModel& model_;
  const Tokenizer& tokenizer_;
  FeatureFolder& folder_;
  const FeatureWork& work_;
  const FeatureWatcher& watcher_;
  std::optional<OwnPrompts> own_;
  BuiltPrompts built_;
  std::vector<std::string> given_;  // of work_.data, those that are taken
  std::uint64_t n_tokens_ = 0, n_computed_ = 0;
  int n_left_out_ = 0;
};

}  // namespace

nlohmann::json json_of(const FeatureWork& work) {
  nlohmann::json json{{"seed", work.seed}, {"predict", work.n_predict}};
  json["temperature"] = work.temperature ? nlohmann::json(*work.temperature) : nullptr;
  return json;
}

FeatureCounts make_features(Engine& engine, const OpenedModel& model, FeatureFolder& folder,
                            const FeatureWork& work, const FeatureWatcher& watcher) {
  return Maker(engine, model, folder, work, watcher).run();
}

FeatureCounts count_features(const FeatureFolder& folder) {
  FeatureCounts counts;
  std::set<int> complete;
  for (int shard = 0; shard < folder.n_shards(); ++shard) {
    if (!folder.has_shard(shard)) continue;
    complete.insert(shard);
    counts.answer_tokens += folder.answer_tokens(shard);
  }
  counts.n_shards = static_cast<int>(complete.size());
  for (const ShardPrompt& prompt : folder.prompts()) {
    if (!complete.contains(prompt.shard)) continue;
    ++counts.n_prompts;
    counts.n_own += prompt.source == PromptSource::own ? 1 : 0;
    counts.n_built += prompt.source == PromptSource::built ? 1 : 0;
  }
  return counts;
}

}  // namespace outrider
