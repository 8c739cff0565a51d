#include "cli/curve_report.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/machine.h"
#include "cli/thread_count.h"

namespace outrider {
namespace {

constexpr int kShownRows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

// The unit that multiplies weights with this instruction set; nothing if its limit is not measured.
std::optional<std::string_view> work_unit(std::string_view instruction_set) {
  if (instruction_set == "amx") return "amx_tops";
  if (instruction_set == "avx512" || instruction_set == "avxvnni") return "int8_tops";
  if (instruction_set == "avx2") return "avx2_tops";
  return {};
}

// The least time that the machine's limits allow, in milliseconds.
class Bounds {
 public:
  Bounds(const CurveSubject& subject, const CurveMeasurements& measured)
      : bytes_(static_cast<double>(bytes_per_token(subject.weights))),
        weights_(static_cast<double>(weights_per_token(subject.weights))),
        head_(static_cast<double>(subject.weights.spec.embedding) *
              subject.weights.spec.vocabulary),
        reading_gbs_(measured.limits.reading_gbs()),
        read_gbs_(spread(reading_gbs_).median) {
    if (const auto unit = work_unit(subject.instruction_set))
      tops_ = measured.limits.unit(*unit).tera.max;
  }

  double read_ms() const { return bytes_ / (read_gbs_ * 1e6); }
  // Two operations per weight and row; 0 without a limit.
  double work_ms(int rows) const { return tops_ > 0 ? rows * 2 * weights_ / (tops_ * 1e9) : 0; }
  // The head is computed for the last row only.
  double prefill_work_ms() const {
    return tops_ > 0 ? kPrefillRows * 2 * (weights_ - head_) / (tops_ * 1e9) : 0;
  }
  double ms(int rows) const { return std::max(read_ms(), work_ms(rows)); }
  double read_share(std::span<const double> passes) const {
    return outrider::read_share(passes, reading_gbs_, bytes_);
  }
  double prefill_ms() const { return std::max(read_ms(), prefill_work_ms()); }
  // For the weights of one operation of a pass.
  double ms(int rows, const PassProfile::Operation& part) const {
    return std::max(part.weight_bytes / (read_gbs_ * 1e6),
                    tops_ > 0 ? rows * 2 * part.weights / (tops_ * 1e9) : 0);
  }

