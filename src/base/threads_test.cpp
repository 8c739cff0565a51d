#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sanitizers.h"

namespace outrider {
namespace {

TEST(Share, PartsCoverEverythingOnce) {
  for (std::size_t count : {0u, 1u, 7u, 64u, 1000u}) {
    for (std::size_t parts : {1u, 2u, 3u, 7u}) {
      for (std::size_t grain : {1u, 4u, 16u}) {
        std::size_t next = 0;
        for (std::size_t part = 0; part < parts; ++part) {
          const Range range = share(count, part, parts, grain);
          EXPECT_EQ(range.begin, next);
          EXPECT_LE(range.begin, range.end);
          EXPECT_TRUE(range.end == count || range.end % grain == 0);
          next = range.end;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(ThreadTeam, IsSharedAmongItsHolders) {
  std::shared_ptr<ThreadTeam> first = ThreadTeam::shared(2);
  EXPECT_EQ(first->size(), 2);
  EXPECT_EQ(first, ThreadTeam::shared(2));
  EXPECT_NE(first, ThreadTeam::shared(3));
  const std::weak_ptr<ThreadTeam> gone = first;
  first.reset();
  EXPECT_TRUE(gone.expired());
}

// A caller that always comes back at once leaves others their turns.
TEST(ThreadTeam, CallersTakeTurns) {
  ThreadTeam team(2);
  std::atomic<bool> is_over = false;
  std::atomic<int> n_of_other = 0;
  std::thread other([&] {
    while (!is_over)
      team.run([&](int thread) {
        if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1)), ++n_of_other;
      });
  });
  while (n_of_other == 0) std::this_thread::yield();
  const int n_before = n_of_other;
  constexpr int kRuns = 50;
  for (int i = 0; i < kRuns; ++i) team.run([](int) {});
  EXPECT_LE(n_of_other - n_before, 2 * kRuns + 10);
  is_over = true;
  other.join();
}

TEST(ThreadTeam, SharesOutEachItemOnce) {
  for (const int n_threads : {1, 2, 3, 5}) {
    ThreadTeam team(n_threads);
    for (const std::size_t count : {0u, 1u, 2u, 7u, 100u}) {
      for (const std::size_t most : {1u, 5u}) {
        constexpr int kCalls = 50;
        std::vector<std::atomic<int>> times(count);
        team.run([&](int thread) {
          for (int call = 0; call < kCalls; ++call) {
            team.share_out(thread, count, most, [&](Range run) {
              for (std::size_t item = run.begin; item < run.end; ++item) ++times[item];
            });
            team.barrier();
          }
        });
        for (const std::atomic<int>& each : times) EXPECT_EQ(each, kCalls);
      }
    }
  }
}

TEST(ThreadTeam, RunsGetShorterTowardsTheEnd) {
  ThreadTeam team(1);
  std::vector<std::size_t> lengths;
  team.run([&](int thread) {
    team.share_out(thread, 18, 4, [&](Range run) { lengths.push_back(run.end - run.begin); });
  });
  EXPECT_EQ(lengths, (std::vector<std::size_t>{4, 4, 4, 3, 2, 1}));
}

TEST(ThreadTeam, WhoeverIsDoneTakesWhatOthersHaveNotBegun) {
  ThreadTeam team(2);
  constexpr std::size_t kCount = 20;
  std::vector<int> thread_of(kCount);
  std::atomic<std::size_t> done = 0;
  std::atomic<bool> has_begun = false;
  team.run([&](int thread) {
    team.share_out(thread, kCount, 1, [&](Range run) {
      thread_of[run.begin] = thread;
      // The first item of thread 1 takes until all others are done.
      if (thread == 1) has_begun = true;
      while (thread == 0 && !has_begun) std::this_thread::yield();
      while (thread == 1 && done < kCount - 1) std::this_thread::yield();
      ++done;
    });
  });
  std::vector<int> expected(kCount, 0);
  expected[kCount / 2] = 1;
  EXPECT_EQ(thread_of, expected);
}

TEST(ThreadTeam, CallersInSeveralThreadsTakeTurns) {
  ThreadTeam team(2);
  std::atomic<int> inside = 0, most = 0;
  const auto call = [&] {
    for (int i = 0; i < 200; ++i) {
      team.run([&](int thread) {
        if (thread == 0) most = std::max(most.load(), ++inside);
        team.barrier();
        if (thread == 0) --inside;
      });
    }
  };
  std::jthread other(call);
  call();
  other.join();
  EXPECT_EQ(most, 1);
}

// Signals are to interrupt the thread that waits for the keyboard; SIGBUS goes to whoever caused
// it.
TEST(ThreadTeam, ItsThreadsTakeNoSignals) {
  ThreadTeam team(3);
  std::vector<int> blocked(3), own_blocked(3);
  team.run([&](int thread) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked[thread] = sigismember(&mask, SIGINT);
    own_blocked[thread] = sigismember(&mask, SIGBUS);
  });
  EXPECT_EQ(blocked, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(own_blocked, (std::vector<int>{0, 0, 0}));
}

TEST(ThreadTeam, BarrierOrdersPhases) {
  for (int size : {1, 2, 5}) {
    ThreadTeam team(size);
    ASSERT_EQ(team.size(), size);
    std::vector<int> written(size, -1);
    std::atomic<int> mistakes = 0;
    for (int job = 0; job < 200; ++job) {
      team.run([&](int thread) {
        for (int phase = 0; phase < 5; ++phase) {
          written[thread] = job * 5 + phase;
          team.barrier();
          for (int other : written) mistakes += other != job * 5 + phase;
          team.barrier();
        }
      });
    }
    EXPECT_EQ(mistakes, 0);
  }
}

// What runs inside a barrier sees everything before it, and everything after it sees what it did.
TEST(ThreadTeam, BarrierRunsTheLastOnesWorkAlone) {
  for (int size : {1, 2, 5}) {
    ThreadTeam team(size);
    std::vector<int> written(size);
    int sum = 0;
    std::atomic<int> mistakes = 0;
    for (int job = 0; job < 100; ++job) {
      team.run([&](int thread) {
        std::span<const std::byte> soon;
        const auto add_up = [&] {
          for (int& other : written) sum += std::exchange(other, 0);
        };
        for (int phase = 1; phase < 6; ++phase) {
          written[thread] = phase;
          team.barrier(add_up, soon);
          mistakes += sum != phase * size;
          team.barrier([&] { sum = 0; }, soon);
        }
      });
    }
    EXPECT_EQ(mistakes, 0);
  }
}

// A team that takes all cores has one thread on each, and gives the caller its own back.
TEST(ThreadTeam, SpreadsOverAllCoresWhileItRuns) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int n_cores = CPU_COUNT(&before);
  ThreadTeam team(n_cores);
  std::vector<int> cores(n_cores);
  int n_apart = 0;  // threads may change cores within a job if another process takes one
  for (int job = 0; job < 10 || (job < 100 && n_apart == 0); ++job) {
    team.run([&](int thread) { cores[thread] = sched_getcpu(); });
    n_apart += std::set<int>(cores.begin(), cores.end()).size() == cores.size();
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }
  EXPECT_GT(n_apart, 0);
}

// Sleepers of the barrier, of the next run and of the end are woken.
TEST(ThreadTeam, WakesThoseThatFellAsleep) {
  const auto longer_than_it_spins = std::chrono::milliseconds(20);
  ThreadTeam team(2);
  std::atomic<int> done = 0;
  for (const int late : {0, 1}) {
    team.run([&](int thread) {
      if (thread == late) std::this_thread::sleep_for(longer_than_it_spins);
      team.barrier();
      ++done;
    });
    std::this_thread::sleep_for(longer_than_it_spins);
  }
  EXPECT_EQ(done, 4);
}

// Whichever thread it is, no other may be left waiting.
TEST(ThreadTeamDeathTest, ABodyThatThrowsEndsTheProgram) {
  for (const int thrower : {0, 1}) {
    EXPECT_DEATH(
        {
          ThreadTeam team(2);
          team.run([&](int thread) {
            if (thread == thrower) throw Error("thrown");
            team.barrier();
          });
        },
        "thrown");
  }
}

TEST(ThreadTeam, KeepsSubnormals) {
  ThreadTeam team(2);
  std::vector<float> halves(2);
  team.run([&](int thread) {
    volatile float small = 1.2e-38f;
    halves[thread] = small / 4;
  });
  for (float half : halves) EXPECT_GT(half, 0.0f);
}

// The threads that did start must end, not wait for work for ever.
TEST(ThreadTeam, EndsIfTheSystemHasNoRoomForIt) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "sanitizers need all of the address space";
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::uint64_t pages = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages);
  rlimit tight = before;
  tight.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (std::uint64_t{200} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  constexpr std::size_t kTooMuch = std::size_t{1} << 30;
  void* const refused =
      mmap(nullptr, kTooMuch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (refused == MAP_FAILED) {
    EXPECT_THROW(ThreadTeam team(1024), Error);
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  if (refused != MAP_FAILED) {
    munmap(refused, kTooMuch);
    GTEST_SKIP() << "the limit has no effect, as under qemu-user";
  }
}

}  // namespace
}  // namespace outrider
