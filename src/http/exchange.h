// One response on its way from the threads of a route to the connection's strand.

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/http.h"

namespace outrider {

// Who sends the response. Both are called while the exchange is locked, so they may only post.
class ResponseSender {
 public:
  virtual void exchange_changed() = 0;
  // The route wrote more than the client reads.
  virtual void exchange_overflowed() = 0;

 protected:
  ~ResponseSender() = default;
};

class Exchange {
 public:
  // `sender` must live until leave().
  Exchange(ResponseSender& sender, std::size_t unsent_bytes_max)
      : sender_(&sender), unsent_bytes_max_(unsent_bytes_max) {}

  // The route's side: see HttpReply.
  void send(HttpResponse response);
  void send_made(std::function<HttpResponse()> make);
  void begin_stream(std::string heartbeat);
  void write(std::string_view text);
  void end();
  void on_gone(std::function<void()> gone);
  // The route cannot go on: its response is `response`, or a stream breaks off; nothing changes if
  // the response is complete. What it says afterwards is not heard.
  void fail(HttpResponse response);

  // The sender's side.
  struct Piece {
    std::optional<HttpResponse> response;    // the whole response
    std::function<HttpResponse()> make;      // makes the whole response
    std::optional<std::string> stream_head;  // a stream begins, with this heartbeat
    std::string text;                        // of the stream
    bool is_last = false;
    bool breaks_off = false;  // a stream without its end
  };
  // What came since the last call. The text of the last piece counts as sent now.
  Piece take();
  // The route has given its whole response.
  bool is_complete() const;
  // Nobody would read one.
  bool is_gone() const;
  // Nobody sends any more; whoever waits for the response's end learns that the client is gone.
  void leave();

 private:
  enum class Stage { waiting, streaming, complete, gone };

  bool is_over() const { return stage_ == Stage::gone || has_failed_; }
  void change();
  void complete(std::unique_lock<std::mutex> lock);

  mutable std::mutex mutex_;  // guards what follows
  ResponseSender* sender_;
  const std::size_t unsent_bytes_max_;
  Stage stage_ = Stage::waiting;
  bool is_announced_ = false;  // the sender was told and has not taken yet
  bool has_overflowed_ = false, has_failed_ = false;
  Piece next_;
  std::size_t taken_bytes_ = 0;
  std::function<void()> gone_;
};

// The HttpReply that a route holds. Dropped before the response is complete, it fails the exchange
// with if_dropped.
class ExchangeReply final : public HttpReply {
 public:
  ExchangeReply(std::shared_ptr<Exchange> exchange, HttpResponse if_dropped)
      : exchange_(std::move(exchange)), if_dropped_(std::move(if_dropped)) {}
  ~ExchangeReply() override { exchange_->fail(std::move(if_dropped_)); }

  void send(HttpResponse response) override { exchange_->send(std::move(response)); }
  void send_made(std::function<HttpResponse()> make) override {
    exchange_->send_made(std::move(make));
  }
  void begin_stream(std::string heartbeat) override {
    exchange_->begin_stream(std::move(heartbeat));
  }
  void write(std::string text) override { exchange_->write(text); }
  void end() override { exchange_->end(); }
  void on_gone(std::function<void()> gone) override { exchange_->on_gone(std::move(gone)); }

 private:
  std::shared_ptr<Exchange> exchange_;
  HttpResponse if_dropped_;
};

}  // namespace outrider
