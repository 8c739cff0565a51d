#include "training/trainer.h"

#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/embedded_file.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/new_file.h"
#include "formats/parse_json.h"
#include "formats/python_environment.h"

namespace outrider {

std::span<const EmbeddedFile> trainer_files();  // built from train/outrider_train

namespace {

namespace fs = std::filesystem;

// Exit statuses of the trainer.
constexpr int kRefused = 2, kStopped = 130;

// Python looks for modules in the environment and in the folder that comes first, nowhere else.
constexpr const char* kStart = R"(
import sys
try:
    import numpy, safetensors, torch
except (ImportError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)
import runpy
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("outrider_train", run_name="__main__", alter_sys=True)
)";

constexpr std::string_view kSpeaker = "outrider_train: ";  // begins what the trainer itself says
constexpr std::size_t kLineMax = 1 << 20;

// Cuts bytes that come in pieces into lines.
class LineSplitter {
 public:
  explicit LineSplitter(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  void add(std::span<const std::byte> bytes) {
    rest_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::size_t begin = 0;
    for (std::size_t end; (end = rest_.find('\n', begin)) != rest_.npos; begin = end + 1)
      take_(std::string_view(rest_).substr(begin, end - begin));
    rest_.erase(0, begin);
    if (rest_.size() > kLineMax) finish();
  }
  // What has no end yet is a line, too.
  void finish() {
    if (!rest_.empty()) take_(std::exchange(rest_, {}));
  }

 private:
  const std::function<void(std::string_view)> take_;
  std::string rest_;
};

// Hands on what the trainer says. The last line may be the error that ends it and is thrown, so
// each waits for another, an event or the end: how long Python takes to end, nobody knows.
class Messages {
 public:
  explicit Messages(const Progress& progress)
      : progress_(progress), lines_([this](std::string_view line) { hold(line); }) {}
  void add(std::span<const std::byte> bytes) { lines_.add(bytes); }
  // The trainer goes on.
  void tell() {
    const std::string line = std::exchange(held_, {});
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    if (!line.starts_with(kSpeaker)) {
      if (progress_.detail) progress_.detail(printable(line, 240));
    } else if (progress_.note) {
      progress_.note(printable(line.substr(kSpeaker.size()), 240));
    }
  }
  void finish() {
    lines_.finish();
    tell();
  }

 private:
  void hold(std::string_view line) {
    tell();
    held_ = line;
  }

  const Progress& progress_;
  LineSplitter lines_;
  std::string held_;
};

// Reads fields of an object; null is as good as none.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string_view line) : object_(object), line_(line) {
    if (!object.is_object()) refuse(line);
  }
  const nlohmann::json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void read(const char* key, std::optional<double>& value) const {
    if (const nlohmann::json* json = find(key)) value = number(*json);
  }
  void read(const char* key, std::optional<std::int64_t>& value) const {
    const nlohmann::json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_number_integer()) refuse(line_);
    if (json->is_number_unsigned() && json->get<std::uint64_t>() > INT64_MAX) refuse(line_);
    value = json->get<std::int64_t>();
  }
  void read(const char* key, std::optional<bool>& value) const {
    const nlohmann::json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_boolean()) refuse(line_);
    value = json->get<bool>();
  }
  void read(const char* key, std::optional<std::string>& value) const {
    const nlohmann::json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_string()) refuse(line_);
    value = json->get<std::string>();
  }
  void read(const char* key, std::vector<double>& values) const {
    const nlohmann::json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_array()) refuse(line_);
    for (const nlohmann::json& each : *json) values.push_back(number(each));
  }
  // Nothing if the key is missing.
  std::optional<Fields> object(const char* key) const {
    const nlohmann::json* json = find(key);
    return json == nullptr ? std::nullopt : std::optional(Fields(*json, line_));
  }
  [[noreturn]] static void refuse(std::string_view line) {
    throw Error("the trainer said \"{}\", expected an event as JSON", printable(line, 120));
  }

 private:
  double number(const nlohmann::json& json) const {
    if (!json.is_number()) refuse(line_);
    return json.get<double>();
  }

  const nlohmann::json& object_;
  const std::string_view line_;
};

