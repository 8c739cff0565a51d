#include "server/server.h"

#include <utility>

#include "base/blocked_signals.h"
#include "http/error_body.h"
#include "server/missing_routes.h"

namespace outrider {
namespace {

constexpr std::chrono::milliseconds kWait{10};
constexpr int kLastWords = 100;  // waits for clients to take what they are told at the end

// `routes`, and after them routes that refuse every other request: status 503 and this message.
std::vector<HttpRoute> and_refusals(std::vector<HttpRoute> routes, const char* message) {
  const auto refuse = [message](const HttpRequest& request,
                                const std::shared_ptr<HttpReply>& reply) {
    reply->send(error_response(request.path, 503, message));
  };
  routes.push_back({"GET", "/*", refuse});
  routes.push_back({"POST", "/*", refuse});
  return routes;
}

HttpServerOptions with_missing_routes(HttpServerOptions options) {
  options.instead_of = instead_of;
  return options;
}

}  // namespace

Server::Server(HttpServerOptions options, std::string version)
    : status_(status_routes({.version = std::move(version), .state = [this] { return state(); }})),
      http_(with_missing_routes(std::move(options)), and_refusals(status_, "Loading model")) {
  http_.start();
}

Server::~Server() {
  stop();
}

void Server::serve(std::vector<HttpRoute> status, std::vector<HttpRoute> routes,
                   Scheduler& scheduler) {
  CHECK(!scheduler_);
  scheduler_ = &scheduler;
  status_ = std::move(status);
  routes.insert(routes.end(), status_.begin(), status_.end());
  http_.set_routes(std::move(routes));
  state_ = ServerState::ready;
  const BlockedSignals blocked;
  engine_thread_ = std::thread([this] {
    try {
      scheduler_->run();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  });
}

bool Server::drain(std::chrono::milliseconds wait_max, const std::function<bool()>& goes_on) {
  state_ = ServerState::draining;
  http_.set_routes(and_refusals(status_, "The server is shutting down"));
  const auto end = std::chrono::steady_clock::now() + wait_max;
  while (http_.n_in_progress() > 0) {
    if (std::chrono::steady_clock::now() >= end || !goes_on()) return false;
    std::this_thread::sleep_for(kWait);
  }
  return true;
}

void Server::stop() {
  if (scheduler_) scheduler_->stop();
  if (engine_thread_.joinable()) engine_thread_.join();
  scheduler_ = nullptr;  // which may be gone at the next call
  for (int i = 0; i < kLastWords && http_.n_in_progress() > 0; ++i)
    std::this_thread::sleep_for(kWait);
  http_.stop();
}

std::exception_ptr Server::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace outrider
