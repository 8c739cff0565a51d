#include "server/ignored_fields.h"

#include <gtest/gtest.h>

#include <thread>

namespace outrider {
namespace {

TEST(IgnoredFields, EachIsToldOnce) {
  IgnoredFields fields;
  EXPECT_TRUE(fields.take_lines().empty());
  for (const char* name : {"b", "a", "b", "messages[].id"}) fields.add(name);
  EXPECT_EQ(fields.take_lines(),
            (std::vector<std::string>{
                R"(requests have the field "b", which is not known and ignored)",
                R"(requests have the field "a", which is not known and ignored)",
                R"(requests have the field "messages[].id", which is not known and ignored)"}));
  for (const char* name : {"a", "c"}) fields.add(name);
  EXPECT_EQ(fields.take_lines().size(), 1u);
  EXPECT_TRUE(fields.take_lines().empty());
}

TEST(IgnoredFields, ForgeNoLinesAndFillNoMemory) {
  IgnoredFields fields;
  fields.add("a\nb\r\x1b[31m\"\xff\xc2\x85\xe2\x80\xae");
  fields.add(std::string(100'000, 'x'));
  for (const std::string& line : fields.take_lines()) {
    EXPECT_LT(line.size(), 500u);
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c < '\x7f') << line;
  }
  for (int i = 0; i < 1000; ++i) fields.add(std::to_string(i));
  const std::vector<std::string> lines = fields.take_lines();
  EXPECT_EQ(lines.size(), IgnoredFields::kNamesMax - 2 + 1);
  EXPECT_EQ(lines.back(), "further unknown fields are ignored without a line");
  fields.add("one more");
  EXPECT_TRUE(fields.take_lines().empty());
}

TEST(IgnoredFields, ThreadsMayAddAtOnce) {
  IgnoredFields fields;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) fields.add(std::to_string(n % 50));
    });
  std::size_t n_lines = 0;
  for (int i = 0; i < 20; ++i) n_lines += fields.take_lines().size();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_lines + fields.take_lines().size(), 50u);
}

}  // namespace
}  // namespace outrider
