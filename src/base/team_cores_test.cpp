#include "base/team_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/threads.h"

namespace outrider {
namespace {

// A busy thread on that processor, of equal right, for as long as this lives.
class Neighbour {
 public:
  explicit Neighbour(int processor)
      : thread_([processor](const std::stop_token& stop) {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(processor, &one);
          sched_setaffinity(0, sizeof one, &one);
          while (!stop.stop_requested()) {
          }
        }) {}

 private:
  std::jthread thread_;
};

// The scheduler takes the processor from its thread for milliseconds, again and again, while the
// others have nothing to do but wait: one of them gives it its own.
TEST(TeamCores, AThreadThatWaitsChangesPlacesWithOneThatIsKeptFromRunning) {
  const std::vector<int> processors = allowed_processors();
  if (processors.size() < 2) GTEST_SKIP() << "one processor";
  ThreadTeam team(static_cast<int>(processors.size()));
  std::vector<int> now(processors.size());
  std::set<int> of_the_last;
  {
    const Neighbour neighbour(processors.back());
    constexpr int kMostJobs = 30'000;  // of some 0.2 ms: the scheduler's turns are shorter by far
    for (int job = 0; job < kMostJobs && of_the_last.size() < 2; ++job) {
      team.run([&](int thread) {
        for (std::atomic<int> i = 0; i < 30'000; ++i) continue;
        now[static_cast<std::size_t>(thread)] = sched_getcpu();
      });
      of_the_last.insert(now.back());
    }
  }
  EXPECT_EQ(of_the_last.size(), 2u);
  // Seats are still one a processor, though another process may make two threads change in a job.
  bool apart = false;
  for (int job = 0; job < 100 && !apart; ++job) {
    team.run([&](int thread) { now[static_cast<std::size_t>(thread)] = sched_getcpu(); });
    apart = std::set<int>(now.begin(), now.end()).size() == processors.size();
  }
  EXPECT_TRUE(apart);
  EXPECT_EQ(allowed_processors(), processors);
}

}  // namespace
}  // namespace outrider
