#include "cli/text_input.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace outrider {
namespace {

std::string text_of_file(const std::string& bytes) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) /
      fmt::format("outrider_text_input_{}", getpid());  // tests run beside each other
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string text = read_text(path);
  std::filesystem::remove(path);
  return text;
}

TEST(TextInput, ReadsFilesOfAllSystemsAlike) {
  EXPECT_EQ(text_of_file("\xef\xbb\xbf"
                         "a\r\n\r\nb\r\n"),
            "a\n\nb\n");
  EXPECT_EQ(text_of_file("a\n\nb\n"), "a\n\nb\n");
  EXPECT_THROW(text_of_file("\xff\xfe"
                            "a"),
               Error);
}

TEST(TextInput, PromptsAreWhatTheirJsonSays) {
  const std::string prompts = text_of_file(
      "\xef\xbb\xbf{\"prompt\": \"é\\r\\n1\", \"id\": 99999999999999999999999, \"group\": 1e16}\r\n"
      "\r\n"
      "{\"question_id\": 7, \"category\": \"c\", \"turns\": [\"\\ufeffx\", \"y\"]}\r\n");
  const std::vector<BenchPrompt> parsed = parse_prompts(prompts, "p.jsonl");
  ASSERT_EQ(parsed.size(), 2u);
  EXPECT_EQ(parsed[0].turns, std::vector<std::string>{"é\r\n1"});  // byte for byte
  EXPECT_EQ(parsed[0].id, "99999999999999999999999");
  EXPECT_EQ(parsed[0].group, "1e+16");
  EXPECT_EQ(parsed[1].turns, (std::vector<std::string>{"\xef\xbb\xbfx", "y"}));
  EXPECT_EQ(parsed[1].id, "7");
  try {
    parse_prompts("{\"prompt\": 99999999999999999999999}", "p.jsonl");
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "p.jsonl: line 1: prompt: expected a string, found number");
  }
}

}  // namespace
}  // namespace outrider
