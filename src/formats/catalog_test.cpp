#include "formats/catalog.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "base/error.h"
#include "formats/partial_file.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(Catalog, HoldsTheModels) {
  struct Case {
    const char *name, *family, *license, *file;
    std::uint64_t bytes;
    std::size_t n_parts;
  };
  const Case cases[] = {
      {"smollm2:135m", "llama", "apache-2.0", "smollm2-135m.gguf", 98362432, 1},
      {"qwen2.5-coder:1.5b", "qwen2", "not stated", "qwen2.5-coder-1.5b.gguf", 1117320768, 22},
      {"qwen2.5-coder:0.5b", "qwen2", "not stated", "qwen2.5-coder-0.5b.gguf", 491400064, 6},
      {"gemma3:270m", "gemma3", "gemma", "gemma3-270m.gguf", 253113024, 4},
  };
  ASSERT_EQ(catalog().size(), std::size(cases));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const CatalogEntry* entry = find_in_catalog(c.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->family, c.family);
    EXPECT_EQ(license_text(*entry), c.license);
    EXPECT_EQ(entry->bytes, c.bytes);
    ASSERT_EQ(entry->sources.size(), 1u);
    EXPECT_EQ(entry->sources[0].parts.size(), c.n_parts);
    EXPECT_EQ(cached_path(*entry).filename(), c.file);
  }
  EXPECT_EQ(find_in_catalog("qwen2.5-coder:1.5b")->draft->model, "qwen2.5-coder:0.5b");
  EXPECT_FALSE(default_model().draft);
  EXPECT_EQ(default_model().name, "smollm2:135m");
  EXPECT_EQ(find_in_catalog("smollm2"), nullptr);
}

TEST(Catalog, MalformedTextIsAnError) {
  const std::string good =
      R"({"models": [{"name": "a:1", "family": "f", "description": "d", "license": null, "bytes": 3,
    "sha256": "0000000000000000000000000000000000000000000000000000000000000000", "default": true,
    "sources": [{"kind": "python-packages", "parts": [{"package": "p", "version": "1", "member": "m", "bytes": 3}]}]}]})";
  ASSERT_EQ(parse_catalog(good, "c").size(), 1u);
  EXPECT_EQ(parse_catalog(good, "c")[0].sources[0].parts[0].member, "m");
  struct Case {
    const char *from, *to, *message;
  };
  const Case cases[] = {
      {"{\"models\"", "{\"models", "parse error"},
      {"\"models\"", "\"model\"", "'models' not found"},
      {"\"a:1\"", "7", "must be string"},
      {"\"a:1\"", "\"\"", "name \"\" is no name"},
      {"\"a:1\"", "\"../a\"", "name \"../a\" is no name"},
      {"\"p\"", "\"--index-url\"", "package \"--index-url\" is no name"},
      {"\"p\"", "\"p q\"", "package \"p q\" is no name"},
      {"\"1\"", "\"1;x\"", "version \"1;x\" is no name"},
      {"\"sha256\": \"0", "\"sha256\": \"X", "a:1: sha256 is not 64 lower-case digits"},
      {"\"sha256\": \"0", "\"sha256\": \"", "a:1: sha256 is not 64 lower-case digits"},
      {"\"bytes\": 3,", "\"bytes\": 4,", "a:1: the parts are 3 bytes, the file 4"},
      {"python-packages", "carrier-pigeon", "source kind \"carrier-pigeon\" is unknown"},
      {"true,", R"(true, "draft": {"model": "b:1", "speedup": "2"},)", "a:1: its draft b:1 is not"},
      {"true,", R"(true, "draft": {"model": "a:1"},)", "'speedup' not found"},
      {"true", "false", "not exactly one model is the default"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.to);
    std::string bad = good;
    ASSERT_NE(bad.find(c.from), std::string::npos);
    bad.replace(bad.find(c.from), std::string(c.from).size(), c.to);
    try {
      parse_catalog(bad, "c.json");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "c.json: ") && contains(error.what(), c.message))
          << error.what();
    }
  }
}

// Each test has its own cache; the environment is restored afterwards.
class Cache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"OUTRIDER_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      if (value != nullptr) before_.emplace_back(name, value);
    }
    std::string path = fs::temp_directory_path() / "outrider_cache_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    ::setenv("OUTRIDER_CACHE", path.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("OUTRIDER_CACHE");
    ::unsetenv("XDG_CACHE_HOME");
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
    fs::remove_all(folder_);
  }

  // A file of that size without content on the disk.
  void put(const std::string& name, std::uint64_t bytes) {
    fs::create_directories(folder_ / "models");
    std::ofstream(folder_ / "models" / name).close();
    fs::resize_file(folder_ / "models" / name, bytes);
  }

  fs::path folder_;
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(Cache, FolderComesFromTheEnvironment) {
  ::setenv("OUTRIDER_CACHE", "/a", 1);
  ::setenv("XDG_CACHE_HOME", "/b", 1);
  ::setenv("HOME", "/c", 1);
  EXPECT_EQ(cache_folder(), "/a");
  EXPECT_EQ(cached_path(default_model()), "/a/models/smollm2-135m.gguf");
  ::setenv("OUTRIDER_CACHE", "", 1);
  EXPECT_EQ(cache_folder(), "/b/outrider");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(cache_folder(), "/c/.cache/outrider");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_folder(), "/c/.cache/outrider");
  ::unsetenv("HOME");
  EXPECT_THROW(cache_folder(), Error);
}

