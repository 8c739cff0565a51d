#include <fstream>

#include "base/processor.h"

namespace outrider {

// FPCR with all bits zero: IEEE 754's default, and NaN operands keep their payload.
IeeeFloats::IeeeFloats() {
  asm volatile("mrs %0, fpcr" : "=r"(control_before_));
  asm volatile("msr fpcr, xzr" ::: "memory");
}

IeeeFloats::~IeeeFloats() {
  asm volatile("msr fpcr, %0" ::"r"(control_before_) : "memory");
}

// YIELD does nothing on processors that run one thread per core; ISB takes about as long as PAUSE
// does on x86.
void spin_pause() {
  asm volatile("isb" ::: "memory");
}

std::uint64_t ticks() {
  std::uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
}

const InstructionSets& instruction_sets() {
  static constexpr InstructionSets kNone;
  return kNone;
}

// Arm's processors have no name to read, but a number for implementer, part and revision.
std::string processor_name() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  std::string number;
  return file >> number ? "arm64 (midr " + number + ")" : "arm64";
}

}  // namespace outrider
