#include "http/server.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "http/connection.h"
#include "http/router.h"

namespace outrider {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using BoostError = boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<tcp, Strand>;

// Connections beyond the limit that are told so at the same time; those beyond them are just
// closed.
constexpr std::size_t kRefusedConnections = 64;
// Left for files of the rest of the process, of those that it may open.
constexpr std::size_t kOtherFiles = 128;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Raises the limit of open files as far as the process may, and returns it.
std::size_t raise_file_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return SIZE_MAX;
  if (limit.rlim_cur != limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

// A child with a copy of a socket would keep the connection, or the port, open.
template <typename AnySocket>
void keep_from_children(AnySocket& socket) {
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

// A machine that lost power or its network ends no connection. It is gone once it acknowledges
// nothing for so long; where nothing is to be sent, the system asks it whether it is there.
// Accepted connections inherit this.
void notice_lost_machines(Acceptor& acceptor, std::chrono::milliseconds wait) {
  const auto set = [&](int level, int option, std::int64_t value) {
    const int number = static_cast<int>(value);
    ::setsockopt(acceptor.native_handle(), level, option, &number, sizeof number);
  };
  const auto seconds = std::max<std::int64_t>(1, wait / std::chrono::seconds(1));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max<std::int64_t>(1, seconds / 3));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, wait.count());
}

[[noreturn]] void cannot_listen(const HttpServerOptions& options, const BoostError& error) {
  const bool is_v6 = options.host.find(':') != std::string::npos;
  const std::string where =
      fmt::format("{}:{}", is_v6 ? "[" + options.host + "]" : options.host, options.port);
  if (error == asio::error::address_in_use) {
    throw Error("{}: cannot listen: another program uses the port; end it or choose another port",
                where);
  }
  if (error == asio::error::access_denied) {
    throw Error("{}: cannot listen: ports below 1024 are root's; choose another port", where);
  }
  if (error == boost::system::errc::address_not_available) {
    throw Error(
        "{}: cannot listen: no interface of this machine has the address; use 127.0.0.1 for "
        "this machine alone, 0.0.0.0 for all interfaces",
        where);
  }
  throw Error("{}: cannot listen: {}; use an address of this machine, such as 127.0.0.1", where,
              error.message());
}

// What clients may mean by the name. "localhost" is both, as some try ::1 first and give up then.
std::vector<asio::ip::address> addresses_of(const HttpServerOptions& options) {
  if (options.host == "localhost")
    return {asio::ip::address_v4::loopback(), asio::ip::address_v6::loopback()};
  asio::io_context unused;
  BoostError error;
  const auto found = tcp::resolver(unused).resolve(options.host, "", tcp::resolver::passive, error);
  if (error) cannot_listen(options, error);
  std::vector<asio::ip::address> addresses;
  for (const auto& entry : found) addresses.push_back(entry.endpoint().address());
  return addresses;
}

void open_port(Acceptor& acceptor, const tcp::endpoint& endpoint, std::chrono::milliseconds stall,
               BoostError& error) {
  const auto unless_failed = [&](auto step) {
    if (!error) step();
  };
  error = {};
  acceptor.open(endpoint.protocol(), error);
  unless_failed([&] { keep_from_children(acceptor); });
  unless_failed([&] { notice_lost_machines(acceptor, stall); });
  unless_failed([&] { acceptor.set_option(asio::socket_base::reuse_address(true), error); });
  // "::" means IPv4, too.
  if (endpoint.address().is_v6())
    unless_failed([&] { acceptor.set_option(asio::ip::v6_only(false), error); });
  unless_failed([&] { acceptor.bind(endpoint, error); });
  unless_failed([&] { acceptor.listen(asio::socket_base::max_listen_connections, error); });
}

}  // namespace

struct HttpServer::State {
  State(HttpServerOptions options, std::vector<HttpRoute> routes)
      : options(std::move(options)), router(std::move(routes)), io(this->options.n_threads) {}

  // All of them on one port. An address that the machine does not have may be missing as long as
  // there is another: many machines have no IPv6.
  void open_ports() {
    const std::vector<asio::ip::address> addresses = addresses_of(options);
    // A port that the system chose for the first address may be in use at the second.
    for (int attempts_left = options.port == 0 ? 16 : 1; acceptors.empty(); --attempts_left) {
      port = options.port;
      BoostError error;
      for (const asio::ip::address& address : addresses) {
        auto acceptor = std::make_unique<Acceptor>(asio::make_strand(io));
        BoostError problem;
        open_port(*acceptor, {address, static_cast<std::uint16_t>(port)}, options.times.write_stall,
                  problem);
        if (!problem) {
          port = acceptor->local_endpoint().port();
          acceptors.push_back(std::move(acceptor));
        } else if (!error || problem == asio::error::address_in_use) {
          error = problem;
        }
      }
      if (error == asio::error::address_in_use || acceptors.empty()) {
        acceptors.clear();
        if (attempts_left == 1) cannot_listen(options, error);
      }
    }
  }

  bool is_loopback() const {
    for (const auto& acceptor : acceptors)
      if (!acceptor->local_endpoint().address().is_loopback()) return false;
    return true;
  }

