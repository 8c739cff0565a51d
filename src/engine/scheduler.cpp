#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cache/cache.h"

namespace outrider {
namespace {

// Tokens of prompts that a step reads beside others where its costs are not known.
constexpr int kUsualRead = 8;
// That an answer may take before others are preempted: an answer that comes and goes has its
// text computed each time.
constexpr int kPagesAhead = 2;
// Without max_pause_ms, over the time of a step without prompts. Steps are not exactly as long as
// expected, so this stays below 2.
constexpr double kUsualPause = 1.6;
// Kernels take at most so many rows at once.
constexpr int kRowsOfTile = 16;
// The share of a token's time below which it takes much less.
constexpr double kMuchLess = 0.9;

double ms_between(std::chrono::steady_clock::time_point from,
                  std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

void add_counters(SchedulerStatus& status, const Counters& counters) {
  status.counters += counters;
  for (std::size_t i = 0; i < status.drafters.size(); ++i)
    status.drafters[i].counts += counters.drafters[i];
}

}  // namespace

int SchedulerStatus::count(State state) const {
  return static_cast<int>(std::ranges::count(answers, state, &Answer::state));
}

Scheduler::Scheduler(Engine& engine, const Tokenizer& tokenizer, SchedulerOptions options)
    : engine_(engine), tokenizer_(tokenizer), options_(options) {
  const LoadOptions& target = engine.target().options();
  CHECK(options.n_running >= 1 && options.n_running <= target.n_sequences);
  CHECK(engine.options().prompt_chunk > 0);
  CHECK(engine.target().free_pages() >= pages_of_one_sequence(target.context, target.batch_rows));
  status_.pages = engine.target().free_pages();
  for (const auto& drafter : engine.drafters())
    status_.drafters.push_back({std::string(drafter->name()), {}});
  publish();
}

Scheduler::~Scheduler() {
  end_all(std::nullopt);
}

void Scheduler::end_all(const std::optional<Error>& error) {
  take_mail();
  while (!answers_.empty()) end(*answers_.back(), std::nullopt, error);
}

AnswerId Scheduler::submit(AnswerRequest request, AnswerListener listener) {
  const StopRules rules(tokenizer_, request.request.stop);
  engine_.check(request.request.prompt, request.request.options.prediction, rules.n_left());
  check_sampling(request.request.sampling);
  request.request.options.prefills_always = true;
  auto answer = std::make_unique<Answer>();
  answer->asked = std::move(request);
  answer->listener = std::move(listener);
  const std::lock_guard lock(mutex_);
  if (is_stopped_) throw Overloaded("the server is stopping");
  if (n_alive_ >= options_.n_running + options_.n_waiting)
    throw Overloaded("too many requests: as many as may wait ({}) do; try again later",
                     options_.n_waiting);
  const AnswerId id{next_id_++};
  answer->id = id;
  mail_.submitted.push_back(std::move(answer));
  ++n_alive_;
  wakes_.notify_one();
  return id;
}

void Scheduler::cancel(AnswerId id) {
  const std::lock_guard lock(mutex_);
  mail_.cancelled.insert(id);
  wakes_.notify_one();
}

SchedulerStatus Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

void Scheduler::run() {
  const auto has_work = [&] {
    return is_stopped_ || !answers_.empty() || !mail_.submitted.empty() || !mail_.cancelled.empty();
  };
  for (;;) {
    std::unique_lock lock(mutex_);
    wakes_.wait(lock, has_work);
    if (is_stopped_) break;
    lock.unlock();
    turn();
  }
  end_all(std::nullopt);
  publish();
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  wakes_.notify_all();
}

bool Scheduler::turn() {
  take_mail();
  if (options_.time_max) end_overdue();
  admit();
  const std::vector<Engine::Part> parts = plan();
  if (!parts.empty()) step(parts);
  publish();
  return !parts.empty();
}

void Scheduler::take_mail() {
  Mail mail;
  {
    const std::lock_guard lock(mutex_);
    std::swap(mail, mail_);
  }
  for (auto& answer : mail.submitted) {
    const auto later = [&](const auto& other) {
      return std::pair(other->asked.priority, other->id) >
             std::pair(answer->asked.priority, answer->id);
    };
    answers_.insert(std::ranges::find_if(answers_, later), std::move(answer));
  }
  for (const AnswerId id : mail.cancelled) {
    const auto found =
        std::ranges::find(answers_, id, [](const auto& answer) { return answer->id; });
    if (found != answers_.end()) end(**found, std::nullopt, std::nullopt);
  }
}

void Scheduler::end_overdue() {
  const Clock::time_point oldest = Clock::now() - *options_.time_max;
  for (std::size_t i = answers_.size(); i-- > 0;) {
    Answer& answer = *answers_[i];
    if (answer.submitted > oldest) continue;
    end(answer, answer.first ? std::optional(FinishReason::length) : std::nullopt, std::nullopt);
  }
}

// In the order of all, those that were preempted and those that wait, until one has to wait for
// pages.
void Scheduler::admit() {
  int n_begun = static_cast<int>(
      std::ranges::count_if(answers_, [](const auto& a) { return a->generation != nullptr; }));
  // Pages that those that run need for what they have to read, and a little for what they generate.
  int n_promised = 0;
  for (const auto& answer : answers_)
    if (answer->runs()) n_promised += pages_to_prefill(*answer) + kPagesAhead;
  const auto has_room = [&](Answer& answer) {
    const int wanted = pages_to_prefill(answer);
    const bool is_alone = n_promised == 0;
    if (!is_alone && n_promised + wanted > engine_.target().free_pages()) return false;
    n_promised += wanted + kPagesAhead;
    return true;
  };
  // The place of the last one behind i that waits for its first pages.
  const auto takes_place = [&](std::size_t i) {
    for (std::size_t k = answers_.size() - 1; k > i; --k) {
      Answer& other = *answers_[k];
      if (!other.generation || other.started) continue;
      other.generation.reset();
      other.is_suspended = false;
      --n_begun;
      return true;
    }
    return false;
  };
  bool is_blocked = false;
  for (std::size_t i = 0; i < answers_.size() && !is_blocked;) {
    Answer& answer = *answers_[i];
    const bool is_new = answer.generation == nullptr;
    if (answer.runs() || (is_new && (will_be_prefilled_by_another(answer) ||
                                     (n_begun == options_.n_running && !takes_place(i))))) {
      ++i;
      continue;
    }
    if (is_new) {
      if (!begin(answer)) continue;  // it has ended
      ++n_begun;
    }
    ++i;
    is_blocked = !has_room(answer);
    answer.is_suspended = is_blocked;
    if (is_blocked)
      engine_.suspend(*answer.generation);  // which reused what is cached of it
    else if (!answer.started)
      start(answer);
  }
}

// False if it could not, and has ended.
bool Scheduler::begin(Answer& answer) {
  const Request& request = answer.asked.request;
  try {
    answer.generation = engine_.begin(request.prompt, sampling_of(request, tokenizer_),
                                      StopRules(tokenizer_, request.stop), request.options);
  } catch (const Error& error) {
    end(answer, std::nullopt, error);
    return false;
  } catch (const std::bad_alloc&) {
    end(answer, std::nullopt, Error("out of memory for another answer"));
    return false;
  }
  return true;
}

// Of its prompt it has what is cached by now.
void Scheduler::start(Answer& answer) {
  Generation& generation = *answer.generation;
  answer.started = Clock::now();
  answer.figures.prompt_tokens = generation.n_prompt;
  answer.figures.cached_tokens = generation.n_prompt - 1 - engine_.n_to_prefill(generation);
  status_.prompt_tokens += answer.figures.prompt_tokens;
  status_.cached_tokens += answer.figures.cached_tokens;
}

// What a running answer is about to compute of its prompt is worth waiting for. Parallel answers to
// one prompt begin so.
bool Scheduler::will_be_prefilled_by_another(const Answer& answer) const {
  if (!engine_.target().options().shares_texts || answer.asked.request.options.prompt_logprobs)
    return false;
  const std::vector<Token>& prompt = answer.asked.request.prompt;
  for (const auto& other : answers_) {
    if (!other->runs() || other->asked.request.options.scope != answer.asked.request.options.scope)
      continue;
    const Generation& generation = *other->generation;
    const int n_computed = engine_.target().committed(generation.sequence);
    if (n_computed + 1 >= generation.n_prompt) continue;
    const auto differs = std::ranges::mismatch(generation.tokens, prompt);
    const int common = static_cast<int>(differs.in2 - prompt.begin());
    const int shared = std::min(common, static_cast<int>(prompt.size()) - 1) / kPagePositions;
    if (shared > n_computed / kPagePositions) return true;
  }
  return false;
}

// Until it generates, and for the first step then.
int Scheduler::pages_to_prefill(const Answer& answer) {
  return engine_.pages_wanted(*answer.generation, engine_.n_to_prefill(*answer.generation));
}

// Every running answer has a row, and those that read share what the step may read, first come
// first served. Where pages are short the last ones are preempted.
std::vector<Engine::Part> Scheduler::plan() {
  std::vector<Answer*> running;
  for (const auto& answer : answers_)
    if (answer->runs()) running.push_back(answer.get());
  const LoadOptions& target = engine_.target().options();
  std::vector<Prefilling> texts;
  for (const Answer* answer : running)
    texts.push_back({answer->generation.get(), engine_.n_to_prefill(*answer->generation)});
  for (;;) {
    int n_rows = 0, n_pages = 0;
    for (const auto& [generation, n_to_prefill] : texts)
      n_rows += 1 + (n_to_prefill == 0 ? engine_.draft_rows_max(*generation) : 0);
    const int room = std::min(target.batch_rows, target.n_slots) - n_rows;
    std::vector<Engine::Part> parts =
        parts_that_prefill(texts, tokens_to_prefill(texts, std::max(1, room)));
    for (const auto& [generation, n_prefill] : parts)
      n_pages += engine_.pages_wanted(*generation, n_prefill);
    if (n_pages <= engine_.target().free_pages() || running.size() <= 1) return parts;
    suspend(*running.back());
    running.pop_back();
    texts.pop_back();
  }
}

// A step that reads so many tokens of prompts, in turn.
std::vector<Engine::Part> Scheduler::parts_that_prefill(std::span<const Prefilling> texts, int n) {
  std::vector<Engine::Part> parts;
  Engine::PrefillRoom room(n);
  for (const auto& [generation, n_to_prefill] : texts) {
    const int n_prefill = room.take(*generation, n_to_prefill);
    if (n_to_prefill > 0 && n_prefill == 0) continue;  // its turn comes
    parts.push_back({generation, n_prefill});
  }
  return parts;
}

// As many as the pause allows that others then have. Where more texts read than generate, the usual
// pause grows with their number: reading much at once takes less for each token, and so all wait
// less.
int Scheduler::tokens_to_prefill(std::span<const Prefilling> texts, int room) const {
  const auto n_generate = std::ranges::count(texts, 0, &Prefilling::n);
  if (n_generate == 0) {
    // Each text has a row beside those, and the chunk is of all rows.
    const int rows = std::min(room, engine_.options().prompt_chunk);
    return std::max(1, rows - static_cast<int>(parts_that_prefill(texts, rows).size()));
  }
  const auto pass_ms = [&](int n) { return engine_.pass_ms(parts_that_prefill(texts, n)); };
  const std::optional<double> without = pass_ms(0);
  if (!without) return std::min(room, kUsualRead);
  const double crowd = static_cast<double>(texts.size()) / static_cast<double>(2 * n_generate);
  const double most = options_.max_pause_ms.value_or(kUsualPause * std::max(1.0, crowd) * *without);
  int fitting = 1, too_many = engine_.options().prompt_chunk + 1;
  while (too_many - fitting > 1) {
    const int middle = (fitting + too_many) / 2;
    (*pass_ms(middle) <= most ? fitting : too_many) = middle;
  }
  fitting = std::min(room, fitting);
  // Kernels take rows by fours or sixteens, and one more may cost as much as all of them. So a few
  // are left for a later step if a token then takes much less.
  const auto ms_of_token = [&](int n) { return (*pass_ms(n) - *without) / n; };
  int best = fitting;
  double least_ms = kMuchLess * ms_of_token(fitting);
  for (int n = fitting - 1; n > fitting - kRowsOfTile && 3 * n >= 2 * fitting; --n)
    if (const double ms = ms_of_token(n); ms < least_ms) best = n, least_ms = ms;
  return best;
}

void Scheduler::suspend(Answer& answer) {
  engine_.suspend(*answer.generation);
  answer.is_suspended = true;
  ++answer.figures.n_preempted;
  ++status_.preemptions;
}

void Scheduler::step(std::span<const Engine::Part> parts) {
  const auto n_running = std::ranges::count_if(answers_, [](const auto& a) { return a->runs(); });
  engine_.step(parts, static_cast<int>(n_running) - static_cast<int>(parts.size()));
  ++status_.steps;
  const auto failed = [](const Engine::Part& part) { return part.generation->error.has_value(); };
  if (parts.size() > 1 && std::ranges::all_of(parts, failed)) {
    // The step failed as a whole, and all are as they were: alone, those go on that can.
    for (const Engine::Part& part : parts) {
      part.generation->error.reset();
      engine_.step(std::span(&part, 1));
      ++status_.steps;
    }
  }
  for (const Engine::Part& part : parts) {
    const auto answer = std::ranges::find(answers_, part.generation,
                                          [](const auto& a) { return a->generation.get(); });
    CHECK(answer != answers_.end());
    tell(**answer);
  }
}

void Scheduler::tell(Answer& answer) {
  const Generation& generation = *answer.generation;
  AnswerEvent event;
  add_tokens(answer, event);
  if (generation.ended())
    end(answer, generation.finish_reason, generation.error, std::move(event));
  else if (!event.tokens.empty())
    answer.listener(event);
}

// What the last step brought.
void Scheduler::add_tokens(Answer& answer, AnswerEvent& event) {
  Generation& generation = *answer.generation;
  if (!generation.emitted.empty() || generation.finish_reason)
    event.prompt = std::exchange(generation.prompt_scores, {});
  if (generation.emitted.empty()) return;
  const int n = static_cast<int>(generation.emitted.size());
  if (!answer.first) {
    answer.first = Clock::now();
    answer.figures.first_tokens = n;
  }
  answer.figures.completion_tokens += n;
  status_.completion_tokens += n;
  for (Emitted& emitted : generation.emitted)
    event.tokens.push_back({.token = emitted.token,
                            .text = std::move(emitted.text),
                            .was_draft = emitted.drafter.has_value(),
                            .score = std::move(emitted.score)});
}

// Tells it and forgets it.
void Scheduler::end(Answer& answer, std::optional<FinishReason> reason, std::optional<Error> error,
                    AnswerEvent last) {
  AnswerFigures& figures = answer.figures;
  const Clock::time_point now = Clock::now();
  const Clock::time_point started = answer.started.value_or(now);
  figures.queued_ms = ms_between(answer.submitted, started);
  const Verifier& verifier = *answer.asked.request.options.verifier;
  figures.verifier = verifier.name();
  figures.is_lossy = verifier.guarantee() == Guarantee::lossy;
  ++status_.ended[figures.verifier];
  if (Generation* const generation = answer.generation.get()) {
    if (!error && !generation->ended()) last.held_text = generation->take_held_text();
    const Clock::time_point first = answer.first.value_or(now);
    figures.prompt_ms = ms_between(started, first);
    figures.generation_ms = ms_between(first, now);
    figures.counters = generation->counters;
    for (std::size_t i = 0; i < status_.drafters.size(); ++i) {
      if (status_.drafters[i].name != "prediction") continue;
      const DrafterCounts& counts = figures.counters.drafters[i];
      figures.prediction_accepted = counts.accepted;
      figures.prediction_rejected = counts.proposed - counts.accepted;
    }
    add_counters(status_, figures.counters);
  }
  if (error)
    ++status_.failed;
  else if (!reason)
    ++status_.cancelled;
  else
    ++(*reason == FinishReason::stop ? status_.stopped : status_.reached_length);
  last.end = AnswerEnd{.reason = reason, .error = std::move(error), .figures = figures};
  if (answer.generation) last.end->stop_text = answer.generation->stop.stopped_by();
  const auto place = std::ranges::find(answers_, &answer, [](const auto& a) { return a.get(); });
  const std::unique_ptr<Answer> ended = std::move(*place);
  answers_.erase(place);
  ended->generation.reset();  // its pages are free when the listener hears of it
  {
    const std::lock_guard lock(mutex_);
    --n_alive_;
  }
  ended->listener(last);
}

void Scheduler::publish() {
  SchedulerStatus status = status_;
  status.draft_work = engine_.draft_work();
  status.planner = engine_.planner_report();
  status.free_pages = engine_.target().free_pages();
  status.cached_pages = engine_.target().cached_pages();
  for (const auto& answer : answers_) {
    using enum SchedulerStatus::State;
    const Generation* const generation = answer->generation.get();
    SchedulerStatus::Answer& added = status.answers.emplace_back(SchedulerStatus::Answer{
        .id = answer->id,
        .state = waiting,
        .prompt_tokens = static_cast<int>(answer->asked.request.prompt.size()),
        .cached_tokens = answer->figures.cached_tokens,
        .read_tokens = 0,
        .completion_tokens = answer->figures.completion_tokens,
        .n_predict = answer->asked.request.stop.n_predict});
    if (!generation) continue;
    add_counters(status, generation->counters);
    added.read_tokens =
        std::min(engine_.target().committed(generation->sequence), generation->n_prompt);
    added.state = answer->is_suspended ? suspended : answer->first ? generating : prefilling;
  }
  const std::lock_guard lock(mutex_);
  published_ = std::move(status);
}

}  // namespace outrider
