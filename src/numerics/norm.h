// RMS norm: Zhang and Sennrich 2019, arXiv:1910.07467. Layer norm: Ba et al. 2016,
// arXiv:1607.06450.

#pragma once

#include <span>

namespace outrider {

// y = (x * r) * w, r = 1 / sqrt(lane sum of x * x / n + eps). All of one size, not 0. y may be x.
void rms_norm_reference(std::span<const float> x, std::span<const float> w, float eps,
                        std::span<float> y);

// c = x - (lane sum of x) / n; y = (c * r) * w, r = 1 / sqrt(lane sum of c * c / n + eps). The
// caller adds a bias, if there is one. All of one size, not 0. y may be x.
void layer_norm_reference(std::span<const float> x, std::span<const float> w, float eps,
                          std::span<float> y);

}  // namespace outrider
