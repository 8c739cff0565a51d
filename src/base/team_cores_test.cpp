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

// A busy thread of the same priority on that processor, as long as this lives.
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

// The scheduler repeatedly gives the last thread's processor to the neighbour for milliseconds. The
// others wait meanwhile, and one of them exchanges processors with it.
TEST(TeamCores, AWaitingThreadExchangesProcessorsWithOneThatCannotRun) {
  const std::vector<int> processors = allowed_processors();
  if (processors.size() < 2) GTEST_SKIP() << "one processor";
  ThreadTeam team(static_cast<int>(processors.size()));
  std::vector<int> now(processors.size());
  std::set<int> of_the_last;
  {
    const Neighbour neighbour(processors.back());
    constexpr int kMostJobs =
        30'000;  // of some 0.2 ms: far longer than the scheduler's time slices
    for (int job = 0; job < kMostJobs && of_the_last.size() < 2; ++job) {
      team.run([&](int thread) {
        for (std::atomic<int> i = 0; i < 30'000; ++i) continue;
        now[static_cast<std::size_t>(thread)] = sched_getcpu();
      });
      of_the_last.insert(now.back());
    }
  }
  EXPECT_EQ(of_the_last.size(), 2u);
  // Each thread still has a processor of its own, but another process may cause an exchange during
  // a job.
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
