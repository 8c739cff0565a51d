// T(n): the time of a pass over n rows, measured together with the machine's limits, which change
// from minute to minute.

#include <algorithm>
#include <chrono>

#include "base/bytes.h"
#include "base/machine.h"
#include "cli/curve_report.h"
#include "cli/generate.h"
#include "cli/signals.h"

namespace outrider {
namespace {

constexpr int kRoundsLeast = 5;    // per --repeat
constexpr double kTotalMs = 8000;  // more rounds until this has passed, per --repeat
constexpr int kRoundsMax = 100;
// The rate of memory changes within tenths of a second. So its limit, and passes over few rows,
// which wait for memory alone, are measured several times per round: before every kBetweenFew
// numbers of rows.
constexpr int kBetweenFew = 8;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

enum class Logits { all, last, none };

// Passes over chains of rows at the end of a sequence's text. Their tokens are arbitrary, since the
// time does not depend on them.
class Passes {
 public:
  explicit Passes(Backend& backend) : backend_(backend), own_(backend) {}

  // A pass over n_rows, discarded afterwards. Returns its milliseconds.
  double time(int n_rows, Logits logits, PassProfile* profile = nullptr) {
    const std::vector<Row> rows = chain(n_rows, logits);
    ForwardOptions options;
    options.profile = profile;
    const Clock::time_point start = Clock::now();
    backend_.forward(rows, options);
    const double ms = ms_since(start);
    backend_.discard(sequence_);
    return ms;
  }

  // Adds n_rows to the text.
  void read(int n_rows) {
    backend_.commit(sequence_, backend_.forward(chain(n_rows, Logits::none)).slots);
  }

 private:
  std::vector<Row> chain(int n_rows, Logits logits) const {
    const int first = backend_.committed(sequence_);
    std::vector<Row> rows;
    for (int i = 0; i < n_rows; ++i) {
      const bool last = i + 1 == n_rows;
      rows.push_back({.sequence = sequence_,
                      .token = (first + i) * 37 % backend_.spec().vocabulary,
                      .position = first + i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = logits == Logits::all || (logits == Logits::last && last)});
    }
    return rows;
  }

  Backend& backend_;
  const OwnedSequence own_;
  const SequenceId sequence_ = own_.id();
};

int bench_curve(const Machine& machine, const Settings& settings) {
  Settings fixed = settings;
  fixed.ctx_size = settings.depth + kPrefillRows;
  Console console(settings);
  CurveMeasurements measured;
  const Clock::time_point load_start = Clock::now();
  Workbench bench(machine, fixed, {}, console);
  measured.load_seconds = ms_since(load_start) * 1e-3;
  Backend& backend = bench.target();
  Passes passes(backend);

  const Clock::time_point prompt_start = Clock::now();
  for (int read = 0; read < settings.depth;) {
    const int rows = std::min(kPrefillRows, settings.depth - read);
    passes.read(rows);
    read += rows;
    stop_if_interrupted();
    console.advance("reading", static_cast<double>(read) / settings.depth);
  }
  measured.prompt_ms = ms_since(prompt_start);

  // The first use of memory is not measured.
  passes.time(kPrefillRows, Logits::last);
  passes.time(kCurveRows, Logits::all);
  measured.resident_bytes = resident_bytes();
  const auto meter = machine.make_limit_meter(bench.n_threads());

  const int rounds_least = kRoundsLeast * settings.repetitions;
  const double total_ms = kTotalMs * settings.repetitions;
  const Clock::time_point start = Clock::now();
  // Numbers of rows alternate, so that a slow moment does not affect one of them alone.
  for (int round = 0; round < rounds_least || (round < kRoundsMax && ms_since(start) < total_ms);
       ++round) {
    const auto time = [&](int rows) {
      measured.passes[static_cast<std::size_t>(rows)].push_back(passes.time(rows, Logits::all));
      stop_if_interrupted();
    };
    for (int rows = 0; rows < kCurveRows; ++rows) {
      if (rows % kBetweenFew == 0) {
        measured.limits.add(meter->measure(bench.n_threads()));
        passes.time(1, Logits::all);  // the meter has evicted the model from the caches
        for (int few = 1; few <= kFewRows; ++few) time(few);
      }
      if (rows + 1 > kFewRows) time(rows + 1);
    }
    measured.prefill.push_back(passes.time(kPrefillRows, Logits::last));
    if (settings.profile) {
      for (auto& [rows, profile] : measured.profiles) passes.time(rows, Logits::all, &profile);
    }
    stop_if_interrupted();
    console.advance("measuring", std::min(static_cast<double>(round + 1) / rounds_least,
                                          ms_since(start) / total_ms));
  }
  console.clear();
  const CurveSubject subject{.model = bench.model().name,
                             .weights = bench.model().model,
                             .options = backend.options(),
                             .memory = bench.memory(),
                             .instruction_set = bench.device_name(),
                             .depth = settings.depth};
  if (settings.json) {
    write_json(curve_json(subject, measured, settings.profile));
  } else {
    write_output(curve_text(subject, measured, settings));
  }
  return kDone;
}

}  // namespace

Command bench_curve_command() {
  return {
      .name = "bench curve",
      .summary = "measure the cost of a pass over 1 to 32 rows",
      .description =
          "Measures T(n), the time of one pass over n rows (tokens) with logits for each, and a "
          "pass over 512 rows with logits for the last only. The machine's limits, reading "
          "memory and int8 arithmetic, are measured in the same rounds.",
      .flag_set = FlagSet::loading,
      .flags = {"--repeat", "--depth", "--all", "--profile"},
      .run = bench_curve};
}

}  // namespace outrider
