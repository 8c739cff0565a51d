// Many users' answers on one engine: who runs, how much of a prompt a step computes, who waits, and
// which answer is preempted when pages run out. Continuous batching: Yu et al. 2022 (Orca, OSDI
// 22); chunks of prompts beside decoding: Agrawal et al. 2024 (Sarathi-Serve), arXiv:2403.02310;
// giving pages back and computing again: Kwon et al. 2023 (vLLM), arXiv:2309.06180.
//
// One thread owns engine and scheduler and calls run(); all others speak to it through submit() and
// cancel(), and hear of their answers by a callback. An answer has the tokens that it would have
// alone, whatever else runs; under rejection sampling (speculation/verifier.h) it has them with the
// same probability, because what is drafted depends on clocks, on the others of the batch, on
// preemption, and on earlier answers.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace outrider {

struct AnswerRequest {
  Request request;
  int priority = 0;  // lower goes first; among equals first come, first served
};

struct AnswerToken {
  Token token;
  std::string text;        // became showable with it: whole characters, perhaps none
  bool was_draft = false;  // an accepted draft
  std::optional<ScoredToken> score = {};
};

struct AnswerFigures {
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  // By the clock: from submit() until the answer gets pages and begins; from there to the first
  // tokens; from there to the end.
  double queued_ms = 0, prompt_ms = 0, generation_ms = 0;
  int first_tokens = 0;  // that came with the step that ended the prompt
  int n_preempted = 0;
  std::string_view verifier = {};  // its name
  bool is_lossy = false;           // as its guarantee says
  Counters counters = {};
  // Of AnswerOptions::prediction: drafted tokens that became text, and those that did not.
  long prediction_accepted = 0, prediction_rejected = 0;
};

struct AnswerEnd {
  std::optional<FinishReason> reason = {};    // nothing: cancelled, or failed, which has an error
  std::optional<std::string> stop_text = {};  // the stop string that ended it, if one did
  std::optional<Error> error = {};            // why it failed
  AnswerFigures figures = {};
};

// What a step brought for one answer.
struct AnswerEvent {
  // With prompt_logprobs, once, with the first tokens: of the prompt's tokens but the first.
  std::vector<ScoredToken> prompt;
  std::vector<AnswerToken> tokens;
  std::string held_text;         // with the end: what could have become a stop string and did not
  std::optional<AnswerEnd> end;  // nothing follows
};

// Called on the engine's thread, in order; must not block or throw. The last call has an end.
using AnswerListener = std::function<void(const AnswerEvent&)>;

struct AnswerId {
  std::uint64_t value = 0;
  friend auto operator<=>(AnswerId, AnswerId) = default;
};

// The answer cannot be taken now: the queue is full, or the scheduler has stopped.
class Overloaded : public Error {
 public:
  using Error::Error;
};

struct SchedulerOptions {
  int n_running = 1;    // answers at once, at most the target's sequences
  int n_waiting = 256;  // others that may wait
  // The longest that a step may take which prefills while other answers generate, without its
  // drafts. Nothing: less than twice the time of the step without prefill; if more answers prefill
  // than generate, more in proportion to all answers. One token of a prompt is always computed.
  std::optional<double> max_pause_ms = {};
  // The longest time from an answer's submission to its end: after it the answer ends by
  // FinishReason::length if it has begun to generate, else it is cancelled. Nothing: no limit.
  std::optional<std::chrono::milliseconds> time_max = {};
};

// Sums since the start, and what is now.
struct SchedulerStatus {
  enum class State { waiting, prefilling, generating, suspended };
  struct Answer {
    AnswerId id;
    State state;
    int prompt_tokens, cached_tokens, read_tokens, completion_tokens;
    int n_predict;  // -1: no limit
  };
  std::vector<Answer> answers;  // in the order of their turn; waiting ones last

  int pages = 0, free_pages = 0, cached_pages = 0;
  long steps = 0;
  long stopped = 0, reached_length = 0, failed = 0, cancelled = 0;  // answers that have ended
  std::map<std::string_view, long> ended;                           // the same, by verifier
  long preemptions = 0;
  long prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;  // of answers that have begun
  Counters counters;  // of answers, those in progress among them
  DraftWork draft_work;
  Planner::Report planner;
  struct OfDrafter {
    std::string name;
    DrafterCounts counts;
  };
  std::vector<OfDrafter> drafters;

  int count(State state) const;
};

class Scheduler {
 public:
  // Engine and tokenizer must outlive it, and nobody else may use the engine. CHECKs that the
  // engine's prompt_chunk is set and that the target has pages_of_one_sequence().
  Scheduler(Engine& engine, const Tokenizer& tokenizer, SchedulerOptions options);
  ~Scheduler();  // on the engine's thread, or after run() has returned; answers are cancelled
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Any thread, at once. submit() throws Error for what can never be answered (Engine::check,
  // check_sampling, StopRules), and Overloaded. A listener may be called before submit() returns.
  // cancel() of an answer that has ended does nothing; else its end comes before the next step.
  AnswerId submit(AnswerRequest request, AnswerListener listener);
  void cancel(AnswerId id);
  SchedulerStatus status() const;

  // Works until stop(), which any thread may call and which lets the step in progress end; sleeps
  // while there is nothing to do. Answers that have not ended are cancelled then. turn() is one
  // round of it: false if there was nothing to do.
  void run();
  void stop();
  bool turn();

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    AnswerId id;
    AnswerRequest asked;
    AnswerListener listener;
    Clock::time_point submitted = Clock::now();
    std::optional<Clock::time_point> started = {}, first = {};
    std::unique_ptr<Generation> generation = nullptr;  // null: it waits
    bool is_suspended = false;
    AnswerFigures figures = {};

    bool runs() const { return generation && !is_suspended; }
  };
  struct Prefilling {
    Generation* generation;
    int n;  // Engine::n_to_prefill() of it
  };
  struct Mail {
    std::vector<std::unique_ptr<Answer>> submitted;
    std::set<AnswerId> cancelled;
  };

  void take_mail();
  void end_overdue();
  void end_all(const std::optional<Error>& error);
  void admit();
  bool begin(Answer& answer);
  void start(Answer& answer);
  bool will_be_prefilled_by_another(const Answer& answer) const;
  int pages_to_prefill(const Answer& answer);
  std::vector<Engine::Part> plan();
  int tokens_to_prefill(std::span<const Prefilling> texts, int room) const;
  static std::vector<Engine::Part> parts_that_prefill(std::span<const Prefilling> texts, int n);
  void suspend(Answer& answer);
  void step(std::span<const Engine::Part> parts);
  void tell(Answer& answer);
  void add_tokens(Answer& answer, AnswerEvent& event);
  void end(Answer& answer, std::optional<FinishReason> reason, std::optional<Error> error,
           AnswerEvent last = {});
  void publish();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const SchedulerOptions options_;
  // Not ended, by priority and arrival. Those that have a generation are at most n_running.
  std::vector<std::unique_ptr<Answer>> answers_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wakes_;
  Mail mail_;
  bool is_stopped_ = false;
  std::uint64_t next_id_ = 1;
  int n_alive_ = 0;  // answers that have not ended, those in the mail among them
  SchedulerStatus published_;

  SchedulerStatus status_;  // the engine's thread's own; counters are of answers that have ended
};

}  // namespace outrider
