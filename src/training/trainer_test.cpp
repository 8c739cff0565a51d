#include "training/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/embedded_file.h"
#include "base/error.h"

namespace outrider {

std::span<const EmbeddedFile> trainer_files();

namespace {

namespace fs = std::filesystem;
using Kind = TrainingEvent::Kind;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Work>
std::string message(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

// The environment's python is a shell script.
class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "trainer-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    ::setenv("OUTRIDER_CACHE", (folder_ / "cache").c_str(), 1);
    ::setenv("OUTRIDER_TEST_FOLDER", folder_.c_str(), 1);
    options_.features = folder_ / "features";
    options_.out = folder_ / "head";
    options_.offline = true;
    options_.progress.note = [this](std::string_view line) { notes_.emplace_back(line); };
    options_.progress.detail = [this](std::string_view line) { details_.emplace_back(line); };
  }
  void TearDown() override {
    ::unsetenv("OUTRIDER_CACHE");
    fs::remove_all(folder_);
  }

  void play(const std::string& script) {
    const fs::path python = folder_ / "cache/python/torch/bin/python";
    fs::create_directories(python.parent_path());
    std::ofstream(python) << "#!/bin/sh\ncd \"$OUTRIDER_TEST_FOLDER\"\n" << script;
    fs::permissions(python, fs::perms::owner_all);
  }
  TrainingEvent train() {
    return train_head(options_, [this](const TrainingEvent& event) {
      events_.push_back(event);
      if (on_event_) on_event_();
    });
  }

