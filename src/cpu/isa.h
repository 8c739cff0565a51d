// Which instruction sets this machine has, and which one the kernels use.

#pragma once

#include <span>
#include <string_view>

namespace outrider {

// A machine that has one of them has those before it.
//   avx2     AVX2, FMA, F16C
//   avxvnni  and VNNI on 256 bits, in either of its encodings
//   avx512   and AVX-512 F, BW, VL, VNNI
//   amx      and AMX-TILE, AMX-INT8, and the operating system's leave to use tiles
enum class Isa { reference, avx2, avxvnni, avx512, amx };

std::string_view name(Isa isa);
// All that this machine and its operating system can run, the best last. The first call asks Linux
// for tiles, for all threads of the process.
std::span<const Isa> available_isas();
bool is_available(Isa isa);
// The one named by the environment variable OUTRIDER_ISA, else the best. Throws Error if the name
// is unknown or the machine lacks it.
Isa chosen_isa();

// VNNI's instructions on 256 bits compute the same in both encodings, of which a machine may have
// one or both: VEX is AVX-VNNI's (laptops), EVEX is AVX-512's.
enum class VnniEncoding { vex, evex };
// One that this machine has, VEX if both; it must have avxvnni.
VnniEncoding vnni_encoding();

}  // namespace outrider
