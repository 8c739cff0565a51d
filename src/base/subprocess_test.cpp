#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"

namespace outrider {
namespace {

Subprocess shell(const std::string& script, std::string* output = nullptr) {
  Subprocess subprocess{.argv = {"/bin/sh", "-c", script}};
  if (output != nullptr) {
    subprocess.on_output = [output](std::span<const std::byte> bytes) {
      output->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
  }
  return subprocess;
}

// Waits until the process is gone: it is no child of this one, so the system reaps it.
bool ends(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Subprocess, GivesOutputErrorsAndStatus) {
  std::string output;
  const SubprocessResult result = run_subprocess(shell("echo out; echo err >&2; exit 7", &output));
  EXPECT_EQ(output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
  EXPECT_EQ(result.status, 7);
  EXPECT_FALSE(result.was_interrupted);
  EXPECT_EQ(result.start_problem, "");
  EXPECT_EQ(run_subprocess(shell("kill -9 $$")).status, 128 + 9);
}

TEST(Subprocess, ArgumentsPassNoShell) {
  std::string output;
  Subprocess subprocess = shell("printf '%s|' \"$@\"", &output);
  for (const char* argument : {"name", "a b", "$HOME", "`x`", "", "*"})
    subprocess.argv.push_back(argument);
  EXPECT_EQ(run_subprocess(subprocess).status, 0);
  EXPECT_EQ(output, "a b|$HOME|`x`||*|");
}

TEST(Subprocess, EnvironmentIsOursAndWhatWasAdded) {
  ::setenv("OUTRIDER_TEST_KEPT", "kept", 1);
  ::setenv("OUTRIDER_TEST_REPLACED", "old", 1);
  std::string output;
  Subprocess subprocess = shell("echo $OUTRIDER_TEST_KEPT $OUTRIDER_TEST_REPLACED", &output);
  subprocess.environment = {{"OUTRIDER_TEST_REPLACED", "new"}};
  run_subprocess(subprocess);
  EXPECT_EQ(output, "kept new\n");
}

TEST(Subprocess, MuchOutputAndMuchError) {
  std::string output;
  const SubprocessResult result = run_subprocess(
      shell("i=0; while [ $i -lt 5000 ]; do echo 0123456789012345678901234567890123456789; "
            "echo error number $i >&2; i=$((i+1)); done",
            &output));
  EXPECT_EQ(output.size(), 5000u * 41);
  EXPECT_LE(result.errors.size(), 16u << 10);
  EXPECT_NE(result.errors.find("error number 4999\n"), std::string::npos);
}

TEST(Subprocess, ErrorsAreHandedOnAsTheyCome) {
  std::string errors;
  Subprocess subprocess = shell("echo first >&2; sleep 1000");
  subprocess.on_error = [&](std::span<const std::byte> bytes) {
    errors.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  subprocess.interrupted = [&] { return !errors.empty(); };
  EXPECT_EQ(run_subprocess(subprocess).errors, "first\n");
  EXPECT_EQ(errors, "first\n");
}

TEST(Subprocess, WhatCannotBeStartedSaysSo) {
  EXPECT_EQ(run_subprocess({.argv = {"outrider-no-such-program"}}).start_problem,
            "No such file or directory");
  EXPECT_EQ(run_subprocess({.argv = {"/"}}).start_problem, "Permission denied");
}

TEST(Subprocess, AnInterruptEndsTheWholeGroup) {
  std::string output;
  Subprocess subprocess = shell("sleep 1000 & echo $!; wait", &output);
  subprocess.interrupted = [&] { return !output.empty(); };
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_TRUE(result.was_interrupted);
  EXPECT_TRUE(ends(std::stoi(output)));
}

TEST(Subprocess, AnInterruptedProgramHasTimeToEnd) {
  std::string output;
  Subprocess subprocess = shell(
      "trap 'sleep 0.5; echo saved; echo why >&2; exit 5' TERM; echo begun; while :; do sleep "
      "0.01; done",
      &output);
  subprocess.interrupted = [&] { return !output.empty(); };
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_TRUE(result.was_interrupted);
  EXPECT_EQ(output, "begun\nsaved\n");
  EXPECT_TRUE(result.errors.ends_with("why\n")) << result.errors;
  EXPECT_EQ(result.status, 5);
}

TEST(Subprocess, AfterItsGraceItIsKilled) {
  std::string output;
  int n_asked = 0, n_ticks = 0;
  Subprocess subprocess = shell("trap '' TERM; echo begun; while :; do sleep 0.01; done", &output);
  subprocess.interrupted = [&] { return !output.empty() && ++n_asked > 0; };
  subprocess.on_tick = [&] { ++n_ticks; };
  subprocess.grace = std::chrono::milliseconds(700);
  const auto begin = std::chrono::steady_clock::now();
  const SubprocessResult result = run_subprocess(subprocess);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, subprocess.grace);
  EXPECT_TRUE(result.was_interrupted);
  EXPECT_EQ(n_asked, 1);
  EXPECT_GE(n_ticks, 3);  // also while it has time
  EXPECT_EQ(result.status, 128 + SIGKILL);
}

TEST(Subprocess, AThrowingCallbackEndsIt) {
  pid_t pid = 0;
  Subprocess subprocess = shell("echo $$; sleep 1000");
  subprocess.on_output = [&](std::span<const std::byte> bytes) {
    pid = std::stoi(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    throw Error("enough");
  };
  EXPECT_THROW(run_subprocess(subprocess), Error);
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(ends(pid));
}

TEST(Subprocess, ADaemonThatKeepsThePipeDoesNotHoldUsUp) {
  std::string output;
  const SubprocessResult result = run_subprocess(shell("sleep 1000 & echo $!", &output));
  EXPECT_EQ(result.status, 0);
  ::kill(std::stoi(output), SIGKILL);
}

}  // namespace
}  // namespace outrider
