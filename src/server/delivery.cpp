#include "server/delivery.h"

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

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
    for (const auto& [index, event] : std::exchange(early_, {})) take(index, event);
  }

  void hear(int index, const AnswerEvent& event) {
    const std::lock_guard lock(mutex_);
    try {
      if (has_begun_)
        take(index, event);
      else
        early_.emplace_back(index, event);
    } catch (const std::exception&) {
      // No memory even to say so. When the last listener is gone, so is the reply: status 500.
    }
  }

 private:
  void take(int index, const AnswerEvent& event) {
    try {
      write(form_->push(index, event));
    } catch (const std::exception& error) {  // no memory
      failure_.emplace(500, "", "", error.what());
    }
    const bool has_enough = form_->has_enough(index);
    if (has_enough && !event.end) cancel_(ids_[static_cast<std::size_t>(index)]);
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

}  // namespace

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
    const int index = static_cast<int>(ids.size());
    try {
      ids.push_back(model.submit(std::move(answer), [delivery, index](const AnswerEvent& event) {
        delivery->hear(index, event);
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
