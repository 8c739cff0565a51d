// The tables of IQ1 to IQ3. An entry is eight weights, two bits each, or four weights, four bits
// each, the first lowest: a weight's number among those that its type has (table_blocks.cpp).

#pragma once

#include <cstdint>

namespace outrider {

extern const std::uint16_t kIq1[2048];  // IQ1_S and IQ1_M
extern const std::uint16_t kIq2Xxs[256];
extern const std::uint16_t kIq2Xs[512];
extern const std::uint16_t kIq2S[1024];
// Of four weights.
extern const std::uint16_t kIq3Xxs[256];
extern const std::uint16_t kIq3S[512];

}  // namespace outrider
