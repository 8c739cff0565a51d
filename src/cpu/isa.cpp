#include "cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"

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

// How much of what the enum Isa lists this machine has.
Isa best_isa() {
  const Registers basic = cpuid(1), extended = cpuid(7), extended1 = cpuid(7, 1);
  if (!(basic.c & bit_OSXSAVE)) return Isa::reference;
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  const std::uint64_t states = enabled_states();
  const auto saved = [&](std::uint64_t wanted) { return (states & wanted) == wanted; };
  if (!saved(kYmm) || !has_all(basic.c, bit_AVX | bit_FMA | bit_F16C) ||
      !has_all(extended.b, bit_AVX2)) {
    return Isa::reference;
  }
  const bool avx512 = saved(kZmm) &&
                      has_all(extended.b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL) &&
                      has_all(extended.c, bit_AVX512VNNI);
  if (!avx512) return has_all(extended1.a, kAvxVnniOfSubleaf1A) ? Isa::avxvnni : Isa::avx2;
  const bool amx = saved(kTiles) && has_all(extended.d, kAmxTileD | kAmxInt8D) && may_use_tiles();
  return amx ? Isa::amx : Isa::avx512;
}

constexpr Isa kAll[] = {Isa::reference, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::amx};

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::reference: return "reference";
    case Isa::avx2: return "avx2";
    case Isa::avxvnni: return "avxvnni";
    case Isa::avx512: return "avx512";
    case Isa::amx: return "amx";
  }
  return "";
}

std::span<const Isa> available_isas() {
  static const auto end = std::find(std::begin(kAll), std::end(kAll), best_isa()) + 1;
  return {std::begin(kAll), end};
}

bool is_available(Isa isa) {
  return std::ranges::find(available_isas(), isa) != available_isas().end();
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

VnniEncoding vnni_encoding() {
  static const bool has_vex = has_all(cpuid(7, 1).a, kAvxVnniOfSubleaf1A);
  return has_vex ? VnniEncoding::vex : VnniEncoding::evex;
}

}  // namespace outrider
