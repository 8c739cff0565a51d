#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cstring>

#include "base/processor.h"

namespace outrider {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // an unknown leaf leaves zeros
  return r;
}

// Bits of leaf 7 that <cpuid.h> names differently from compiler to compiler.
constexpr unsigned kAmxTileD = 1u << 24, kAmxInt8D = 1u << 25;
constexpr unsigned kAvxVnniOfSubleaf1A = 1u << 4;

// The register states that the operating system saves and restores.
std::uint64_t enabled_states() {
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

// Linux makes room for a thread's tiles only in processes that ask
// (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_all(unsigned found, unsigned wanted) {
  return (found & wanted) == wanted;
}

InstructionSets identify() {
  InstructionSets sets;
  const Registers basic = cpuid(1), extended = cpuid(7), extended1 = cpuid(7, 1);
  if (!(basic.c & bit_OSXSAVE)) return sets;
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  const std::uint64_t states = enabled_states();
  const auto saved = [&](std::uint64_t wanted) { return (states & wanted) == wanted; };
  sets.avx2 = saved(kYmm) && has_all(basic.c, bit_AVX | bit_FMA | bit_F16C) &&
              has_all(extended.b, bit_AVX2);
  sets.avxvnni_vex = sets.avx2 && has_all(extended1.a, kAvxVnniOfSubleaf1A);
  sets.avx512 = sets.avx2 && saved(kZmm) &&
                has_all(extended.b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL) &&
                has_all(extended.c, bit_AVX512VNNI);
  sets.amx =
      sets.avx512 && saved(kTiles) && has_all(extended.d, kAmxTileD | kAmxInt8D) && may_use_tiles();
  return sets;
}

std::string brand() {
  constexpr unsigned kFirst = 0x8000'0002, kLeaves = 3;
  char text[kLeaves * sizeof(Registers) + 1] = {};
  for (unsigned i = 0; i < kLeaves; ++i) {
    const Registers r = cpuid(kFirst + i);
    std::memcpy(text + i * sizeof r, &r, sizeof r);
  }
  const std::string padded(text);
  const auto first = padded.find_first_not_of(' ');
  if (first == padded.npos) return "x86";
  return padded.substr(first, padded.find_last_not_of(' ') + 1 - first);
}

// MXCSR's state at power-on.
constexpr unsigned kIeeeControl = 0x1f80;

}  // namespace

IeeeFloats::IeeeFloats() : control_before_(_mm_getcsr()) {
  _mm_setcsr(kIeeeControl);
}

IeeeFloats::~IeeeFloats() {
  _mm_setcsr(static_cast<unsigned>(control_before_));
}

void spin_pause() {
  _mm_pause();
}

std::uint64_t ticks() {
  return __rdtsc();
}

const InstructionSets& instruction_sets() {
  static const InstructionSets sets = identify();
  return sets;
}

std::string processor_name() {
  // AMD's and Intel's manuals, cpuid leaf 1: an extended field counts where the family is 6 or 15.
  const unsigned signature = cpuid(1).a;
  unsigned family = signature >> 8 & 0xf, model = signature >> 4 & 0xf;
  if (family == 6 || family == 15) model += (signature >> 16 & 0xf) << 4;
  if (family == 15) family += signature >> 20 & 0xff;
  return fmt::format("{} (family {}, model {})", brand(), family, model);
}

}  // namespace outrider
