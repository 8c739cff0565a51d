// The machine's limits over several measurements, which alternate with what is held against them.

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
  // Name, for JSON and people, and what was measured; 0 where the machine has no such instruction.
  struct Unit {
    const char *key, *title;
    Spread tera;
  };

  // All of one meter.
  void add(Limits limits);

  std::vector<Pattern> patterns() const;
  // The pattern with the best median. A single burst may meet a quiet moment of a shared memory
  // that no pass of a model meets, so bests are not compared.
  Pattern reading() const;
  // int8_tops, avx2_tops, amx_tops, f32_tflops.
  std::vector<Unit> units() const;
  Unit unit(std::string_view key) const;

 private:
  std::vector<Limits> rounds_;
};

}  // namespace outrider
