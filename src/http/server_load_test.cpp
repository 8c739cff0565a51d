// Many connections, connections that break, limits of the process, the server's beginning and end.

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/sanitizers.h"
#include "http/server_test.h"

namespace outrider {
namespace {

using namespace std::chrono_literals;

using HttpServerLoadTest = HttpServerTest;

// Each byte may be the last that arrives, or that the client takes.
TEST_F(HttpServerLoadTest, ConnectionsThatBreakAnywhere) {
  start();
  const std::string request =
      "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4\r\nbody\r\n0\r\n\r\n";
  const auto break_off = [](Client& client, std::size_t round) {
    if (round % 2 == 0) {
      client.reset();
    } else {
      client.close();
    }
  };
  for (std::size_t n = 0; n < request.size(); ++n) {
    Client client = connect();
    client.send(request.substr(0, n));
    break_off(client, n);
  }
  std::size_t size = 0;
  for (std::size_t n = 0; size == 0 || n <= size; ++n) {
    Client client = connect();
    client.send(get("/stream?abcdef"));
    if (n == 0) size = client.receive_until("0\r\n\r\n").size();
    client.receive_bytes(n);
    break_off(client, n);
  }
  EXPECT_GT(size, 100u);
  for (std::size_t n = 0; n <= request.size(); n += 10) {
    Client client = connect();
    client.send(request);
    const auto reply = held_.take();
    client.send(request.substr(0, n));
    if (n % 3 == 0) reply->begin_stream("");
    break_off(client, n);
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  EXPECT_EQ(ask(get("/health")).body, "fine");
  server_->stop();  // waits for every connection
}

TEST_F(HttpServerLoadTest, ManyWritersAndClientsThatGo) {
  HttpServerOptions o = options();
  o.times.heartbeat = 1ms;
  start(o);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int kWriters = 4, kWrites = 300;
  for (int round = 0; round < 40; ++round) {
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    reply->begin_stream("");
    const bool goes = round % 2 == 1;
    std::vector<std::jthread> writers;
    for (int w = 0; w < kWriters; ++w) {
      writers.emplace_back([&, w] {
        for (int i = 0; i < kWrites; ++i) reply->write(std::string(1, static_cast<char>('a' + w)));
      });
    }
    if (goes) {
      client.receive_bytes(random() % 1000);
      client.reset();
    }
    for (std::jthread& writer : writers) writer.join();
    reply->end();
    if (goes) continue;
    const Response response = client.receive_response();
    EXPECT_TRUE(response.is_whole);
    for (int w = 0; w < kWriters; ++w)
      EXPECT_EQ(std::ranges::count(response.body, static_cast<char>('a' + w)), kWrites);
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
}

// Many clients that each send less than one may do not take all memory.
TEST_F(HttpServerLoadTest, BodiesTogetherHaveALimit) {
  HttpServerOptions o = options();
  o.limits.all_bodies_bytes = 100'000;
  start(o);
  const std::string whole = post("/echo", std::string(40'000, 'a'));
  std::vector<Client> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(connect());
    EXPECT_TRUE(clients.back().send(whole.substr(0, whole.size() - 1)));
  }
  // The others' bodies have come once a third one is too much.
  EXPECT_TRUE(wait_until([&] { return ask(whole).status == 503; }));
  const Response refusal = ask(whole);
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.header("retry-after"), "1");
  EXPECT_TRUE(clients[0].send("a"));
  EXPECT_EQ(clients[0].receive_response().status, 200);
  EXPECT_EQ(ask(whole).status, 200);
  clients.pop_back();  // in the middle of its body
  EXPECT_TRUE(wait_until([&] {
    Client two = connect();
    return two.send(whole.substr(0, whole.size() - 1)) && ask(whole).status == 200 &&
           two.send("a") && two.receive_response().status == 200;
  }));
}

// Reading a long prompt takes as long as many short responses.
TEST_F(HttpServerLoadTest, OthersDoNotWaitForLongRequests) {
  HttpServerOptions o = options();
  o.n_threads = 1;
  o.limits.all_bodies_bytes = 2'000'000;
  start(o);
  const std::string blocking = post("/block", std::string(600'000, 'a'));
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    EXPECT_TRUE(clients.back().send(blocking));
    EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == i + 1; }));
  }
  EXPECT_TRUE(wait_until([&] { return n_blocked_ == 1; }));
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(post("/echo", std::string(200'000, 'a'))).status, 200);
  EXPECT_EQ(ask(blocking).status, 503);  // those that wait count, too
  unblock();
  for (Client& client : clients) {
    const Response response = client.receive_response();
    EXPECT_EQ(response.body, "600000");
    EXPECT_EQ(client.ask(get("/health")).status, 200);
    EXPECT_EQ(client.ask(blocking).status, 200);
  }
  server_.reset();
}

// A route that is running ends before the server does; the next one is not called any more.
TEST_F(HttpServerLoadTest, StopsAfterALongRequest) {
  start();
  Client client = connect(), next = connect();
  EXPECT_TRUE(client.send(post("/block", std::string(600'000, 'a'))));
  EXPECT_TRUE(wait_until([&] { return n_blocked_ == 1; }));
  EXPECT_TRUE(next.send(post("/block", std::string(600'000, 'a'))));
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 2; }));
  std::atomic<bool> is_stopped = false;
  std::thread stops([&] {
    server_->stop();
    is_stopped = true;
  });
  EXPECT_EQ(client.receive_all(), "");  // closed at once
  EXPECT_EQ(next.receive_all(), "");
  EXPECT_FALSE(is_stopped);
  unblock();
  stops.join();
  EXPECT_EQ(n_blocked_, 1);
}

// What follows a long request on its connection is its own.
TEST_F(HttpServerLoadTest, LongRequestsMayFollowEachOther) {
  start();
  unblock();
  for (int i = 0; i < 20; ++i) {
    Client client = connect();
    const std::string request = post("/block", std::string(600'000, 'a'));
    EXPECT_TRUE(client.send(request + request));
    client.end_input();
    EXPECT_EQ(client.receive_response().body, "600000");
    EXPECT_EQ(client.receive_response().body, "600000");
  }
}

TEST_F(HttpServerLoadTest, ConnectionsBeyondTheLimitAreRefused) {
  HttpServerOptions o = options();
  o.limits.n_connections = 3;
  start(o);
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    EXPECT_EQ(clients.back().ask(get("/health")).status, 200);
  }
  const Response refusal = ask(get("/health"));
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.header("retry-after"), "1");
  EXPECT_EQ(refusal.header("connection"), "close");
  EXPECT_EQ(clients[1].ask(get("/health")).status, 200);
  clients.pop_back();
  EXPECT_TRUE(wait_until([&] { return ask(get("/health")).status == 200; }));
}

// Half of the files are the clients'.
std::size_t files_at_most() {
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST_F(HttpServerLoadTest, ThousandsOfConnections) {
  start();  // raises the limit
  const std::size_t n_clients = std::min<std::size_t>(3000, (files_at_most() - 400) / 2);
  if (n_clients < 2000) GTEST_SKIP() << "the process may not open enough files";
  std::vector<Client> clients;
  for (std::size_t i = 0; i < n_clients; ++i) clients.push_back(connect());
  for (int round = 0; round < 2; ++round) {
    for (Client& client : clients) client.send(get("/stream?abc") + get("/health"));
    for (Client& client : clients) {
      ASSERT_EQ(client.receive_response().body, "abc");
      ASSERT_EQ(client.receive_response().body, "fine");
    }
  }
  for (std::size_t i = 0; i < n_clients; ++i) clients[i].send(get("/hold"));
  std::vector<std::shared_ptr<HttpReply>> replies;
  for (std::size_t i = 0; i < n_clients; ++i) replies.push_back(held_.take());
  for (const auto& reply : replies) reply->begin_stream("");
  for (const auto& reply : replies) reply->write("x");
  for (const auto& reply : replies) reply->end();
  for (Client& client : clients) ASSERT_EQ(client.receive_response().body, "x");
}

std::size_t resident_bytes() {
  std::size_t n_pages = 0;
  std::ifstream("/proc/self/statm") >> n_pages >> n_pages;
  return n_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(HttpServerLoadTest, IdleConnectionsCostLittle) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "the sanitizer takes memory of its own";
  start();
  const std::string request = post("/echo", std::string(200000, 'a'));
  // What the first ones leave to the others is not counted.
  std::vector<Client> clients;
  std::size_t before = 0;
  const std::size_t n_clients = std::min<std::size_t>(1100, (files_at_most() - 400) / 2);
  for (std::size_t i = 0; i < n_clients; ++i) {
    if (i == 100) before = resident_bytes();
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().ask(request).is_whole);
  }
  const std::size_t after = resident_bytes();
  const double each = (static_cast<double>(after) - static_cast<double>(before)) /
                      static_cast<double>(n_clients - 100);
  RecordProperty("bytes_per_connection", static_cast<int>(each));
  EXPECT_LT(each, 16 << 10);
}

double cpu_seconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The threads share their cores with those that compute. A thread that spins would take all of the
// time that passes; on a busy machine less, and then this test sees nothing.
void expect_sleep() {
  const double before = cpu_seconds();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(cpu_seconds() - before, 0.15);
}

TEST_F(HttpServerLoadTest, SleepsWhenThereIsNothingToDo) {
  start();
  expect_sleep();
  Client idle = connect(), waiting = connect(), ahead = connect(), silent = connect();
  EXPECT_EQ(idle.ask(get("/health")).status, 200);
  waiting.send(get("/hold"));
  const auto first = held_.take();
  ahead.send(get("/hold") + std::string(100000, 'x'));
  const auto second = held_.take();
  silent.send(get("/hold"));
  const auto third = held_.take();
  third->begin_stream("beat");
  expect_sleep();
}

TEST_F(HttpServerLoadTest, WithoutFreeFilesConnectionsWait) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "the sanitizer needs files of its own";
  start();
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Client first = connect();
  EXPECT_EQ(first.ask(get("/health")).status, 200);
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) clients.emplace_back(AF_INET, nullptr);
  const int free_file = ::dup(0);
  ::close(free_file);
  const rlimit used_up = {.rlim_cur = static_cast<rlim_t>(free_file), .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &used_up), 0);
  for (Client& client : clients) {
    client.connect(server_->port());
    client.send(get("/health"));
  }
  expect_sleep();
  EXPECT_EQ(first.ask(get("/health")).status, 200);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (Client& client : clients) EXPECT_EQ(client.receive_response().status, 200);
}

TEST_F(HttpServerLoadTest, RaisesTheLimitOfFiles) {
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few = {.rlim_cur = 64, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  start();
  EXPECT_EQ(files_at_most(), limit.rlim_max);
}

TEST_F(HttpServerLoadTest, ChildrenInheritNothing) {
  start();
  Client client = connect();
  EXPECT_EQ(client.ask(get("/health")).status, 200);
  int n_sockets = 0;
  for (int file = 3; file < 100; ++file) {
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    ++n_sockets;
    EXPECT_EQ(::fcntl(file, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_GE(n_sockets, 3);
}

TEST_F(HttpServerLoadTest, PortsThatCannotBeHad) {
  start();
  struct Case {
    const char* name;
    std::string host;
    int port;
    const char* message;
  };
  const Case cases[] = {
      {"in use", "127.0.0.1", server_->port(), "another program uses the port"},
      {"in use at one of two addresses", "localhost", server_->port(), "another program uses"},
      {"not ours", "192.0.2.1", 0, "no interface of this machine has the address"},
      {"no address", "256.1.1.1", 0, "cannot listen"},
      {"no name", "no.such.name.invalid", 0, "cannot listen"},
      {"negative", "127.0.0.1", -1, "expected 0 to 65535"},
      {"too large", "127.0.0.1", 65536, "expected 0 to 65535"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    HttpServerOptions o;
    o.host = c.host;
    o.port = c.port;
    try {
      HttpServer server(o, {});
      server.start();
      ADD_FAILURE() << "it was opened";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  HttpServerOptions o;
  o.n_threads = 0;
  EXPECT_THROW(HttpServer(o, {}), Error);
}

TEST_F(HttpServerLoadTest, HostsOfBothFamilies) {
  const int v6 = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has_v6 =
      v6 >= 0 && ::bind(v6, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  if (v6 >= 0) ::close(v6);
  struct Case {
    const char* host;
    bool v4, v6;
  };
  const Case cases[] = {{"127.0.0.1", true, false},
                        {"0.0.0.0", true, false},
                        {"localhost", true, true},
                        {"::1", false, true},
                        {"::", true, true}};
  for (const Case& c : cases) {
    if (!has_v6 && !c.v4) continue;
    if (!has_v6 && std::string(c.host) == "::") continue;
    SCOPED_TRACE(c.host);
    HttpServerOptions o = options();
    o.host = c.host;
    start(o);
    const auto answers = [&](const char* address) {
      Client client(server_->port(), address);
      return client.is_open() && client.ask(get("/health")).status == 200;
    };
    EXPECT_EQ(answers("127.0.0.1"), c.v4);
    EXPECT_EQ(answers("::1"), c.v6 && has_v6);
  }
}

TEST_F(HttpServerLoadTest, Drains) {
  start();
  const int port = server_->port();
  Client fresh = connect(), idle = connect(), half = connect(), waiting = connect(),
         streaming = connect();
  EXPECT_EQ(idle.ask(get("/health")).status, 200);
  const std::string request = post("/echo", "body");
  half.send(request.substr(0, request.size() - 1));
  waiting.send(get("/hold") + get("/health"));
  const auto first = held_.take();
  streaming.send(get("/hold"));
  const auto second = held_.take();
  second->begin_stream("");
  streaming.receive_head();
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 2; }));

  server_->stop_accepting();
  EXPECT_EQ(idle.receive_all(), "");
  EXPECT_EQ(fresh.receive_all(), "");
  EXPECT_FALSE(Client(port).is_open());
  EXPECT_EQ(server_->n_in_progress(), 2);

  half.send("y");
  const Response last = half.receive_response();
  EXPECT_EQ(last.body, "/echo? body");
  EXPECT_EQ(last.header("connection"), "close");
  EXPECT_EQ(half.receive_all(), "");

  first->send({.body = "response"});
  const Response response = waiting.receive_response();
  EXPECT_EQ(response.body, "response");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_EQ(waiting.receive_all(), "");

  second->write("x");
  EXPECT_EQ(streaming.receive_until("x\r\n"), "1\r\nx\r\n");
  second->end();
  EXPECT_EQ(streaming.receive_all(), "0\r\n\r\n");
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  EXPECT_EQ(held_.n_gone(), 0);
  server_->stop();
  server_->stop();
}

TEST_F(HttpServerLoadTest, StopsAndStartsAgainOnThePort) {
  int port = 0;
  for (int round = 0; round < 3; ++round) {
    HttpServerOptions o = options();
    o.port = port;
    start(o);
    port = server_->port();
    Client waiting = connect(), streaming = connect(), idle = connect();
    EXPECT_EQ(idle.ask(get("/health")).status, 200);
    waiting.send(get("/hold"));
    const auto first = held_.take();
    streaming.send(get("/hold"));
    const auto second = held_.take();
    second->begin_stream("beat");
    server_.reset();
    EXPECT_EQ(held_.n_gone(), 2 * round + 2);
    EXPECT_EQ(waiting.receive_all(), "");
    EXPECT_FALSE(streaming.receive_response().is_whole);
    // Replies outlive the server.
    first->send({.body = "late"});
    second->write("late");
    second->end();
  }
  HttpServer never_started({}, {});
}

TEST_F(HttpServerLoadTest, StopsUnderLoad) {
  for (int round = 0; round < 20; ++round) {
    start();
    const int port = server_->port();
    std::atomic<bool> stops = false;
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        while (!stops) {
          Client client(port);
          for (int n = 0; n < 3 && client.is_open(); ++n)
            if (client.ask(n == 1 ? get("/stream?abc") : get("/health")).status != 200) break;
        }
      });
    }
    std::this_thread::sleep_for(3ms);
    server_.reset();
    stops = true;
    for (std::thread& client : clients) client.join();
  }
}

}  // namespace
}  // namespace outrider
