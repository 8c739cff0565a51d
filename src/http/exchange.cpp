#include "http/exchange.h"

#include <utility>

#include "base/error.h"

namespace outrider {

void Exchange::send(HttpResponse response) {
  std::unique_lock lock(mutex_);
  if (is_over()) return;
  CHECK(stage_ == Stage::waiting);
  next_.response = std::move(response);
  complete(std::move(lock));
}

void Exchange::send_made(std::function<HttpResponse()> make) {
  std::unique_lock lock(mutex_);
  if (is_over()) return;
  CHECK(stage_ == Stage::waiting);
  next_.make = std::move(make);
  complete(std::move(lock));
}

void Exchange::begin_stream(std::string heartbeat) {
  const std::lock_guard lock(mutex_);
  if (is_over()) return;
  CHECK(stage_ == Stage::waiting);
  stage_ = Stage::streaming;
  next_.stream_head = std::move(heartbeat);
  change();
}

void Exchange::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (is_over() || has_overflowed_) return;
  CHECK(stage_ == Stage::streaming);
  if (taken_bytes_ + next_.text.size() > unsent_bytes_max_) {
    has_overflowed_ = true;
    sender_->exchange_overflowed();
    return;
  }
  next_.text += text;
  change();
}

void Exchange::end() {
  std::unique_lock lock(mutex_);
  if (is_over()) return;
  CHECK(stage_ == Stage::streaming);
  complete(std::move(lock));
}

void Exchange::fail(HttpResponse response) {
  std::unique_lock lock(mutex_);
  has_failed_ = true;
  if (stage_ == Stage::waiting) {
    next_.response = std::move(response);
  } else if (stage_ == Stage::streaming) {
    next_.breaks_off = true;
  } else {
    return;
  }
  complete(std::move(lock));
}

void Exchange::on_gone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::complete) return;
    if (stage_ != Stage::gone) {
      CHECK(!gone_);
      gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

Exchange::Piece Exchange::take() {
  const std::lock_guard lock(mutex_);
  is_announced_ = false;
  taken_bytes_ = next_.text.size();
  return std::exchange(next_, {});
}

bool Exchange::is_gone() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::gone;
}

bool Exchange::is_complete() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::complete;
}

void Exchange::leave() {
  std::function<void()> gone;
  Piece unsent;  // which may hold the reply, whose end would lock again
  {
    const std::lock_guard lock(mutex_);
    sender_ = nullptr;
    unsent = std::exchange(next_, {});
    if (stage_ == Stage::complete) return;
    stage_ = Stage::gone;
    gone = std::exchange(gone_, nullptr);
  }
  if (gone) gone();
}

void Exchange::change() {
  if (is_announced_) return;
  is_announced_ = true;
  sender_->exchange_changed();
}

// What waits for the client's going may hold the reply, whose end would lock again.
void Exchange::complete(std::unique_lock<std::mutex> lock) {
  stage_ = Stage::complete;
  next_.is_last = true;
  const std::function<void()> gone = std::exchange(gone_, nullptr);
  change();
  lock.unlock();
}

}  // namespace outrider