TEST_F(Cache, ListsAndRemoves) {
  EXPECT_TRUE(cached_models().empty());
  put("smollm2-135m.gguf", 98362432);
  put("gemma3-270m.gguf.partial", 1000);
  put("qwen2.5-coder-0.5b.gguf", 5);
  put("mine.gguf", 7);
  put("notes.txt", 7);
  fs::create_directories(folder_ / "models/gemma3-270m.gguf.download");
  const auto models = cached_models();
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "gemma3:270m");
  EXPECT_FALSE(models[0].complete);
  EXPECT_EQ(models[0].bytes, 1000u);
  EXPECT_EQ(models[1].name, "mine");
  EXPECT_TRUE(models[1].complete);
  EXPECT_EQ(models[1].entry, nullptr);
  EXPECT_EQ(models[2].name, "qwen2.5-coder:0.5b");
  EXPECT_FALSE(models[2].complete);
  EXPECT_EQ(models[3].entry, find_in_catalog("smollm2:135m"));
  EXPECT_TRUE(models[3].complete);
  EXPECT_TRUE(is_cached(*models[3].entry));
  EXPECT_FALSE(is_cached(*models[2].entry));

  EXPECT_EQ(remove_cached_model("gemma3:270m"), 1000u);
  EXPECT_EQ(remove_cached_model("mine"), 7u);
  EXPECT_EQ(remove_cached_model("qwen2.5-coder:0.5b"), 5u);
  EXPECT_EQ(remove_cached_model("smollm2:135m"), 98362432u);
  std::size_t n_left = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "models")) {
    EXPECT_EQ(file.path().filename(), "notes.txt");
    ++n_left;
  }
  EXPECT_EQ(n_left, 1u);
}

TEST_F(Cache, WhatCannotBeReadIsNotTakenForEmpty) {
  std::ofstream(folder_ / "models").close();
  const CatalogEntry& entry = default_model();
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[] { cached_models(); }, "models: cannot be read: Not a directory"},
      {[] { remove_cached_model("mine"); }, "models: cannot be read: Not a directory"},
      {[&] { is_cached(entry); }, "smollm2-135m.gguf: cannot be read: Not a directory"},
  };
  for (const auto& [call, message] : cases) {
    try {
      call();
      ADD_FAILURE() << "no error, expected: " << message;
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), message)) << error.what();
    }
  }
}

TEST_F(Cache, RemoveRefuses) {
  put("smollm2-135m.gguf.partial", 5);
  for (const char* name : {"smolm2:135m", "../models/smollm2-135m", ""}) {
    try {
      remove_cached_model(name);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "no model \"")) << error.what();
    }
  }
  const auto held = PartialFile::try_lock(folder_ / "models/smollm2-135m.gguf");
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(PartialFile::try_lock(folder_ / "models/smollm2-135m.gguf"), nullptr);
  try {
    remove_cached_model("smollm2:135m");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "smollm2:135m is being pulled by another process; end that first");
  }
}

TEST_F(Cache, ReferencesToModels) {
  EXPECT_EQ(parse_model_reference("gemma3:270m").entry, find_in_catalog("gemma3:270m"));
  EXPECT_EQ(parse_model_reference("gemma3:270m").path, folder_ / "models/gemma3-270m.gguf");
  EXPECT_EQ(parse_model_reference("/x/y.gguf").entry, nullptr);
  EXPECT_EQ(parse_model_reference("/x/y.gguf").path, "/x/y.gguf");
  EXPECT_EQ(parse_model_reference("y.gguf").path, "y.gguf");
  EXPECT_EQ(parse_model_reference("./y").path, "./y");
  EXPECT_EQ(parse_model_reference(folder_.string()).path, folder_);
  struct Case {
    std::string text, message;
  };
  const Case cases[] = {
      {"", "no model is named; give a name of the catalogue or the path of a .gguf file"},
      {"hf:a/b",
       "hf:a/b: this version does not fetch from a hub; give a name of the catalogue or the "
       "path of a .gguf file"},
      {"https://a.b/c.gguf",
       "https://a.b/c.gguf: this version does not fetch from addresses; give a name of the "
       "catalogue or the path of a .gguf file"},
      {"gema3:270m",
       "gema3:270m: unknown; expected smollm2:135m, qwen2.5-coder:1.5b, qwen2.5-coder:0.5b, "
       "gemma3:270m or the path of a "
       ".gguf file; did you mean \"gemma3:270m\"?"},
      {"\x1b[31m",
       "\\x1b[31m: unknown; expected smollm2:135m, qwen2.5-coder:1.5b, qwen2.5-coder:0.5b, "
       "gemma3:270m or the path of a "
       ".gguf file"},
  };
  for (const Case& c : cases) {
    try {
      parse_model_reference(c.text);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), c.message);
    }
  }
}

}  // namespace
}  // namespace outrider
