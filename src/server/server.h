// The life of a server: its port opens before the model is loaded, so that whoever waits for it can
// ask /health; then it serves; and it drains before it ends.

#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/scheduler.h"
#include "http/server.h"
#include "server/status_routes.h"

namespace outrider {

class Server {
 public:
  // Opens the port. Until serve(), /health and all else answer 503. `version` is the program's.
  // Throws Error.
  Server(HttpServerOptions options, std::string version);
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return http_.port(); }
  bool is_loopback() const { return http_.is_loopback(); }

  // Of the port that was opened. Any thread.
  ServerState state() const { return state_; }

  // From now on these routes answer, and the scheduler works on a thread of its own. It is borrowed
  // and must live until stop() returns. `status` are routes that answer while the server drains,
  // too. Once.
  void serve(std::vector<HttpRoute> status, std::vector<HttpRoute> routes, Scheduler& scheduler);

  // Refuses new requests with 503 and waits for those in progress: `wait_max` at most, and only
  // while goes_on() is true, which is called every 10 ms. False if some are still in progress.
  bool drain(std::chrono::milliseconds wait_max, const std::function<bool()>& goes_on);
  // Answers in progress are cancelled, their clients are told, and the port is closed.
  void stop();

  // What ended the scheduler's thread, which is a failure of the server.
  std::exception_ptr failure() const;

 private:
  std::atomic<ServerState> state_ = ServerState::loading;
  std::vector<HttpRoute> status_;
  HttpServer http_;
  Scheduler* scheduler_ = nullptr;
  std::thread engine_thread_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace outrider
