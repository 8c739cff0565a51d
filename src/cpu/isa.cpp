#include "cpu/isa.h"

#include <cpuid.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace outrider {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf) {
  Registers r;
  __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);  // an unknown leaf leaves zeros
  return r;
}

// The register states that the operating system saves and restores.
std::uint64_t enabled_states() {
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

Isa best_isa() {
  const Registers basic = cpuid(1), extended = cpuid(7);
  if (!(basic.c & bit_OSXSAVE)) return Isa::reference;
  const std::uint64_t states = enabled_states();
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6;
  constexpr unsigned kAvx2Basic = bit_AVX | bit_FMA | bit_F16C;
  if ((states & kYmm) != kYmm || (basic.c & kAvx2Basic) != kAvx2Basic || !(extended.b & bit_AVX2)) {
    return Isa::reference;
  }
  constexpr unsigned kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
  if ((states & kZmm) != kZmm || (extended.b & kAvx512) != kAvx512 ||
      !(extended.c & bit_AVX512VNNI)) {
    return Isa::avx2;
  }
  return Isa::avx512;
}

constexpr Isa kAll[] = {Isa::reference, Isa::avx2, Isa::avx512};

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::reference: return "reference";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "";
}

std::span<const Isa> available_isas() {
  static const Isa best = best_isa();
  return std::span(kAll).first(static_cast<std::size_t>(best) + 1);
}

Isa chosen_isa() {
  const std::span<const Isa> available = available_isas();
  const char* forced = std::getenv("OUTRIDER_ISA");
  if (forced == nullptr || *forced == '\0') return available.back();
  std::string names;
  for (const Isa isa : available) {
    if (name(isa) == forced) return isa;
    names += names.empty() ? "" : ", ";
    names += name(isa);
  }
  throw Error("OUTRIDER_ISA={}: this machine has {}", forced, names);
}

}  // namespace outrider