HeldOutAcceptance acceptance_of(const Fields& fields) {
  HeldOutAcceptance acceptance;
  fields.read("greedy", acceptance.greedy);
  fields.read("sampled", acceptance.sampled);
  fields.read("length", acceptance.length);
  fields.read("greedy_length", acceptance.greedy_length);
  fields.read("sampled_length", acceptance.sampled_length);
  fields.read("covered", acceptance.covered);
  fields.read("positions", acceptance.positions);
  return acceptance;
}

TrainingEvent::Kind kind_of(const Fields& fields, std::string_view line) {
  using Kind = TrainingEvent::Kind;
  std::optional<std::string> said;
  fields.read("event", said);
  for (const auto& [kind, kind_name] :
       {std::pair(Kind::agreement, "agreement"), std::pair(Kind::plan, "plan"),
        std::pair(Kind::progress, "progress"), std::pair(Kind::evaluation, "evaluation"),
        std::pair(Kind::done, "done")})
    if (said == kind_name) return kind;
  Fields::refuse(line);
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool holds(const fs::path& path, std::string_view text) {
  std::error_code problem;
  if (fs::file_size(path, problem) != text.size() || problem) return false;
  return text.empty() || text_of(MappedFile(path)) == text;
}

// The folder in which Python finds the trainer, named by what it holds. Each file appears whole,
// and is written again if somebody changed it.
fs::path trainer_folder() {
  Sha256 hash;
  for (const EmbeddedFile& file : trainer_files()) {
    for (const std::string_view part : {file.name, file.text}) {
      const std::uint64_t size = part.size();
      hash.update(std::as_bytes(std::span(&size, 1)));
      hash.update(std::as_bytes(std::span(part)));
    }
  }
  fs::path folder =
      PythonEnvironment::folder().parent_path() / ("train-" + hash.hex().substr(0, 16));
  const fs::path package = folder / "outrider_train";
  std::error_code problem;
  fs::create_directories(package, problem);
  if (problem) {
    throw Error("{}: cannot be created: {}; OUTRIDER_CACHE can name another folder for it",
                package.string(), problem.message());
  }
  for (const EmbeddedFile& file : trainer_files()) {
    const fs::path path = package / file.name;
    if (holds(path, file.text)) continue;
    NewFile written(path);
    written.write(std::as_bytes(std::span(file.text)));
    written.complete();
  }
  return folder;
}

std::vector<std::string> arguments_of(const TrainingOptions& options) {
  // -I: neither the user's packages nor Python's variables. -B: no other files in the folder.
  std::vector<std::string> argv = {"-I", "-B", "-X", "utf8", "-c", kStart};
  argv.push_back(trainer_folder().string());
  argv.emplace_back(name(options.kind));
  argv.push_back("--features=" + options.features.string());
  argv.push_back("--out=" + options.out.string());
  argv.push_back(fmt::format("--hours={}", options.hours));
  const auto add = [&](const char* flag, const auto& value) {
    if (value) argv.push_back(fmt::format("--{}={}", flag, *value));
  };
  add("draft-rows", options.draft_rows);
  add("threads", options.threads);
  add("seed", options.seed);
  return argv;
}

// Why the trainer ended, in its own words if it had any.
std::string reason_of(const SubprocessResult& result) {
  std::string said = complaint(result.errors);
  if (said.starts_with(kSpeaker)) said.erase(0, kSpeaker.size());
  if (result.status == 128 + SIGKILL) return "it was killed, perhaps for lack of memory";
  if (!said.empty()) return said;
  return fmt::format("it ended with status {}", result.status);
}

}  // namespace

