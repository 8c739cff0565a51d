// Which instruction sets this processor has, and which one the kernels use.

#pragma once

#include <span>
#include <string_view>

namespace outrider {

// Each includes those before it. avx512 means F, BW, VL and VNNI; avx2 includes FMA and F16C.
enum class Isa { reference, avx2, avx512 };

std::string_view name(Isa isa);
// All that this machine and its operating system can run, the best last.
std::span<const Isa> available_isas();
// The one named by the environment variable OUTRIDER_ISA, else the best. Throws Error if the name
// is unknown or the machine lacks it.
Isa chosen_isa();

}  // namespace outrider
