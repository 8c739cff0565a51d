#include "runtime/profile_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

class TemporaryFile {
 public:
  ~TemporaryFile() { fs::remove(path_); }
  const fs::path& path() const { return path_; }

 private:
  const fs::path path_ =
      fs::path(::testing::TempDir()) / fmt::format("profile_key_{}.gguf", getpid());
};

struct ModelText {
  std::string first = "first", last = "last";
  std::size_t n_tokens = 10;
  float weight = 1;
  std::string middle = "middle";  // a token halfway
};

// The identity of a model with a vocabulary between two other keys.
ModelFile identity_of(const ModelText& text) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < text.n_tokens; ++i) tokens.push_back(fmt::format("token {:06}", i));
  tokens[text.n_tokens / 2] = text.middle;
  GgufWriter writer;
  writer.add("first", text.first);
  writer.add("tokens", tokens);
  writer.add("last", text.last);
  const std::int64_t shape[] = {1};
  writer.add_tensor("weight", TensorType::f32, shape, std::as_bytes(std::span(&text.weight, 1)));
  const TemporaryFile file;
  writer.save(file.path());
  return identify("model", read_gguf(file.path()));
}

TEST(Identify, SeesTheHeaderAndNoTensorBytes) {
  for (const std::size_t n_tokens : {10u, 50'000u}) {  // 50,000 make a header of 1 MB
    SCOPED_TRACE(n_tokens);
    const std::string before = identity_of({.n_tokens = n_tokens}).header_hash;
    EXPECT_EQ(identity_of({.n_tokens = n_tokens}).header_hash, before);
    EXPECT_EQ(identity_of({.n_tokens = n_tokens, .weight = 2}).header_hash, before);
    EXPECT_NE(identity_of({.first = "First", .n_tokens = n_tokens}).header_hash, before);
    EXPECT_NE(identity_of({.last = "Last", .n_tokens = n_tokens}).header_hash, before);
    const bool sees_all = n_tokens == 10;
    EXPECT_EQ(identity_of({.n_tokens = n_tokens, .middle = "Middle"}).header_hash != before,
              sees_all);
  }
}

TEST(Identify, SeesSizeAndTime) {
  const TemporaryFile file;
  GgufWriter writer;
  writer.add("key", 1);
  writer.save(file.path());
  const ModelFile before = identify("a", read_gguf(file.path()));
  EXPECT_EQ(before.name, "a");
  EXPECT_EQ(before.bytes, fs::file_size(file.path()));
  fs::last_write_time(file.path(), fs::last_write_time(file.path()) + std::chrono::seconds(1));
  EXPECT_EQ(identify("a", read_gguf(file.path())).modified_ns, before.modified_ns + 1'000'000'000);
}

ProfileKey some_key() {
  return {.files = {{.name = "big", .header_hash = "aa", .bytes = 10, .modified_ns = 20},
                    {.name = "small", .header_hash = "bb", .bytes = 1, .modified_ns = 2}},
          .processor = "Processor",
          .n_processors = 8,
          .instruction_set = "avx2",
          .n_threads = 4,
          .cache_type = "f16",
          .drafters = {"lookup", "model"},
          .settings = {{"--draft-rows", "16"}}};
}

TEST(ProfileKey, EveryDifferenceButANameIsAnotherId) {
  using Change = std::function<void(ProfileKey&)>;
  const Change changes[] = {
      [](ProfileKey&) {},
      [](ProfileKey& key) { key.files[0].header_hash = "ab"; },
      [](ProfileKey& key) { key.files[0].bytes = 11; },
      [](ProfileKey& key) { key.files[0].modified_ns = 21; },
      [](ProfileKey& key) { key.files[1].header_hash = "aa"; },
      [](ProfileKey& key) { std::swap(key.files[0], key.files[1]); },
      [](ProfileKey& key) { key.files.pop_back(); },
      [](ProfileKey& key) { key.processor = "Processor 2"; },
      [](ProfileKey& key) { key.n_processors = 9; },
      [](ProfileKey& key) { key.instruction_set = "avx512"; },
      [](ProfileKey& key) { key.n_threads = 8; },
      [](ProfileKey& key) { key.cache_type = "q8_0"; },
      [](ProfileKey& key) {
        key.drafters = {"model", "lookup"};
      },
      [](ProfileKey& key) { key.drafters = {}; },
      [](ProfileKey& key) {
        key.settings = {{"--draft-rows", "8"}};
      },
      [](ProfileKey& key) { key.settings.emplace("--draft-width", "4"); },
      [](ProfileKey& key) { key.settings.clear(); },
  };
  std::set<std::string> ids;
  for (const Change& change : changes) {
    ProfileKey key = some_key();
    change(key);
    EXPECT_TRUE(ids.insert(id_of(key)).second) << json_of(key);
    key.files[0].name = "another name";
    EXPECT_FALSE(ids.insert(id_of(key)).second);
  }
}

TEST(ProfileKey, IsItsJson) {
  const ProfileKey key = some_key();
  const ProfileKey again = profile_key_from(json_of(key));
  EXPECT_EQ(json_of(again), json_of(key));
  EXPECT_EQ(again.files[1].name, "small");
  EXPECT_EQ(id_of(again), id_of(key));
  EXPECT_THROW(profile_key_from(nlohmann::json::parse("{}")), nlohmann::json::exception);
}

TEST(ProfileKey, TakesTextThatIsNoUtf8) {
  ProfileKey key = some_key();
  key.settings["--draft-vocab"] = "9=\xff";
  EXPECT_EQ(id_of(key).size(), 64u);
}

}  // namespace
}  // namespace outrider
