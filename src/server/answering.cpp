#include "server/answering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <random>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "http/error_body.h"

namespace outrider {
namespace {

// The listener of all answers to a request. They call from the engine's thread, also while the
// request's own thread still submits the others: what comes before begin() waits.
class Delivery final : public std::enable_shared_from_this<Delivery> {
 public:
  Delivery(Asked& asked, std::shared_ptr<HttpReply> reply, std::function<void(AnswerId)> cancel)
      : form_(std::move(asked.form)),
        stream_(asked.stream),
        path_(std::move(asked.path)),
        n_open_(asked.answers.size()),
        cancel_(std::move(cancel)),
        reply_(std::move(reply)) {}

  void begin(std::vector<AnswerId> ids, std::string heartbeat) {
    const std::lock_guard lock(mutex_);
    ids_ = std::move(ids);
    has_begun_ = true;
    if (stream_) {
      reply_->begin_stream(std::move(heartbeat));
      write(form_->begin());
    }
    for (const auto& [choice, event] : std::exchange(early_, {})) take(choice, event);
  }

  void hear(int choice, const AnswerEvent& event) {
    const std::lock_guard lock(mutex_);
    try {
      if (has_begun_)
        take(choice, event);
      else
        early_.emplace_back(choice, event);
    } catch (const std::exception&) {
      // No memory even to say so. When the last listener is gone, so is the reply: status 500.
    }
  }

 private:
  void take(int choice, const AnswerEvent& event) {
    try {
      write(form_->push(choice, event));
    } catch (const std::exception& error) {  // no memory
      failure_.emplace(500, "", "", error.what());
    }
    const bool has_enough = form_->has_enough(choice);
    if (has_enough && !event.end) cancel_(ids_[static_cast<std::size_t>(choice)]);
    if (!event.end) return;
    if (const bool was_ours = has_enough && !event.end->error; !was_ours && !failure_)
      if (auto error = failure(*event.end)) failure_.emplace(std::move(*error));
    if (--n_open_ == 0) finish();
  }

  void finish() {
    if (stream_) {
      write(failure_ ? form_->fail(*failure_) : form_->end());
      reply_->end();
    } else {
      // Writing a long one would hold up the engine, whose thread this is.
      reply_->send_made([self = shared_from_this()] {
        return self->failure_ ? error_response(self->path_, *self->failure_)
                              : HttpResponse{.body = self->form_->end()};
      });
    }
  }

  void write(std::string text) {
    if (stream_ && !text.empty()) reply_->write(std::move(text));
  }

