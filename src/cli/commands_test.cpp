#include "cli/commands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace outrider {
namespace {

TEST(Commands, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Command& command : commands())
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
}

TEST(Commands, ARowNamesFlagsThatExistAndThatItsSetLacks) {
  for (const Command& command : commands()) {
    for (const std::string_view name : command.flags) {
      SCOPED_TRACE(std::string(command.name) + " " + std::string(name));
      const auto flag = std::ranges::find(flags(), name, [](const Flag& f) { return f.name(); });
      ASSERT_NE(flag, flags().end());
      EXPECT_GT(flag->set, command.flag_set);
    }
  }
}

TEST(Flags, ASpellingBelongsToOneFlag) {
  std::set<std::string> names;
  for (const Flag& flag : flags()) {
    for (const std::string& name : flag.names) EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(Flags, EachIsTakenByACommand) {
  for (const Flag& flag : flags()) {
    EXPECT_TRUE(std::ranges::any_of(commands(), [&](const Command& c) { return c.takes(flag); }))
        << flag.name();
  }
}

}  // namespace
}  // namespace outrider
