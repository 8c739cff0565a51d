// What C++ does not offer of a processor; each architecture has a file of its own, such as
// processor_x86.cpp.

#pragma once

#include <cstdint>

namespace outrider {

// IEEE 754's default arithmetic for the thread that makes it, until that thread ends it: rounding
// to nearest even, subnormals kept, no traps (docs/arithmetic.md, rule 1). Then the thread's state
// is what it was before.
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

// Those that this processor has and that the operating system lets this process use.
struct InstructionSets {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avxvnni_vex = false;  // AVX-VNNI: VNNI on 256 bits, encoded as AVX2 is
  bool avx512 = false;       // AVX-512 F, BW, VL and VNNI
  bool amx = false;          // AMX-TILE and AMX-INT8
};

// The first call asks Linux for the tiles of AMX, for all threads of the process.
const InstructionSets& instruction_sets();

}  // namespace outrider
