// A reply that keeps what a route says, for tests without a network.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "server/http.h"

namespace outrider {

// One thread.
class FakeReply final : public HttpReply {
 public:
  void send(HttpResponse response) override { sent = std::move(response); }
  void begin_stream(std::string heartbeat) override { stream_heartbeat = std::move(heartbeat); }
  void write(std::string text) override { written += text; }
  void end() override { ended = true; }
  void on_gone(std::function<void()> gone) override { call_when_gone = std::move(gone); }

  std::optional<HttpResponse> sent;
  std::optional<std::string> stream_heartbeat;  // something: a stream began
  std::string written;
  bool ended = false;
  std::function<void()> call_when_gone;
};

}  // namespace outrider