 private:
  double bytes_, weights_, head_;
  std::vector<double> reading_gbs_;  // one by one
  double read_gbs_;                  // their median
  double tops_ = 0;
};

double median_of(const CurveMeasurements& measured, int rows) {
  return spread(measured.passes[static_cast<std::size_t>(rows)]).median;
}

std::string ms_range(const Spread& ms) {
  return fmt::format("{:.2f}..{:.2f}", ms.min, ms.max);
}

std::string percent(double part, double whole) {
  return part > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : "-";
}

double total_ms(const PassProfile::Operation& operation) {
  return operation.work_ms + operation.wait_ms;
}

Json profile_json(int rows, const PassProfile& profile, const Bounds& bounds) {
  Json operations = Json::array();
  for (const PassProfile::Operation& operation : profile.operations) {
    operations.push_back({{"name", operation.name},
                          {"work_ms", operation.work_ms / profile.passes},
                          {"wait_ms", operation.wait_ms / profile.passes},
                          {"limit_ms", bounds.ms(rows, operation)},
                          {"weight_bytes", operation.weight_bytes},
                          {"weights", operation.weights}});
  }
  return {{"rows", rows}, {"passes", profile.passes}, {"operations", operations}};
}

// Three digits, so that eight columns beside the names fit into 80 characters.
std::string short_ms(double ms) {
  return fmt::format("{:.{}f}", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

// The cost of an operation, or of several.
struct Cost {
  double total_ms = 0;  // over all passes that were measured
  double limit_ms = 0;  // for one pass; 0 if no weights are read
};

// A line per operation, with two columns for each number of rows: its milliseconds per pass,
// waiting for other threads included, and its limit.
std::string profile_text(const std::map<int, PassProfile>& profiles, const Bounds& bounds,
                         int width) {
  if (profiles.begin()->second.operations.empty())
    return "This device does not measure where its time goes.\n";
  std::vector<std::string> header = {"milliseconds"};
  for (const auto& [rows, profile] : profiles) {
    header.push_back(fmt::format("T({})", rows));
    header.push_back("lim.");
  }
  Table table(header, fmt::format("l{:r>{}}", "", header.size() - 1));
  const auto add = [&](std::string name, const auto& cost) {
    std::vector<std::string> cells = {std::move(name)};
    for (const auto& [rows, profile] : profiles) {
      const Cost found = cost(rows, profile);
      cells.push_back(short_ms(found.total_ms / profile.passes));
      cells.push_back(found.limit_ms > 0 ? short_ms(found.limit_ms) : "");
    }
    table.add(std::move(cells));
  };
  const auto sum = [](const PassProfile& profile, const auto& ms) {
    double total = 0;
    for (const PassProfile::Operation& operation : profile.operations) total += ms(operation);
    return total;
  };
  const std::size_t n_operations = profiles.begin()->second.operations.size();
  for (std::size_t i = 0; i < n_operations; ++i) {
    const std::string_view name = profiles.begin()->second.operations[i].name;
    add(std::string(name), [&](int rows, const PassProfile& profile) {
      const PassProfile::Operation& operation = profile.operations[i];
      return Cost{total_ms(operation), bounds.ms(rows, operation)};
    });
  }
  add("whole pass", [&](int rows, const PassProfile& profile) {
    return Cost{sum(profile, total_ms), bounds.ms(rows)};
  });
  add("of which waiting", [&](int, const PassProfile& profile) {
    return Cost{sum(profile, [](const auto& operation) { return operation.wait_ms; })};
  });
  return table.text(width);
}

}  // namespace

double read_share(std::span<const double> passes, std::span<const double> gbs, double bytes) {
  if (passes.size() != gbs.size())
    return bytes / (spread(gbs).median * 1e6) / spread(passes).median;
  std::vector<double> shares;
  for (std::size_t i = 0; i < passes.size(); ++i)
    shares.push_back(bytes / (gbs[i] * 1e6) / passes[i]);
  return spread(shares).median;
}

double one_row_over(const CurveMeasurements& measured, int n) {
  const std::vector<double>&one = measured.passes[1],
        &more = measured.passes[static_cast<std::size_t>(n)];
  std::vector<double> ratios;
  for (std::size_t i = 0; i < one.size() && i < more.size(); ++i)
    ratios.push_back(one[i] / more[i]);
  return spread(ratios).median;
}

std::string one_row_remark(const CurveMeasurements& measured) {
  constexpr double kTolerated = 1.03;
  std::vector<std::string> slower;
  for (int n = 2; n <= kFewRows; ++n) {
    const double over = one_row_over(measured, n);
    if (over > kTolerated) slower.push_back(fmt::format("{:.2f} times T({})", over, n));
  }
  if (slower.empty()) return "";
  return fmt::format(
      "T(1) is {}: one row's weights are read slower than this machine can read them",
      fmt::join(slower, ", "));
}

Json curve_json(const CurveSubject& subject, const CurveMeasurements& measured, bool profile) {
  const Bounds bounds(subject, measured);
  const LimitSamples::Pattern reading = measured.limits.reading();
  Json rows = Json::array(), ms = Json::array(), min = Json::array(), max = Json::array(),
       limit = Json::array(), reading_share = Json::array();
  for (int n = 1; n <= kCurveRows; ++n) {
    const Spread pass = spread(measured.passes[static_cast<std::size_t>(n)]);
    rows.push_back(n);
    ms.push_back(pass.median);
    min.push_back(pass.min);
    max.push_back(pass.max);
    limit.push_back(bounds.ms(n));
    reading_share.push_back(bounds.read_share(measured.passes[static_cast<std::size_t>(n)]));
  }
  const Spread prefill = spread(measured.prefill);
  Json document = {{"schema", 1},
                   {"model", subject.model},
                   {"threads", subject.options.n_threads},
                   {"cores", std::min(subject.options.n_threads, usable_cores())},
                   {"instruction_set", subject.instruction_set},
                   {"depth", subject.depth},
                   {"rounds", measured.prefill.size()},
                   {"rows", rows},
                   {"ms", ms},
                   {"ms_min", min},
                   {"ms_max", max},
                   {"limit_ms", limit},
                   {"reading_share", reading_share},
                   {"prefill",
                    {{"rows", kPrefillRows},
                     {"ms", prefill.median},
                     {"ms_min", prefill.min},
                     {"ms_max", prefill.max},
                     {"limit_ms", bounds.prefill_ms()}}},
                   {"bytes_per_token", bytes_per_token(subject.weights)},
                   {"weights_per_token", weights_per_token(subject.weights)},
                   {"read_gbs", reading.gbs.median},
                   {"read_gbs_min", reading.gbs.min},
                   {"read_gbs_max", reading.gbs.max},
                   {"read_pattern", reading.name}};
  for (const LimitSamples::Unit& unit : measured.limits.units()) document[unit.key] = unit.tera.max;
  document["load_seconds"] = measured.load_seconds;
  document["memory"] = {{"resident", measured.resident_bytes},
                        {"weights", subject.memory.weights},
                        {"cache", subject.memory.cache}};
  for (int n = 2; n <= kFewRows; ++n)
    document["one_row_over"][std::to_string(n)] = one_row_over(measured, n);
  if (subject.depth > 0) document["prompt_ms"] = measured.prompt_ms;
  if (profile) {
    Json profiles = Json::array();
    for (const auto& [n, of_n] : measured.profiles)
      profiles.push_back(profile_json(n, of_n, bounds));
    document["profile"] = profiles;
  }
  return document;
}

std::string curve_text(const CurveSubject& subject, const CurveMeasurements& measured,
                       const Settings& settings) {
  const Bounds bounds(subject, measured);
  const LimitSamples::Pattern reading = measured.limits.reading();
  const auto unit = work_unit(subject.instruction_set);
  const int width = output_width();

  Table table({"rows", "ms", "range", "T(n)/T(1)", "limit ms", "reading", "work"}, "rrrrrrr");
  const double one = median_of(measured, 1);
  const auto add = [&](std::string name, std::span<const double> passes, double limit,
                       double work) {
    const Spread ms = spread(passes);
    table.add({std::move(name), fmt::format("{:.2f}", ms.median), ms_range(ms),
               fmt::format("{:.2f}", ms.median / one), fmt::format("{:.2f}", limit),
               percent(bounds.read_share(passes), 1), percent(work, ms.median)});
  };
  for (int rows = 1; rows <= kCurveRows; ++rows) {
    if (!settings.all && std::ranges::find(kShownRows, rows) == std::end(kShownRows)) continue;
    add(fmt::format("{}", rows), measured.passes[static_cast<std::size_t>(rows)], bounds.ms(rows),
        bounds.work_ms(rows));
  }
  add(fmt::format("{}*", kPrefillRows), measured.prefill, bounds.prefill_ms(),
      bounds.prefill_work_ms());

  std::string text = table.text(width);
  text += "\n";
  const auto say = [&](const std::string& line) {
    text += wrap(line, width, 2);
    text += "\n";
  };
  say(fmt::format(
      "Medians of {} rounds{}. reading, work: shares of the limits, measured in the same "
      "rounds. *: logits of the last row only.",
      measured.prefill.size(),
      subject.depth ? fmt::format(" after {} positions", subject.depth) : ""));
  say(fmt::format("reading: {:.1f} GB/s ({:.1f}..{:.1f}; {}), {} per token", reading.gbs.median,
                  reading.gbs.min, reading.gbs.max, reading.name,
                  human_bytes(bytes_per_token(subject.weights))));
  if (unit) {
    const LimitSamples::Unit work = measured.limits.unit(*unit);
    say(fmt::format("work: {}, {:.3f}e12/s ({:.3f}..{:.3f}), {:.3f}e9 per row", work.title,
                    work.tera.max, work.tera.min, work.tera.max,
                    2e-9 * static_cast<double>(weights_per_token(subject.weights))));
  }
  say(fmt::format("{}: {}, {}; loaded in {:.2f} s; {} of memory, weights {}, cache {}",
                  subject.model, threads_text(subject.options.n_threads), subject.instruction_set,
                  measured.load_seconds, human_bytes(measured.resident_bytes),
                  human_bytes(subject.memory.weights), human_bytes(subject.memory.cache)));
  if (subject.depth) {
    say(fmt::format("reading {} positions took {:.2f} s, {:.2f} ms per position", subject.depth,
                    measured.prompt_ms * 1e-3, measured.prompt_ms / subject.depth));
  }
  if (const std::string remark = one_row_remark(measured); !remark.empty()) say(remark);
  if (settings.profile) text += fmt::format("\n{}", profile_text(measured.profiles, bounds, width));
  return text;
}

}  // namespace outrider