std::string_view name(TrainedKind kind) {
  return kind == TrainedKind::eagle3 ? "eagle3" : "medusa";
}

TrainingEvent parse_training_event(std::string_view line) {
  if (!is_json_text(line)) Fields::refuse(line);
  const nlohmann::json json = parse_json(line, "the trainer's event");
  const Fields fields(json, line);
  TrainingEvent event;
  event.kind = kind_of(fields, line);
  fields.read("done", event.done);
  fields.read("seconds", event.seconds);
  fields.read("step", event.step);
  fields.read("tokens", event.tokens);
  switch (event.kind) {
    case TrainingEvent::Kind::agreement:
      fields.read("share", event.agreement);
      fields.read("positions", event.agreement_positions);
      break;
    case TrainingEvent::Kind::plan:
      fields.read("texts", event.texts);
      fields.read("answer_tokens", event.answer_tokens);
      fields.read("held_out_texts", event.held_out_texts);
      fields.read("draft_rows", event.draft_rows);
      fields.read("parameters", event.parameters);
      fields.read("threads", event.threads);
      fields.read("resumed_at", event.resumed_at);
      fields.read("hours", event.hours);
      fields.read("steps", event.steps);
      fields.read("precision", event.precision);
      fields.read("device", event.device);
      break;
    case TrainingEvent::Kind::progress:
      fields.read("epoch", event.epoch);
      fields.read("depths", event.depths);
      fields.read("loss", event.loss);
      fields.read("cross_entropy", event.cross_entropy);
      fields.read("variation", event.variation);
      fields.read("tokens_per_second", event.tokens_per_second);
      fields.read("gflops", event.gflops);
      break;
    case TrainingEvent::Kind::evaluation:
      event.acceptance = acceptance_of(fields);
      fields.read("best", event.is_best);
      break;
    case TrainingEvent::Kind::done:
      if (const auto acceptance = fields.object("acceptance"))
        event.acceptance = acceptance_of(*acceptance);
      if (const auto agreement = fields.object("agreement")) {
        agreement->read("share", event.agreement);
        agreement->read("positions", event.agreement_positions);
      }
      fields.read("resumed", event.was_finished);
      break;
  }
  return event;
}

TrainingEvent train_head(const TrainingOptions& options,
                         const std::function<void(const TrainingEvent&)>& on_event) {
  const PythonEnvironment environment(options.out.string(), options.offline, options.progress);
  std::optional<TrainingEvent> done;
  Messages messages(options.progress);
  LineSplitter events([&](std::string_view line) {
    const TrainingEvent event = parse_training_event(line);
    messages.tell();
    if (event.kind == TrainingEvent::Kind::done) done = event;
    if (on_event) on_event(event);
  });
  SubprocessResult result;
  const fs::path drawing = PythonEnvironment::folder() / "matplotlib";
  try {
    result =
        environment.run({.argv = arguments_of(options),
                         // Curves look alike whatever the user has set for matplotlib.
                         .environment = {{"MPLCONFIGDIR", drawing.string()}, {"MPLBACKEND", "Agg"}},
                         .on_output = [&](std::span<const std::byte> bytes) { events.add(bytes); },
                         .on_error = [&](std::span<const std::byte> bytes) { messages.add(bytes); },
                         .grace = std::chrono::seconds(30)});
  } catch (...) {
    messages.finish();
    throw;
  }
  const std::string out = options.out.string();
  if (result.status == kRefused) throw Error("{}", reason_of(result));
  if (result.status == kStopped) {
    const std::string reason = reason_of(result);
    throw Error("{}: training was {}", out,
                reason.starts_with("stopped") ? reason : "stopped; the same command goes on");
  }
  if (result.status != 0) {
    messages.finish();
    throw Error("{}: training failed: {}", out, reason_of(result));
  }
  events.finish();
  messages.finish();
  if (!done) throw Error("{}: the trainer ended without saying that it is done", out);
  return *done;
}

}  // namespace outrider
