// A reply that keeps what a route says, for tests without a network.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/http.h"
#include "server/fields.h"

namespace outrider {

// One thread. Fails the test if a route says what it may not.
class FakeReply final : public HttpReply {
 public:
  void send(HttpResponse response) override {
    EXPECT_FALSE(sent || stream_heartbeat);
    sent = std::move(response);
  }
  void send_made(std::function<HttpResponse()> make) override {
    is_made = true;
    send(make());
  }
  void begin_stream(std::string heartbeat) override {
    EXPECT_FALSE(sent || stream_heartbeat);
    stream_heartbeat = std::move(heartbeat);
  }
  void write(std::string text) override {
    EXPECT_TRUE(stream_heartbeat && !ended);
    written += text;
  }
  void end() override {
    EXPECT_TRUE(stream_heartbeat && !ended);
    ended = true;
  }
  void on_gone(std::function<void()> gone) override { call_when_gone = std::move(gone); }

  Json json() const { return Json::parse(sent.value().body); }
  // Those of the stream, without the empty lines between them.
  std::vector<std::string> events() const {
    std::vector<std::string> events;
    for (std::size_t at = 0; at < written.size();) {
      const std::size_t end = written.find("\n\n", at);
      EXPECT_NE(end, written.npos);
      events.push_back(written.substr(at, end - at));
      at = end + 2;
    }
    return events;
  }

  std::optional<HttpResponse> sent;
  std::optional<std::string> stream_heartbeat;  // something: a stream began
  std::string written;
  bool ended = false, is_made = false;
  std::function<void()> call_when_gone;
};

}  // namespace outrider
