#include "formats/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

struct ConfigFile : testing::Test {
  ConfigFile() { fs::create_directory(folder); }
  ~ConfigFile() override { fs::remove_all(folder); }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string text() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder = fs::temp_directory_path() / ("config-file-" + std::to_string(getpid()));
  fs::path path = folder / "config.json";
};

TEST_F(ConfigFile, IsChangedAndAllElseStays) {
  write(R"({"z": 1e-06, "a": [1.0, 12345678901234567890123, "\u00e9"],
            "outrider": {"b": 1, "a": 2}, "c": null})");
  for (const fs::path& weights : {folder, folder / "model.safetensors"})
    change_config(weights, [](nlohmann::ordered_json& config) { config["outrider"]["b"] = 3; });
  EXPECT_EQ(text(),
            "{\"z\":1e-06,\"a\":[1.0,12345678901234567890123,\"é\"],"
            "\"outrider\":{\"b\":3,\"a\":2},\"c\":null}\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

TEST_F(ConfigFile, AChangeThatFailsChangesNothing) {
  const auto change = [](nlohmann::ordered_json&) { throw Error("no"); };
  EXPECT_THROW(change_config(folder, change), Error);  // no file
  for (const char* text_before : {"{}", "[]", "{", R"({"a": 1, "a": 2})"}) {
    write(text_before);
    EXPECT_THROW(change_config(folder, change), Error);
    EXPECT_EQ(text(), text_before);
  }
}

}  // namespace
}  // namespace outrider
