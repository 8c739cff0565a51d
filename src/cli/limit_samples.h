// The machine's limits, measured several times, in turn with what is compared with them.

#pragma once

#include <string>
#include <vector>

#include "base/machine_limits.h"
#include "cli/spread.h"

namespace outrider {

class LimitSamples {
 public:
  struct Pattern {
    std::string name;
    Spread gbs;
  };
  // A limit on computing: its names in JSON and in tables, and 10^12 operations per second; 0 where
  // the machine lacks the instructions.
  struct Unit {
    const char *key, *title;
    Spread tera;
  };

  // Every call with limits of the same meter.
  void add(MachineLimits limits);

  std::vector<Pattern> patterns() const;
  // The pattern with the best median. Maxima are not compared: a short burst can be faster on a
  // shared machine than any whole pass.
  Pattern reading() const;
  std::vector<double> reading_gbs() const;  // of this pattern, [calls of add]
  // int8_tops, avx2_tops, amx_tops, f32_tflops.
  std::vector<Unit> units() const;
  Unit unit(std::string_view key) const;

 private:
  std::vector<MachineLimits> rounds_;
};

}  // namespace outrider
