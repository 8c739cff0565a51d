#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

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

TEST(ThreadTeam, KeepsSubnormals) {
  ThreadTeam team(2);
  std::vector<float> halves(2);
  team.run([&](int thread) {
    volatile float small = 1.2e-38f;
    halves[thread] = small / 4;
  });
  for (float half : halves) EXPECT_GT(half, 0.0f);
}

TEST(UsableCores, AtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

}  // namespace
}  // namespace outrider
