// What C++ does not offer of a processor; each architecture has a file of its own, such as
// processor_x86.cpp.

#pragma once

#include <cstdint>
#include <string>

namespace outrider {

// While one exists, the thread that made it computes by IEEE 754's defaults: rounding to nearest
// even, subnormals kept, no traps (docs/arithmetic.md, rule 1). That thread must end it, and then
// has the settings that it had before.
class IeeeFloats {
 public:
  IeeeFloats();
  ~IeeeFloats();
  IeeeFloats(const IeeeFloats&) = delete;
  IeeeFloats& operator=(const IeeeFloats&) = delete;

 private:
  std::uint64_t control_before_;
};

// For loops that wait for memory to change: leaves the core's resources to others for some
// nanoseconds.
void spin_pause();

// A counter that is cheap to read, the same on all cores, at a rate that is constant but not known.
std::uint64_t ticks();

// What this processor has and the operating system lets this process use.
struct InstructionSets {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avxvnni_vex = false;  // AVX-VNNI: VNNI on 256 bits, encoded as AVX2 is
  bool avx512 = false;       // AVX-512 F, BW, VL and VNNI
  bool amx = false;          // AMX-TILE and AMX-INT8
};

// The first call asks Linux for the tiles of AMX, for all threads of the process.
const InstructionSets& instruction_sets();

// "AMD EPYC (family 25, model 17)": what the processor calls itself, and what tells its generation
// where a host hides the full name.
std::string processor_name();

}  // namespace outrider
