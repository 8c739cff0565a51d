#include <algorithm>
#include <chrono>

#include "cli/generate.h"
#include "cli/json.h"
#include "cli/signals.h"

namespace outrider {
namespace {

constexpr int kRowsMax = 32;
constexpr int kContext = 256;      // of the cache; passes stand at its beginning
constexpr int kHistory = 32;       // committed positions before them
constexpr int kRounds = 5;         // at least, of every count of rows
constexpr double kTotalMs = 4000;  // then until this has passed
constexpr int kRoundsMax = 100;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// A chain of rows from the end of the history; which tokens they hold does not matter for time.
std::vector<Row> chain(SequenceId sequence, const Backend& backend, int count, bool wants_logits) {
  const int first = backend.committed(sequence);
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back({.sequence = sequence,
                    .token = (first + i) * 37 % backend.spec().vocabulary,
                    .position = first + i,
                    .parent = i == 0 ? Parent{CommittedText{}} : Parent{EarlierRow{i - 1}},
                    .wants_logits = wants_logits});
  }
  return rows;
}

}  // namespace

int bench_curve_command(const Device& device, const Settings& settings) {
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  Settings fixed = settings;
  fixed.ctx_size = kContext;
  Console console(settings);
  Workbench bench(device, fixed, {}, console);
  Backend& backend = *bench.target();

  const SequenceId sequence = backend.begin();
  backend.commit(sequence, backend.forward(chain(sequence, backend, kHistory, false)).slots);
  const auto time = [&](int n_rows) {
    const std::vector<Row> rows = chain(sequence, backend, n_rows, true);
    const Clock::time_point start = Clock::now();
    backend.forward(rows);
    const double ms = ms_since(start);
    backend.discard(sequence);
    return ms;
  };

  // The machine's limits before and after, for its neighbours come and go: the better one is what
  // it can do.
  double read = 0, int8 = 0;
  const auto measure_limits = [&] {
    read = std::max(read, device.read_gbs(bench.n_threads()));
    stop_if_interrupted();
    int8 = std::max(int8, device.int8_tops(bench.n_threads()));
    stop_if_interrupted();
  };
  measure_limits();
  time(kRowsMax);  // first touches of memory
  std::vector<std::vector<double>> samples(kRowsMax + 1);
  const int rounds_least = kRounds * settings.repetitions;
  const double total_ms = kTotalMs * settings.repetitions;
  const Clock::time_point start = Clock::now();
  // Counts alternate, so that a slow moment does not fall on one of them.
  for (int round = 0; round < rounds_least || (round < kRoundsMax && ms_since(start) < total_ms);
       ++round) {
    for (int rows = 1; rows <= kRowsMax; ++rows) {
      samples[static_cast<std::size_t>(rows)].push_back(time(rows));
      stop_if_interrupted();
    }
    console.advance("measuring", std::min(static_cast<double>(round + 1) / rounds_least,
                                          ms_since(start) / total_ms));
  }
  measure_limits();
  backend.end(sequence);
  console.clear();

  const double bytes = static_cast<double>(bytes_per_token(bench.model()));
  const double weights = static_cast<double>(weights_per_token(bench.model()));
  Json rows_list = Json::array(), ms_list = Json::array();
  Table table({"rows", "ms", "T(n)/T(1)", "ms a row", "limit ms"}, "rrrrr");
  const double one = median(samples[1]);
  for (int rows = 1; rows <= kRowsMax; ++rows) {
    const double ms = median(samples[static_cast<std::size_t>(rows)]);
    rows_list.push_back(rows);
    ms_list.push_back(ms);
    // Two operations a weight and row.
    const double limit =
        std::max(bytes / (read * 1e6), int8 > 0 ? rows * 2 * weights / (int8 * 1e9) : 0);
    table.add({fmt::format("{}", rows), fmt::format("{:.2f}", ms), fmt::format("{:.2f}", ms / one),
               fmt::format("{:.2f}", ms / rows), fmt::format("{:.2f}", limit)});
  }
  if (settings.json) {
    write_json({{"schema", 1},
                {"model", bench.file().name},
                {"threads", bench.n_threads()},
                {"instruction_set", device.chosen_instruction_set()},
                {"rows", rows_list},
                {"ms", ms_list},
                {"bytes_per_token", bytes_per_token(bench.model())},
                {"weights_per_token", weights_per_token(bench.model())},
                {"read_gbs", read},
                {"int8_tops", int8}});
  } else {
    write_output(table.text(output_width()));
    write_output(
        fmt::format("{}: {} of weights a token; {} threads, {}; read {:.1f} GB/s, int8 {}\n",
                    bench.file().name, human_bytes(bytes_per_token(bench.model())),
                    bench.n_threads(), device.chosen_instruction_set(), read,
                    int8 > 0 ? fmt::format("{:.2f} TOPS", int8) : "without VNNI"));
    write_output(fmt::format("a row alone reads at {:.1f} GB/s, {:.0f}% of the machine's\n",
                             bytes / (one * 1e6), 100 * bytes / (one * 1e6) / read));
  }
  return kDone;
}

}  // namespace outrider