  // What a thread of the server does.
  static void run(asio::io_context& io) {
    for (;;) {
      try {
        io.run();
        return;
      } catch (const std::exception&) {  // out of memory, in a step that nobody waits for
      }
    }
  }

  void accept(Acceptor& acceptor) {
    acceptor.async_accept(asio::make_strand(io), [&](BoostError error, Socket socket) {
      if (!acceptor.is_open()) return;
      if (error) return pause(acceptor);
      try {
        add_connection(std::move(socket));
      } catch (const std::exception&) {  // out of memory: without this connection
      }
      accept(acceptor);
    });
  }

  // Without free files, accepting would fail again at once, for ever.
  void pause(Acceptor& acceptor) {
    const auto timer = std::make_shared<asio::steady_timer>(acceptor.get_executor(), kAcceptPause);
    timer->async_wait([this, &acceptor, timer](BoostError) {
      if (acceptor.is_open()) accept(acceptor);
    });
  }

  void add_connection(Socket socket) {
    keep_from_children(socket);
    const std::lock_guard lock(mutex);
    const std::size_t n_connections = connections.size();
    if (context->is_draining || n_connections >= n_connections_max + kRefusedConnections) return;
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), *context);
    connections.emplace(connection.get(), connection);
    if (n_connections < n_connections_max) {
      connection->start();
    } else {
      connection->start_refused();
    }
  }

  void remove_connection(HttpConnection* connection) {
    const std::lock_guard lock(mutex);
    connections.erase(connection);
    if (connections.empty()) no_connections.notify_all();
  }

  const HttpServerOptions options;
  CurrentRouter router;
  std::optional<Guards> guards;
  std::optional<ConnectionContext> context;  // once started
  int port = 0;
  std::size_t n_connections_max = 0;

  std::mutex mutex;  // guards connections
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections;
  std::condition_variable no_connections;

  using Work = asio::executor_work_guard<asio::io_context::executor_type>;
  asio::io_context io, long_requests;
  std::optional<Work> work, long_work;
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  std::vector<std::thread> threads;
  std::thread long_thread;  // of long_requests
};

HttpServer::HttpServer(HttpServerOptions options, std::vector<HttpRoute> routes) {
  if (options.port < 0 || options.port > 65535)
    throw Error("port {}: expected 0 to 65535", options.port);
  if (options.n_threads < 1) throw Error("{} threads: the server needs one", options.n_threads);
  state_ = std::make_unique<State>(std::move(options), std::move(routes));
}

HttpServer::~HttpServer() {
  stop();
}

void HttpServer::start() {
  State& state = *state_;
  CHECK(!state.context);
  state.open_ports();
  state.guards.emplace(state.options.guards, state.is_loopback());
  const std::size_t files = raise_file_limit();
  const std::size_t reserved = kRefusedConnections + kOtherFiles;
  state.n_connections_max =
      std::min(state.options.limits.n_connections, files > reserved ? files - reserved : 1);
  state.context.emplace(
      state.options, state.router, *state.guards, state.long_requests,
      [&state](HttpConnection* connection) { state.remove_connection(connection); });
  state.work.emplace(state.io.get_executor());
  state.long_work.emplace(state.long_requests.get_executor());
  const BlockedSignals blocked;
  try {
    for (int i = 0; i < state.options.n_threads; ++i)
      state.threads.emplace_back([&state] { State::run(state.io); });
    state.long_thread = std::thread([&state] { State::run(state.long_requests); });
  } catch (const std::system_error& error) {
    throw Error("the server cannot start {} threads: {}", state.options.n_threads, error.what());
  }
  for (const auto& acceptor : state.acceptors)
    asio::post(acceptor->get_executor(),
               [&state, opened = acceptor.get()] { state.accept(*opened); });
}

void HttpServer::set_routes(std::vector<HttpRoute> routes) {
  state_->router.set(std::move(routes));
}

int HttpServer::port() const {
  return state_->port;
}

bool HttpServer::is_loopback() const {
  return state_->is_loopback();
}

void HttpServer::stop_accepting() {
  State& state = *state_;
  if (state.threads.empty() || state.context->is_draining.exchange(true)) return;
  for (const auto& acceptor : state.acceptors) {
    std::promise<void> closed;
    asio::post(acceptor->get_executor(), [&] {
      BoostError ignored;
      acceptor->close(ignored);
      closed.set_value();
    });
    closed.get_future().wait();
  }
  const std::lock_guard lock(state.mutex);
  for (const auto& [connection, owner] : state.connections) connection->drain();
}

int HttpServer::n_in_progress() const {
  return state_->context ? state_->context->n_in_progress.load() : 0;
}

void HttpServer::stop() {
  State& state = *state_;
  stop_accepting();
  if (state.threads.empty()) return;
  {
    std::unique_lock lock(state.mutex);
    for (const auto& [connection, owner] : state.connections) connection->stop();
    state.no_connections.wait(lock, [&] { return state.connections.empty(); });
  }
  // First the one whose requests go on at the others.
  state.long_work.reset();
  if (state.long_thread.joinable()) state.long_thread.join();
  state.work.reset();
  for (std::thread& thread : state.threads) thread.join();
  state.threads.clear();
}

}  // namespace outrider
