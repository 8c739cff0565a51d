#include "cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/processor.h"

namespace outrider {
namespace {

// How much of what the enum Isa lists this machine has.
Isa best_isa() {
  const InstructionSets& sets = instruction_sets();
  if (sets.amx) return Isa::amx;
  if (sets.avx512) return Isa::avx512;
  if (sets.avxvnni_vex) return Isa::avxvnni;
  return sets.avx2 ? Isa::avx2 : Isa::reference;
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
  return instruction_sets().avxvnni_vex ? VnniEncoding::vex : VnniEncoding::evex;
}

}  // namespace outrider
