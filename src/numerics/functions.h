// The elementary functions of the arithmetic contract (docs/arithmetic.md, rule 4), each defined by
// its code here: fixed sequences of float operations and fused multiply-adds, no libm.
// cpu/kernels/vector_functions.h has them on vectors.
//
// At most 2 units in the last place from the exact value on every input (gelu: or 2^-22 |x|, if
// larger), subnormal results included. NaN gives NaN. The sign of a zero result is not promised.

#pragma once

namespace outrider {

// exp_f32(0) is exactly 1; +0 below -80 and for -inf; +inf above the largest finite result.
float exp_f32(float x);
// -inf for 0, NaN below 0.
float log_f32(float x);
// log(1 + x): -inf for -1, NaN below -1.
float log1p_f32(float x);
float tanh_f32(float x);
// 1 / (1 + exp(-x))
float sigmoid_f32(float x);
// x * sigmoid(x)
float silu_f32(float x);
// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), computed as x * sigmoid of twice that
// argument.
float gelu_tanh_f32(float x);

// What code and twins share. The polynomials are fitted by scripts/fit_functions.py, highest power
// first.
namespace function_constants {

// Adding and taking away 1.5 * 2^23 rounds to an integer, which is then in the low bits of the sum.
inline constexpr float kRounder = 0x1.8p23f;
inline constexpr float kLog2e = 0x1.715476p0f;
// ln 2 in two parts: products of the first with integers up to 2^9 are exact.
inline constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kLn2 = 0x1.62e43p-1f;
inline constexpr float kExpLowest = -80,
                       kExpHighest = 0x1.62e42ep6f;  // exp of the next float is infinite

// (exp(x) - 1 - x) / x^2 on |x| <= ln 2 / 2
inline constexpr float kExp[] = {0x1.6a21acp-10f, 0x1.123b6ap-7f, 0x1.5558fcp-5f, 0x1.55549p-3f,
                                 0x1.fffffcp-2f};
// (log(1 + x) - x) / x^2 on |x| <= 1/3
inline constexpr float kLog[] = {-0x1.09443ap-3f, 0x1.1ee30ap-3f,  -0x1.f25604p-4f,
                                 0x1.1ebb16p-3f,  -0x1.55a798p-3f, 0x1.99d222p-3f,
                                 -0x1.fffe84p-3f, 0x1.555502p-2f,  -0.5f};
inline constexpr unsigned kTwoThirdsBits = 0x3f2aaaab;
// (tanh(x) - x) / x^3 in powers of x^2, on |x| <= kTanhSmall
inline constexpr float kTanh[] = {0x1.3923dap-9f,  -0x1.1386d6p-7f, 0x1.64dcbcp-6f,
                                  -0x1.ba091cp-5f, 0x1.1110dap-3f,  -0x1.555554p-2f};
inline constexpr float kTanhSmall = 0.55f;

// Outside these the sigmoid is 1 or below half of the smallest subnormal, even times its argument.
inline constexpr float kGateHighest = 20, kGateLowest = -110;
// 2 sqrt(2 / pi), and that times 0.044715
inline constexpr float kGelu1 = 0x1.988454p0f, kGelu3 = 0x1.2444f2p-4f;

}  // namespace function_constants
}  // namespace outrider
