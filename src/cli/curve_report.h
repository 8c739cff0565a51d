// The results of bench curve, as JSON and as tables: medians, ranges, and how near they come to the
// machine's limits.

#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/limit_samples.h"
#include "model/pass_profile.h"

namespace outrider {

inline constexpr int kCurveRows = 32;     // T(1) to T(32), with logits for each row
inline constexpr int kFewRows = 4;        // T(1) to T(4) are measured one right after the other
inline constexpr int kPrefillRows = 512;  // and one longer pass, with logits for its last row

struct CurveSubject {
  std::string model;  // as the user named it
  const Model& weights;
  const LoadOptions& options;
  MemoryNeed memory;
  std::string instruction_set;
  int depth = 0;  // committed positions before each pass
};

struct CurveMeasurements {
  double load_seconds = 0;           // from the file's name to a loaded model
  double prompt_ms = 0;              // reading `depth` positions
  std::uint64_t resident_bytes = 0;  // of the process, after the largest pass
  LimitSamples limits;
  // Milliseconds, one or several per round.
  std::array<std::vector<double>, kCurveRows + 1> passes;  // [rows]
  std::vector<double> prefill;
  std::map<int, PassProfile> profiles = {{1, {}}, {4, {}}, {8, {}}, {16, {}}};
};

// The share of the reading limit that passes reached which read so many bytes each. passes: in
// milliseconds; gbs: the limit, in 10^9 bytes per second. If there is a limit for each pass, just
// before it, the median of the shares one by one, because memory changes its rate; else of medians.
double read_share(std::span<const double> passes, std::span<const double> gbs, double bytes);

// The median of T(1) / T(n), each of passes one right after the other; 2 <= n <= kFewRows. A pass
// over one row has the least to do: above 1.03, its way of reading weights does not suit the
// machine.
double one_row_over(const CurveMeasurements& measured, int n);
// A remark, if that is so for any n; empty if not.
std::string one_row_remark(const CurveMeasurements& measured);

Json curve_json(const CurveSubject& subject, const CurveMeasurements& measured, bool profile);
// Of the settings it reads profile, and all (every number of rows instead of the usual ones).
std::string curve_text(const CurveSubject& subject, const CurveMeasurements& measured,
                       const Settings& settings);

}  // namespace outrider