  std::mutex mutex_;  // of all that follows
  const std::unique_ptr<AnswerForm> form_;
  const bool stream_;
  const std::string path_;
  std::size_t n_open_;  // answers that have not ended
  const std::function<void(AnswerId)> cancel_;
  const std::shared_ptr<HttpReply> reply_;
  std::vector<AnswerId> ids_;
  bool has_begun_ = false;
  std::vector<std::pair<int, AnswerEvent>> early_;
  std::optional<RequestError> failure_;
};

void check_bias(const ServedModel& model, const std::vector<TokenBias>& bias) {
  for (const TokenBias& entry : bias)
    if (entry.token >= model.vocabulary)
      refuse_field(fmt::format("logit_bias.{}", entry.token),
                   fmt::format("no such token; the model has {}", model.vocabulary));
}

void check_drafters(const ServedModel& model,
                    const std::optional<std::vector<std::string>>& names) {
  for (const std::string& name : names.value_or(std::vector<std::string>{}))
    if (std::ranges::find(model.drafters, name) == model.drafters.end())
      refuse_field(
          "speculation.draft",
          fmt::format("no drafter \"{}\"; expected \"auto\", \"off\" or of this server's: {}",
                      printable(name, 64), fmt::join(model.drafters, ", ")));
}

}  // namespace

void check_prompt(const ServedModel& model, const std::vector<Token>& prompt,
                  const std::string& field, std::optional<int> max_tokens) {
  if (prompt.empty()) refuse_field(field, "is empty; expected at least one token");
  for (const Token token : prompt)
    if (token >= model.vocabulary)
      refuse_field(field, fmt::format("no token {}; the model has {}", token, model.vocabulary));
  const bool has_answer = max_tokens != 0;
  if (std::cmp_greater(prompt.size() + (has_answer ? 1 : 0), model.context))
    throw RequestError(
        400, "context_length_exceeded", field,
        fmt::format("the prompt has {} tokens, but this model's maximum context "
                    "length is {} tokens{}",
                    prompt.size(), model.context, has_answer ? " with the answer" : ""));
}

void draw_seed(GenerationFields& fields) {
  // 32 bits are enough to be different and short enough to type.
  if (!fields.seed) fields.seed = std::random_device()();
}

AnswerRequest answer_request(const ServedModel& model, const GenerationFields& fields,
                             std::vector<Token> prompt, std::optional<std::size_t> api_key) {
  check_bias(model, fields.logit_bias);
  check_drafters(model, fields.drafters);
  AnswerRequest answer{.request = {.prompt = std::move(prompt), .sampling = {}}};
  SamplingParams& sampling = answer.request.sampling;
  sampling.filters = model.filters(fields.filters);
  sampling.bias = fields.logit_bias;
  sampling.repeat_last_n = fields.repeat_last_n.value_or(model.repeat_last_n);
  sampling.seed = fields.seed.value();
  answer.request.stop = {.n_predict = fields.max_tokens.value_or(-1),
                         .texts = fields.stop,
                         .ignore_eos = fields.ignore_eos};
  std::vector<Token> prediction = model.tokenizer->encode(fields.prediction);
  prediction.resize(std::min(prediction.size(), static_cast<std::size_t>(model.context)));
  answer.request.options = {
      .prediction = std::move(prediction),
      .scope = cache_scope(model.keys_share ? std::nullopt : api_key, fields.cache_salt),
      .draft_rows = fields.draft_rows,
      .drafters = fields.drafters,
      .n_logprobs = fields.n_logprobs};
  answer.priority = fields.priority;
  return answer;
}

void add_choices(std::vector<AnswerRequest>& answers, const AnswerRequest& first, int n) {
  for (int i = 0; i < n; ++i) {
    answers.push_back(first);
    answers.back().request.sampling.stream = static_cast<std::uint32_t>(i);
  }
}

CacheScope cache_scope(std::optional<std::size_t> api_key, std::string_view salt) {
  if (!api_key && salt.empty()) return {};
  Sha256 digest;
  const std::string text =
      fmt::format("{} {}", api_key ? fmt::format("{}", *api_key) : "none", salt);
  digest.update(std::as_bytes(std::span(text)));
  const std::string hex = digest.hex();
  CacheScope scope;
  for (std::size_t i = 0; i < scope.value.size(); ++i)
    std::from_chars(&hex[16 * i], &hex[16 * (i + 1)], scope.value[i], 16);
  return scope;
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLength = 24;
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  std::uniform_int_distribution<std::size_t> pick(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < kLength; ++i) id += kLetters[pick(random)];
  return id;
}

AnswerHead answer_head(const ServedModel& model, const GenerationFields& fields,
                       std::string_view id_prefix) {
  using namespace std::chrono;
  const auto now = system_clock::now().time_since_epoch();
  return {.id = random_id(id_prefix),
          .model = answering_name(model, fields.model),
          .version = model.version,
          .created = duration_cast<seconds>(now).count(),
          .seed = fields.seed.value()};
}

void give_answers(const ServedModel& model, Asked asked, std::shared_ptr<HttpReply> reply) {
  if (asked.answers.size() > model.answers_max)
    throw RequestError(400, "", "",
                       fmt::format("the request asks for {} answers; this server takes {} at once",
                                   asked.answers.size(), model.answers_max));
  const auto delivery = std::make_shared<Delivery>(asked, reply, model.cancel);
  std::vector<AnswerId> ids;
  const auto cancel_all = [cancel = model.cancel](const std::vector<AnswerId>& all) {
    for (const AnswerId id : all) cancel(id);
  };
  const auto submit = [&](AnswerRequest answer) {
    const int choice = static_cast<int>(ids.size());
    try {
      ids.push_back(model.submit(std::move(answer), [delivery, choice](const AnswerEvent& event) {
        delivery->hear(choice, event);
      }));
    } catch (const Overloaded& error) {
      throw RequestError(429, "overloaded", "", error.what());
    } catch (const Error& error) {
      throw RequestError(400, "", "", error.what());
    }
  };
  try {
    for (AnswerRequest& answer : asked.answers) submit(std::move(answer));
    delivery->begin(ids, std::move(asked.heartbeat));
    reply->on_gone([cancel_all, ids] { cancel_all(ids); });
  } catch (...) {
    cancel_all(ids);
    throw;
  }
}

}  // namespace outrider