  fs::path folder_;
  TrainingOptions options_;
  std::vector<TrainingEvent> events_;
  std::vector<std::string> notes_, details_;
  std::function<void()> on_event_;
};

TEST_F(TrainerTest, EventsComeWhileItRuns) {
  // It goes on once the first event has been seen, which came in two pieces.
  play(R"(printf '{"event": "plan", "te'; sleep 0.1; echo 'xts": 12, "hours": null}'
until test -e seen; do sleep 0.01; done
echo '{"event": "progress", "done": 0.5, "loss": 1.25, "of a later version": []}'
echo 'outrider_train: a note' >&2; echo 'UserWarning: a warning' >&2; echo 'outrider_train: the last' >&2
printf '{"event": "done", "step": 7, "acceptance": {"greedy": [0.5, 0.25], "length": 1.75}}'
)");
  on_event_ = [&] { std::ofstream(folder_ / "seen"); };
  const TrainingEvent done = train();
  ASSERT_EQ(events_.size(), 3u);
  EXPECT_EQ(events_[0].kind, Kind::plan);
  EXPECT_EQ(events_[0].texts, 12);
  EXPECT_EQ(events_[0].hours, std::nullopt);
  EXPECT_EQ(events_[1].kind, Kind::progress);
  EXPECT_EQ(events_[1].done, 0.5);
  EXPECT_EQ(events_[1].loss, 1.25);
  EXPECT_EQ(done.kind, Kind::done);
  EXPECT_EQ(done.step, 7);
  ASSERT_TRUE(done.acceptance);
  EXPECT_EQ(done.acceptance->greedy, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(done.acceptance->length, 1.75);
  EXPECT_EQ(notes_, (std::vector<std::string>{"a note", "the last"}));
  EXPECT_EQ(details_, (std::vector<std::string>{"UserWarning: a warning"}));
}

TEST_F(TrainerTest, ArgumentsAndVariables) {
  play(R"(echo "$1 $2 $3 $4 $5" >asked; shift 7; for each; do echo "$each" >>asked; done
echo "$MPLBACKEND" >>asked; echo '{"event": "done"}'
)");
  options_.features = "-a b";
  options_.out = "c";
  options_.hours = 0.25;
  train();
  EXPECT_EQ(content_of(folder_ / "asked"),
            "-I -B -X utf8 -c\neagle3\n--features=-a b\n--out=c\n--hours=0.25\nAgg\n");

  options_.kind = TrainedKind::medusa;
  options_.draft_rows = 100;
  options_.threads = 3;
  options_.seed = -7;
  train();
  EXPECT_EQ(content_of(folder_ / "asked"),
            "-I -B -X utf8 -c\nmedusa\n--features=-a b\n--out=c\n--hours=0.25\n"
            "--draft-rows=100\n--threads=3\n--seed=-7\nAgg\n");
}

// The folder that python is told holds the trainer, whole, before python begins.
TEST_F(TrainerTest, TheTrainerIsPartOfTheProgram) {
  play("echo \"$7\" >where; ls \"$7/outrider_train\" >files; echo '{\"event\": \"done\"}'\n");
  train();
  std::string names;
  bool has_main = false;
  const std::string where = content_of(folder_ / "where");
  const fs::path package = fs::path(where.substr(0, where.find('\n'))) / "outrider_train";
  EXPECT_EQ(package.parent_path().parent_path(), folder_ / "cache/python");
  for (const EmbeddedFile& file : trainer_files()) {
    has_main |= file.name == "__main__.py";
    EXPECT_EQ(content_of(package / file.name), file.text) << file.name;
    EXPECT_EQ(file.text,
              content_of(fs::path(OUTRIDER_SOURCE_DIR) / "train/outrider_train" / file.name));
    names += std::string(file.name) + "\n";
  }
  EXPECT_TRUE(has_main);
  EXPECT_EQ(content_of(folder_ / "files"), names);

  // What is in order stays; what is not is made good.
  const auto time = fs::last_write_time(package / "__main__.py");
  std::ofstream(package / "loop.py") << "half of";
  fs::remove(package / "errors.py");
  train();
  EXPECT_EQ(fs::last_write_time(package / "__main__.py"), time);
  for (const EmbeddedFile& file : trainer_files())
    EXPECT_EQ(content_of(package / file.name), file.text) << file.name;
  EXPECT_EQ(content_of(folder_ / "files"), names);
}

TEST_F(TrainerTest, WhatItRefusesIsTheError) {
  play(R"(echo 'outrider_train: first a note' >&2
echo 'outrider_train: features/shard-00000.safetensors: is cut off' >&2; sleep 3; exit 2
)");
  EXPECT_EQ(message([&] { train(); }), "features/shard-00000.safetensors: is cut off");
  EXPECT_EQ(notes_, (std::vector<std::string>{"first a note"}));  // the error is said once
}

TEST_F(TrainerTest, OtherEnds) {
  const std::string out = options_.out.string();
  play("echo 'Traceback' >&2; echo 'KeyError: 3' >&2; exit 1\n");
  EXPECT_EQ(message([&] { train(); }), out + ": training failed: KeyError: 3");
  EXPECT_EQ(details_, (std::vector<std::string>{"Traceback", "KeyError: 3"}));
  play("exit 1\n");
  EXPECT_EQ(message([&] { train(); }), out + ": training failed: it ended with status 1");
  play("printf '{\"event\": \"pl'; kill -9 $$\n");
  EXPECT_EQ(message([&] { train(); }),
            out + ": training failed: it was killed, perhaps for lack of memory");
  play("echo 'outrider_train: stopped; the same command goes on from here' >&2; exit 130\n");
  EXPECT_EQ(message([&] { train(); }),
            out + ": training was stopped; the same command goes on from here");
  play("echo 'KeyboardInterrupt' >&2; exit 130\n");
  EXPECT_EQ(message([&] { train(); }), out + ": training was stopped; the same command goes on");
  play("echo '{\"event\": \"plan\"}'\n");
  EXPECT_EQ(message([&] { train(); }), out + ": the trainer ended without saying that it is done");
  play("echo \"No module named 'torch'\" >&2; exit 3\n");
  EXPECT_NE(message([&] { train(); }).find("offline none is made"), std::string::npos);
}

TEST_F(TrainerTest, AnInterruptLetsItWriteItsCheckpoint) {
  // Longer than other programs have.
  play(R"(trap 'sleep 3; touch checkpoint; echo "outrider_train: stopped" >&2; exit 130' TERM
echo '{"event": "plan"}'; while :; do sleep 0.05; done
)");
  options_.progress.interrupted = [&] { return !events_.empty(); };
  EXPECT_EQ(message([&] { train(); }), options_.out.string() + ": interrupted");
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint"));
  EXPECT_EQ(notes_, (std::vector<std::string>{"stopped"}));
}

TEST_F(TrainerTest, ACallbackThatThrowsEndsItAlike) {
  play(R"(trap 'sleep 2.5; touch checkpoint; exit 130' TERM
echo '{"event": "plan"}'; while :; do sleep 0.05; done
)");
  on_event_ = [] { throw Error("enough"); };
  EXPECT_EQ(message([&] { train(); }), "enough");
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint"));
}

TEST_F(TrainerTest, NonsenseIsQuoted) {
  play("printf 'Downloading\\033[1m\\n'; sleep 1000\n");
  EXPECT_EQ(message([&] { train(); }),
            "the trainer said \"Downloading\\x1b[1m\", expected an event as JSON");
  EXPECT_TRUE(events_.empty());
  // A line without end.
  play("yes abcdefghijklmnopqrstuvwxyz | tr -d '\\n'\n");
  const std::string error = message([&] { train(); });
  EXPECT_LT(error.size(), 200u);
  EXPECT_TRUE(error.starts_with("the trainer said \"abcdefghij")) << error;
}

TEST(TrainingEvent, EachKind) {
  TrainingEvent event =
      parse_training_event(R"({"event": "agreement", "share": 0.99, "positions": 16000})");
  EXPECT_EQ(event.kind, Kind::agreement);
  EXPECT_EQ(event.agreement, 0.99);
  EXPECT_EQ(event.agreement_positions, 16000);
  EXPECT_EQ(parse_training_event(R"({"event": "agreement", "share": null})").agreement,
            std::nullopt);

  event = parse_training_event(
      R"({"event": "plan", "kind": "eagle3", "texts": 1, "answer_tokens": 2, "held_out_texts": 3,
          "draft_rows": 4, "parameters": 5, "precision": "bf16", "threads": 6, "device": "cpu",
          "hours": 2, "steps": null, "resumed_at": 8})");
  EXPECT_EQ(event.answer_tokens, 2);
  EXPECT_EQ(event.held_out_texts, 3);
  EXPECT_EQ(event.draft_rows, 4);
  EXPECT_EQ(event.parameters, 5);
  EXPECT_EQ(event.precision, "bf16");
  EXPECT_EQ(event.threads, 6);
  EXPECT_EQ(event.device, "cpu");
  EXPECT_EQ(event.hours, 2);
  EXPECT_EQ(event.steps, std::nullopt);
  EXPECT_EQ(event.resumed_at, 8);

  event = parse_training_event(
      R"({"event": "progress", "done": 1, "step": 9, "epoch": 1, "tokens": 10, "depths": 2,
          "loss": 0.5, "cross_entropy": 1.5, "variation": 0.25, "tokens_per_second": 300,
          "gflops": 77.7, "seconds": 12.5})");
  EXPECT_EQ(event.done, 1);
  EXPECT_EQ(event.step, 9);
  EXPECT_EQ(event.epoch, 1);
  EXPECT_EQ(event.tokens, 10);
  EXPECT_EQ(event.depths, 2);
  EXPECT_EQ(event.cross_entropy, 1.5);
  EXPECT_EQ(event.variation, 0.25);
  EXPECT_EQ(event.tokens_per_second, 300);
  EXPECT_EQ(event.gflops, 77.7);
  EXPECT_EQ(event.seconds, 12.5);

