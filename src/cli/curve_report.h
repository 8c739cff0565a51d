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
  double prompt_ms = 0;              // prefill of `depth` positions
  std::uint64_t resident_bytes = 0;  // of the process, after the largest pass
  LimitSamples limits;
  // Milliseconds, one or several per round.
  std::array<std::vector<double>, kCurveRows + 1> passes;  // [rows]
  std::vector<double> prefill;
  std::map<int, PassProfile> profiles = {{1, {}}, {4, {}}, {8, {}}, {16, {}}};
};

// The share of the reading limit that passes reached. bytes: what one pass reads; passes: their
// milliseconds; gbs: the limit, in 10^9 bytes per second. With as many limits as passes, each
// measured just before its pass, the median of the shares one by one, because memory changes its
// rate; else the share of the medians.
double read_share(std::span<const double> passes, std::span<const double> gbs, double bytes);

// The median of T(1) / T(n) over pairs of passes one right after the other; 2 <= n <= kFewRows. A
// pass over one row has the least to do: above 1.03, its prefetch pattern does not suit the
// machine.
double one_row_over(const CurveMeasurements& measured, int n);
// A line for the user if that is above 1.03 for any n; else empty.
std::string one_row_remark(const CurveMeasurements& measured);

Json curve_json(const CurveSubject& subject, const CurveMeasurements& measured, bool profile);
// Of the settings it reads profile, and all (every number of rows instead of the usual ones).
std::string curve_text(const CurveSubject& subject, const CurveMeasurements& measured,
                       const Settings& settings);

}  // namespace outrider
