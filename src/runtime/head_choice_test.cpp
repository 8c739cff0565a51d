#include "runtime/head_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "formats/config_file.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

const std::string kHash(64, 'a');

nlohmann::json config_of_a_trained_head() {
  return {{"hidden_size", 8},
          {"outrider",
           {{"target",
             {{"name", "m"},
              {"file", kHash},
              {"vocabulary", kHash},
              {"embedding", 8},
              {"layers", 6},
              {"vocabulary_size", 16}}},
            {"recipe", "x"}}}};
}

TEST(HeadChoice, IsWhatTheHeadNames) {
  Head head;
  LoadOptions options;
  options.requantize = TensorType::q4_128;
  EXPECT_FALSE(choice_named_by(head, options, true));  // another producer's
  head.made_for.emplace();
  EXPECT_FALSE(choice_named_by(head, options, true));  // not measured yet
  head.made_for->agreement = {.right = 3, .places = 7};
  const auto type = [&](const std::string& named, bool tries_types) {
    head.made_for->type = named;
    const auto choice = choice_named_by(head, options, tries_types);
    if (!choice) return std::string("none");
    EXPECT_EQ(agreement_of(*choice).right, 3);
    EXPECT_EQ(agreement_of(*choice).places, 7);
    EXPECT_EQ(choice->reading, "");
    return choice->type;
  };
  const std::string standard(traits(TensorType::q4_128).name),
      larger(traits(TensorType::q8_0).name);
  EXPECT_EQ(type("", true), standard);
  EXPECT_EQ(type(standard, true), standard);
  EXPECT_EQ(type(larger, true), larger);
  EXPECT_EQ(type(larger, false), standard);  // the user chose it
  for (const char* unknown : {"Q4_0", "x"}) EXPECT_EQ(type(unknown, true), "none");
  options.requantize.reset();
  EXPECT_EQ(type(larger, false), "");
  EXPECT_EQ(type(larger, true), "none");
}

TEST(HeadChoice, IsWrittenBesideTheHead) {
  const fs::path folder = fs::temp_directory_path() / ("head-choice-" + std::to_string(getpid()));
  fs::create_directory(folder);
  const auto write = [&](const nlohmann::json& config) {
    std::ofstream(folder / "config.json") << config.dump(2);
  };
  nlohmann::json config = config_of_a_trained_head();
  write(config);
  const HeadChoice choice{
      .reading = {}, .type = "Q8_0", .agreement = 1203 / 2043.0, .places = 2043};
  write_agreement(folder, choice);
  write_agreement(folder, choice);
  config["outrider"]["agreement"] = {{"right", 1203}, {"places", 2043}, {"type", "Q8_0"}};
  EXPECT_EQ(read_config(folder), config);
  const auto made_for = read_made_for(config, "head/model.safetensors");
  ASSERT_TRUE(made_for && made_for->agreement);
  EXPECT_EQ(made_for->agreement->right, 1203);
  EXPECT_EQ(made_for->type, "Q8_0");
  for (const nlohmann::json& other : {nlohmann::json{{"a", 1}}, nlohmann::json{{"outrider", 1}}}) {
    write(other);
    EXPECT_THROW(write_agreement(folder, choice), Error);
    EXPECT_EQ(read_config(folder), other);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace outrider
