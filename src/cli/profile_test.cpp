// The commands `profile show` and `profile clear`, run on a store.

#include "runtime/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "cli/commands.h"
#include "cli/json.h"
#include "runtime/profile_store.h"

namespace outrider {
namespace {

struct ProfileCommandTest : ::testing::Test {
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    if (const char* cache = std::getenv("OUTRIDER_CACHE")) cache_before = cache;
    ::setenv("OUTRIDER_CACHE", folder.c_str(), 1);
  }
  void TearDown() override {
    if (cache_before) {
      ::setenv("OUTRIDER_CACHE", cache_before->c_str(), 1);
    } else {
      ::unsetenv("OUTRIDER_CACHE");
    }
    std::filesystem::remove_all(folder);
  }
  // What the command writes.
  static std::string output_of(std::string_view name, const Settings& settings = {}) {
    const auto command = std::ranges::find(commands(), name, &Command::name);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(command->run({}, settings), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  std::string folder = ::testing::TempDir() + "/profile_command_XXXXXX";
  std::optional<std::string> cache_before;
};

TEST_F(ProfileCommandTest, ShowAndClear) {
  EXPECT_EQ(output_of("profile show"), "no profiles\n");

  const ProfileKey pair = {
      .files = {{.name = "big\x1b[31m", .header_hash = "aa"}, {.name = "small"}},
      .processor = "Processor",
      .n_processors = 8,
      .instruction_set = "avx2",
      .n_threads = 4,
      .cache_type = "f16",
      .drafters = {"lookup", "model"},
      .settings = {{"--draft-rows", "16"}}};
  ProfileKey none = pair;
  none.files.clear();
  none.drafters.clear();
  none.processor = "Other";
  ProfileStore store(profile_file(), {});
  store.keep(pair, {{"costs", {1, 1.5}}});
  store.keep(none, nlohmann::json::object());
  ProfileKey learned = none;
  learned.drafters = {"lookup", "model"};
  Profile profile;
  profile.learned.drafters.resize(2);
  profile.learned.drafters[1].acceptance.recent.best_guess = -1.26;
  profile.learned.answers = 3;
  profile.learned.answer_tokens = 96.4;
  profile.learned.bank = 12.5;
  store.keep(learned, json_of(profile));
  const std::string timeless = std::regex_replace(
      output_of("profile show"), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d)"), "TIME");
  const std::string shown = std::regex_replace(timeless, std::regex(R"(\d+ bytes)"), "BYTES bytes");
  EXPECT_EQ(shown,
            "8 x Other, avx2\n\n"
            "-\n"
            "  threads    4\n"
            "  drafters   lookup+model\n"
            "  last used  TIME\n"
            "  size       BYTES bytes\n"
            "  tokens     96\n"
            "  shifts     +0.0 -1.3\n"
            "  bank       12.5\n"
            "-\n"
            "  threads    4\n"
            "  drafters   off\n"
            "  last used  TIME\n"
            "  size       BYTES bytes\n"
            "  tokens     -\n"
            "  shifts     -\n"
            "  bank       -\n\n"
            "8 x Processor, avx2\n\n"
            "big\\x1b[31m + small\n"
            "  threads    4\n"
            "  drafters   lookup+model\n"
            "  last used  TIME\n"
            "  size       BYTES bytes\n"
            "  tokens     -\n"
            "  shifts     -\n"
            "  bank       -\n");

  Settings json;
  json.json = true;
  const Json listed = Json::parse(output_of("profile show", json));
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[1]["document"], Json::object());
  EXPECT_EQ(listed[2]["document"], Json::parse(R"({"costs": [1, 1.5]})"));
  EXPECT_EQ(listed[2]["files"][0]["header_hash"], "aa");
  EXPECT_EQ(listed[2]["drafters"], Json({"lookup", "model"}));
  EXPECT_EQ(listed[2]["settings"]["--draft-rows"], "16");
  EXPECT_EQ(listed[2]["schema"], kProfileSchema);
  const std::string used = listed[2]["used"];
  EXPECT_TRUE(std::regex_match(used, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"))) << used;

  EXPECT_EQ(output_of("profile clear"), "3 profiles removed\n");
  EXPECT_EQ(output_of("profile show"), "no profiles\n");
  store.keep(pair, 1);
  EXPECT_EQ(output_of("profile clear"), "1 profile removed\n");
}

}  // namespace
}  // namespace outrider
