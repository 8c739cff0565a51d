#include "base/machine.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(UsableCores, AtLeastOne) {
  EXPECT_GE(usable_cores(), 1);
}

TEST(AvailableMemory, IsMoreThanAFewPages) {
  EXPECT_GT(available_memory_bytes(), 1u << 20);
  EXPECT_LT(available_memory_bytes(), std::uint64_t{1} << 62);
}

TEST(GroupFolders, EveryGroupAboveLimitsToo) {
  using Folders = std::vector<std::string>;
  EXPECT_EQ(group_folders("0::/user.slice/run-1.scope\n", "cpu"),
            (Folders{"/sys/fs/cgroup/user.slice/run-1.scope", "/sys/fs/cgroup/user.slice",
                     "/sys/fs/cgroup"}));
  EXPECT_EQ(group_folders("0::/", "memory"), (Folders{"/sys/fs/cgroup"}));
  EXPECT_EQ(group_folders("4:memory:/a\n3:cpuset:/b\n1:cpuacct,cpu:/\n0::/\n", "cpu"),
            (Folders{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"}));
  EXPECT_EQ(
      group_folders("4:memory:/a/b:c\n", "memory"),
      (Folders{"/sys/fs/cgroup/memory/a/b:c", "/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"}));
  for (const char* text : {"", "\n", "0::", "0", "0::x", "::::"})
    EXPECT_EQ(group_folders(text, "cpu"), Folders{}) << text;
}

}  // namespace
}  // namespace outrider
