// Norms, activations, rope and quantization of one row of 1536, which is in the caches, on the
// first thread.

#include <fmt/format.h>

#include <memory>
#include <random>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "kernels.h"

namespace outrider {
namespace {

constexpr std::size_t kWidth = 1536, kHead = 128;
constexpr int kCalls = 100;  // an iteration, so that starting the threads does not show

struct Vectors {
  Vectors() : x(kWidth), y(kWidth), w(kWidth), q(kWidth), d(kWidth / 32), sums16(kWidth / 16) {
    std::minstd_rand rng;
    std::normal_distribution<float> normal;
    for (std::vector<float>* v : {&x, &y, &w}) {
      for (float& value : *v) value = normal(rng);
    }
  }
  std::vector<float> x, y, w;
  std::vector<std::int8_t> q;
  std::vector<float> d;
  std::vector<std::int16_t> sums16;
};

}  // namespace

void add_vectors(const KernelBench& bench) {
  const auto v = std::make_shared<Vectors>();
  for (const Isa isa : available_isas()) {
    if (isa == Isa::reference) continue;
    const VectorKernels& k = kernels(isa).vectors;
    const ProductKernels& products = kernels(isa).products;
    const auto add = [&](std::string_view what, std::function<void()> call) {
      add_kernel(bench, fmt::format("vector/{}/{}/calls:{}", what, name(isa), kCalls), {},
                 [v, call]() -> KernelBody {
                   return [call](int thread, std::size_t) {
                     for (int i = 0; thread == 0 && i < kCalls; ++i) call();
                   };
                 });
    };
    add("rms_norm", [v, &k] { k.rms_norm(v->x, v->w, 1e-6f, v->y); });
    add("silu_times", [v, &k] { k.silu_times(v->x, v->w, v->y); });
    add("gelu_tanh_times", [v, &k] { k.gelu_tanh_times(v->x, v->w, v->y); });
    add("add", [v, &k] { k.add(v->w, v->x); });
    add("rope_halves", [v, &k] {
      const std::span<const float> cos(v->w.data(), kHead / 2), sin(v->x.data(), kHead / 2);
      for (std::size_t head = 0; head < kWidth; head += kHead)
        k.rope_halves(cos, sin, std::span(v->y).subspan(head, kHead));
    });
    for (const std::size_t group : {32, 256}) {
      add(fmt::format("quantize_{}", group), [v, &products, group] {
        products.quantize(v->x, group, {v->q.data(), v->d.data(), v->sums16.data()});
      });
    }
  }
}

}  // namespace outrider