  event = parse_training_event(
      R"({"event": "evaluation", "greedy": [0.5], "sampled": [0.25, 0.5], "greedy_length": 1.5,
          "sampled_length": 1.25, "length": 1.375, "positions": 11, "covered": 0.9, "best": true})");
  ASSERT_TRUE(event.acceptance);
  EXPECT_EQ(event.acceptance->sampled, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(event.acceptance->greedy_length, 1.5);
  EXPECT_EQ(event.acceptance->sampled_length, 1.25);
  EXPECT_EQ(event.acceptance->positions, 11);
  EXPECT_EQ(event.acceptance->covered, 0.9);
  EXPECT_EQ(event.is_best, true);

  event = parse_training_event(
      R"({"event": "done", "acceptance": null, "agreement": {"share": 0.5, "positions": 3},
          "resumed": true})");
  EXPECT_FALSE(event.acceptance);
  EXPECT_EQ(event.agreement, 0.5);
  EXPECT_EQ(event.was_finished, true);
}

TEST(TrainingEvent, WhatIsNone) {
  for (const std::string line : {"",
                                 "x",
                                 "3",
                                 "[]",
                                 "{}",
                                 "null",
                                 R"({"event": "other"})",
                                 R"({"event": 3})",
                                 R"({"event": "plan"} {})",
                                 R"({"event": "plan", "texts": "1"})",
                                 R"({"event": "plan", "texts": 1.5})",
                                 R"({"event": "plan", "texts": 1e30})",
                                 R"({"event": "plan", "texts": 18446744073709551615})",
                                 R"({"event": "plan", "texts": 99999999999999999999})",
                                 R"({"event": "plan", "precision": 1})",
                                 R"({"event": "progress", "loss": NaN})",
                                 R"({"event": "progress", "loss": 1e999})",
                                 R"({"event": "progress", "loss": [1]})",
                                 R"({"event": "evaluation", "greedy": 1})",
                                 R"({"event": "evaluation", "greedy": [null]})",
                                 R"({"event": "evaluation", "best": 1})",
                                 R"({"event": "done", "acceptance": [1]})"}) {
    SCOPED_TRACE(line);
    const std::string error = message([&] { parse_training_event(line); });
    EXPECT_TRUE(error.starts_with("the trainer said \"")) << error;
    EXPECT_TRUE(error.ends_with("expected an event as JSON")) << error;
  }
  EXPECT_LT(message([&] { parse_training_event(std::string(100'000, 'x')); }).size(), 200u);
}

}  // namespace
}  // namespace outrider
