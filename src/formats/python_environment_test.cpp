#include "formats/python_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// `python3`: makes an environment whose python it is as well, and notes what it was asked for.
// Programs need the file bin/installed, which "pip" writes.
constexpr const char* kPlayedPython = R"(#!/bin/sh
here=$(dirname "$0")
echo "$*" | head -n 1 >>"$OUTRIDER_TEST_LOG"
case "$*" in
"-I -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
"-m pip install "*)
  test -e "$OUTRIDER_TEST_LOG.slow" && sleep 1
  test -e "$OUTRIDER_TEST_LOG.broken" || touch "$here/installed" ;;
*)
  test -e "$here/installed" || { echo "No module named 'torch'" >&2; exit 3; }
  echo "ran $*"; exit 7 ;;
esac
)";

class PythonEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "python-environment-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    fs::create_directories(folder_ / "bin");
    std::ofstream(folder_ / "bin/python3") << kPlayedPython;
    fs::permissions(folder_ / "bin/python3", fs::perms::owner_all);
    ::setenv("OUTRIDER_CACHE", (folder_ / "cache").c_str(), 1);
    ::setenv("OUTRIDER_TEST_LOG", log().c_str(), 1);
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", ((folder_ / "bin").string() + ":" + old_path_).c_str(), 1);
    if (fs::space(folder_).available < 10'000'000'000) GTEST_SKIP() << "no room for an environment";
  }
  void TearDown() override {
    ::unsetenv("OUTRIDER_CACHE");
    ::setenv("PATH", old_path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  fs::path log() const { return folder_ / "log"; }
  // How often an environment was made so far.
  int n_made() const {
    std::ifstream file(log());
    int n = 0;
    for (std::string line; std::getline(file, line);)
      n += line.starts_with("-m pip install") ? 1 : 0;
    return n;
  }
  PythonEnvironment environment(bool offline = false) {
    Progress progress;
    progress.note = [this](std::string_view line) { notes_.emplace_back(line); };
    progress.interrupted = [this] { return interrupted_; };
    return {"subject", offline, progress};
  }
  std::string run(const PythonEnvironment& environment) {
    std::string output;
    const SubprocessResult result =
        environment.run({.argv = {"a", "b c"}, .on_output = [&](std::span<const std::byte> bytes) {
                           output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                         }});
    EXPECT_EQ(result.status, 7);  // is the caller's to judge
    return output;
  }
  static std::string message(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  }

  fs::path folder_;
  std::string old_path_;
  std::vector<std::string> notes_;
  bool interrupted_ = false;
};

TEST_F(PythonEnvironmentTest, IsMadeOnceAndSaysWhatItNeeds) {
  EXPECT_EQ(PythonEnvironment::folder(), folder_ / "cache/python/torch");
  EXPECT_FALSE(environment().is_there());
  EXPECT_EQ(run(environment()), "ran a b c\n");
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(notes_[0].ends_with(": once, some minutes and up to 5.90 GB")) << notes_[0];
  EXPECT_TRUE(environment().is_there());
  EXPECT_EQ(run(environment(/*offline=*/true)), "ran a b c\n");
  EXPECT_EQ(n_made(), 1);
  EXPECT_FALSE(fs::exists(PythonEnvironment::folder() / "tmp"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "cache/python"), {}), 1);  // no lock
}

TEST_F(PythonEnvironmentTest, OneThatLacksPackagesIsMadeAnewOnce) {
  run(environment());
  fs::remove(PythonEnvironment::folder() / "bin/installed");  // as after an update of Python
  EXPECT_NE(message([&] { run(environment(/*offline=*/true)); }).find("offline none is made"),
            std::string::npos);
  EXPECT_EQ(n_made(), 1);
  EXPECT_EQ(run(environment()), "ran a b c\n");
  EXPECT_EQ(n_made(), 2);

  fs::remove(PythonEnvironment::folder() / "bin/installed");
  std::ofstream(log().string() + ".broken");
  EXPECT_EQ(message([&] { run(environment()); }),
            "subject: the Python environment in " + PythonEnvironment::folder().string() +
                " does not work: No module named 'torch'; delete it and try again");
  EXPECT_EQ(n_made(), 3);
}

TEST_F(PythonEnvironmentTest, OneThatCannotBeStartedIsMadeAnew) {
  run(environment());
  fs::permissions(PythonEnvironment::folder() / "bin/python", fs::perms::owner_read);
  if (::access((PythonEnvironment::folder() / "bin/python").c_str(), X_OK) == 0) GTEST_SKIP();
  EXPECT_EQ(run(environment()), "ran a b c\n");
  EXPECT_EQ(n_made(), 2);
}

TEST_F(PythonEnvironmentTest, PrepareMakesIt) {
  // The played python gives 7 to every program, also to the one that looks whether packages are
  // there.
  EXPECT_NE(message([&] { environment().prepare(); }).find("python ended with status 7"),
            std::string::npos);
  EXPECT_EQ(n_made(), 1);
}

TEST_F(PythonEnvironmentTest, TwoAtOnceMakeOne) {
  std::ofstream(log().string() + ".slow");
  const PythonEnvironment first("first", false, {});
  std::thread other([&] { EXPECT_EQ(run(first), "ran a b c\n"); });
  while (!fs::exists(log())) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(run(environment()), "ran a b c\n");
  other.join();
  EXPECT_EQ(n_made(), 1);
}

TEST_F(PythonEnvironmentTest, AnInterruptLeavesNothing) {
  std::ofstream(log().string() + ".slow");
  interrupted_ = true;
  EXPECT_EQ(message([&] { run(environment()); }), "subject: interrupted");
  EXPECT_FALSE(fs::exists(PythonEnvironment::folder()));
}

}  // namespace
}  // namespace outrider
