// A target model in memory with the draft models that it may ask, and the engines on them: what
// command lines, servers and bindings share.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cache/cache.h"
#include "engine/session.h"
#include "model/backend.h"
#include "model/head.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_choice.h"
#include "runtime/opened_model.h"
#include "runtime/profile.h"
#include "runtime/profile_store.h"

namespace outrider {

// No default context is longer: the cache of a model trained for 128k tokens would take gigabytes
// that few need.
inline constexpr int kContextMax = 32768;

struct RuntimeOptions {
  std::string model = {};
  bool offline = false;    // never fetch a model
  TextSettings text = {};  // the pre-tokenizer is that of draft models, too
  // Tokens; nothing: what the model was trained for, at most kContextMax, less if memory demands.
  std::optional<int> context = {};
  int prompt_chunk = 512;  // prompt rows of a sequence in one pass at most
  CacheType cache_type = CacheType::f16;
  int n_threads = 1;
  int n_sequences = 1;  // alive at once, of all engines together
  // Whether texts share one pool of pages, the target's and each draft model's of the same size,
  // and in it what they have in common. Otherwise each has room for a whole context.
  struct Pool {
    // Of all models together; nothing: for all texts at their longest, but no more than half of the
    // memory that is available beside the weights. At least one context must fit.
    std::optional<std::uint64_t> bytes = {};
  };
  std::optional<Pool> pool = {};
  // What engines will ask for: memory for their draft models is planned beside the target's.
  std::vector<DraftChoice> drafters = {};
  DrafterFlagValues drafter_flags = {};
  PlannerOptions planner = {};
  // Whether what was measured and learned is kept from run to run (profile_store.h), and, without a
  // pool, answers for the history (history_store.h).
  bool keeps = false;
  bool reads_profiles = false;  // engines begin with stored profiles; none is written
  // Whether a head is measured whatever an earlier start or its own file says of it.
  bool measures_head = false;
};

// Which device runs a model.
using ChooseFactory = std::function<const BackendFactory&(const Model&)>;

// Not thread-safe. Sessions must not outlive it.
class Runtime {
 public:
  // Opens, plans and loads the target; `progress` is used as long as the runtime lives, by loading.
  // Throws Error, before loading if the context cannot fit.
  Runtime(RuntimeOptions options, ChooseFactory choose_factory, Progress progress);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // An engine on the target with these drafters, loading their models if they are not loaded yet,
  // and with its costs measured, or known from a stored profile of such drafters.
  // Engines share the models and so their n_sequences sequences: together they have no more
  // generations, and while n_sequences live, no engine may be made.
  std::unique_ptr<Engine> make_engine(std::span<const DraftChoice> drafters);
  // The same with another planner, which begins without a profile.
  std::unique_ptr<Engine> make_engine(std::span<const DraftChoice> drafters,
                                      const PlannerOptions& planner);
  // Keeps what this engine, made with the options' drafters, has learned.
  void keep_profile(const Engine& engine);
  // Keeps which layers the target leaves out when it drafts for itself (tune self), and how fast
  // answers come then, over plain decoding. False if they cannot be kept.
  bool keep_self_layers(const std::vector<int>& left_out, double speed);
  std::vector<std::unique_ptr<Drafter>> make_drafters(std::span<const DraftChoice> drafters);
  Session open_session(Engine& engine) const {
    return Session(engine, *target_model_.tokenizer, target_model_.chat_template.get());
  }

  const OpenedModel& target_model() const { return target_model_; }
  Backend& target() const { return *target_; }
  // How the head of the options' drafters is loaded and how often it was right about a sample text,
  // now or when it was measured; nothing without one.
  std::optional<HeadChoice> head_choice() const;
  MemoryNeed target_memory() const;
  // Tokens that the pool holds.
  int pool_tokens() const { return load_options_.n_pages * kPagePositions; }
  const BackendFactory& target_factory() const { return choose_factory_(target_model_.model); }

 private:
  const OpenedModel& open_draft(const DraftChoice& choice);
  std::string head_name(const DraftChoice& choice) const;
  void open_asked_head();
  void note_left_out() const;
  void check_head(const DraftChoice& choice) const;
  ProfileKey head_key();
  void choose_head_by_measurement();
  std::optional<HeadChoice> known_head_choice();
  std::string target_hash();
  void compare_with_named_agreement() const;
  void check_copy(const LoadOptions& options) const;
  LoadOptions draft_load_options(const DraftChoice& choice);
  using Need = std::function<MemoryNeed(int context, int n_pages)>;
  Need need_of_all();
  int least_pages(int context) const;
  void choose_context();
  void choose_pages(const Need& need, std::uint64_t available);
  std::optional<std::vector<int>> self_layers();
  ProfileKey self_layers_key();
  ProfileKey profile_key(std::span<const DraftChoice> drafters);
  std::optional<Profile> find_profile(std::span<const DraftChoice> drafters);
  std::unique_ptr<Engine> new_engine(std::span<const DraftChoice> drafters,
                                     const PlannerOptions& planner);
  std::unique_ptr<Drafter> make_drafter(const DraftChoice& choice);
  std::unique_ptr<Drafter> make_late(const DraftChoice& choice);
  std::shared_ptr<EarlierAnswers> earlier_answers(std::size_t memory_bytes) const;
  std::shared_ptr<Backend> load(const OpenedModel& opened, const LoadOptions& options);

  const RuntimeOptions options_;
  const TextSettings draft_text_{.tokenizer_pre = options_.text.tokenizer_pre};
  const ChooseFactory choose_factory_;
  const Progress progress_;
  OpenedModel target_model_;
  LoadOptions load_options_;              // of the target
  std::optional<ProfileStore> profiles_;  // nothing: none are read
  std::optional<Profile> profile_;        // of the options' drafters, as it was found
  std::map<std::string, OpenedModel> draft_models_;
  // The head that the options' drafters name.
  struct AskedHead {
    std::string name;
    Head head;
    LoadOptions options;
    bool tries_types;
    bool is_for_this_file = false;          // by its own word, the very file of the target
    std::optional<HeadChoice> choice = {};  // how it is read and encoded, once that is known
  };
  std::optional<AskedHead> head_;
  std::shared_ptr<Backend> target_;
  std::map<std::string, std::shared_ptr<Backend>> drafts_;  // loaded, by name
};

}  // namespace outrider
