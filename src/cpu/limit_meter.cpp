#include "cpu/limit_meter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/error.h"
#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"
#include "cpu/limit_loops.h"

namespace outrider {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBufferBytes = 512 * kMiB;
constexpr std::size_t kShareGrain = 4 * kMiB;

// How the threads divide the memory.
enum class Walk {
  halves,       // each its own contiguous part
  interleaved,  // all read in one place: they take chunks of 1 MiB in turn
  staggered,    // as halves, but begun so that no two threads are equally far into their parts
};

struct Pattern {
  const char* name;
  ReadLoop loop;
  Walk walk = Walk::halves;
  Isa needs = Isa::avx2;
};

// On a virtual machine on a Zen 4, all patterns but the one with two streams were within 5 % of
// each other, and the best one changed from minute to minute.
constexpr Pattern kPatterns[] = {
    {"128-bit loads", {.bits = 128}, Walk::halves, Isa::reference},
    {"256-bit loads", {.bits = 256}},
    {"512-bit loads", {.bits = 512}, Walk::halves, Isa::avx512},
    {"prefetch to L1, 2 KiB ahead", {.bits = 256, .hint = PrefetchHint::l1, .ahead = 2 << 10}},
    {"prefetch to L1, 5 KiB ahead", {.bits = 256, .hint = PrefetchHint::l1, .ahead = 5 << 10}},
    {"prefetch to L2, 1 KiB ahead", {.bits = 256, .hint = PrefetchHint::l2, .ahead = 1 << 10}},
    {"prefetchnta, 4 KiB ahead", {.bits = 256, .hint = PrefetchHint::once, .ahead = 4 << 10}},
    {"two streams per thread", {.bits = 256, .streams = 2}},
    {"threads in turn, 1 MiB each", {.bits = 256}, Walk::interleaved},
    {"threads staggered", {.bits = 256}, Walk::staggered},
};

// Sums of what was read or computed go here, so that no compiler removes the work.
std::atomic<std::uint64_t> sink;

std::uint64_t walk(const std::byte* memory, int thread, int n_threads, const Pattern& pattern) {
  const auto part = [&](std::size_t begin, std::size_t end) {
    return begin < end ? read_all(memory + begin, end - begin, pattern.loop) : std::uint64_t{0};
  };
  const Range own = share(kBufferBytes, thread, n_threads, kShareGrain);
  switch (pattern.walk) {
    case Walk::halves: return part(own.begin, own.end);
    case Walk::staggered: {
      // An odd number of pages apart: other channels, other banks, other sets of the caches.
      const std::size_t lag = std::min(own.end - own.begin, thread * (kMiB + 37 * 4096));
      return part(own.begin + lag, own.end) + part(own.begin, own.begin + lag);
    }
    case Walk::interleaved: {
      std::uint64_t sum = 0;
      for (std::size_t at = thread * kMiB; at < kBufferBytes; at += n_threads * kMiB)
        sum += part(at, at + kMiB);
      return sum;
    }
  }
  return 0;
}

class CpuLimitMeter final : public LimitMeter {
 public:
  explicit CpuLimitMeter(int n_threads)
      : team_(n_threads), memory_(kBufferBytes + (64 << 10)) {  // the rest: prefetches past the end
    // Each thread touches what it reads, which places the pages near it.
    team_.run([&](int thread) {
      const Range own = share(kBufferBytes, thread, n_threads, kShareGrain);
      std::fill(memory_.begin() + own.begin, memory_.begin() + own.end, std::byte{1});
    });
  }

  MachineLimits measure(int n_threads) override {
    CHECK(n_threads >= 1 && n_threads <= team_.size());
    MachineLimits limits;
    for (const Pattern& pattern : kPatterns) {
      if (!is_available(pattern.needs)) continue;
      const double taken = seconds(
          n_threads, [&](int thread) { return walk(memory_.begin(), thread, n_threads, pattern); });
      limits.read_rates.push_back({pattern.name, kBufferBytes / taken * 1e-9});
    }
    limits.int8_tops = tera(n_threads, vnni_loop());
    limits.avx2_tops = tera(n_threads, avx2_loop());
    limits.amx_tops = tera(n_threads, amx_loop());
    limits.f32_tflops = tera(n_threads, fma_loop());
    return limits;
  }

  std::vector<MachineLimits::ReadRate> measure_products(int n_threads) override {
    CHECK(n_threads >= 1 && n_threads <= team_.size());
    const Kernels& table = kernels(chosen_isa());
    if (table.by_prefetch.empty()) return {};
    const PackedMatrix weights = memory_as_weights();
    const std::vector<std::int8_t> q(weights.columns);
    const std::vector<float> d(weights.columns);
    const std::vector<std::int16_t> sums16(weights.columns);
    const ProductInput input = {
        .floats = {d.data(), 1, weights.columns},
        .groups_of_32 = {},
        .groups_of_128 = {},
        .groups_of_256 = {q.data(), d.data(), sums16.data(), weights.columns, weights.columns,
                          weights.columns}};
    std::vector<float> out(weights.outputs);
    std::vector<MachineLimits::ReadRate> rates;
    for (const PrefetchPattern prefetch : kPrefetchPatterns) {
      const ProductKernels& products = table.products_by(prefetch);
      std::vector<ArrangedRows::Line> words(products.lines(weights, 1));
      ArrangedRows row;
      row.memory = words;
      products.arrange(weights, input, {0, 1}, row);
      const double taken = seconds(n_threads, [&](int thread) {
        const Range own = share(weights.panels(), thread, n_threads);
        products.product(weights, row, own,
                         MatrixView<float>(out.data(), 1, out.size()).from(0, own.begin * kPanel));
        return std::uint64_t{0};
      });
      const double bytes = static_cast<double>(weights.panels() * weights.panel_bytes);
      rates.push_back({std::string(name(prefetch)), bytes / taken * 1e-9});
    }
    return rates;
  }

 private:
  PackedMatrix memory_as_weights() const {
    PackedMatrix weights{.type = TensorType::q4_k, .columns = 2048, .first = memory_.begin()};
    weights.panel_bytes = packed_panel_bytes(weights.type, weights.columns);
    weights.outputs = kBufferBytes / weights.panel_bytes * kPanel;
    return weights;
  }

  // The seconds in which the first n_threads finish work(thread).
  template <typename Work>
  double seconds(int n_threads, const Work& work) {
    using Clock = std::chrono::steady_clock;
    Clock::time_point start, end;
    team_.run([&](int thread) {
      team_.barrier();
      if (thread == 0) start = Clock::now();
      if (thread < n_threads) sink += work(thread);
      team_.barrier();
      if (thread == 0) end = Clock::now();
    });
    return std::chrono::duration<double>(end - start).count();
  }

  // 10^12 operations per second of a loop on registers. The best of a few runs, because a run is
  // slow only if another process takes the core or the clock has not sped up yet.
  double tera(int n_threads, const std::optional<ComputeLoop>& loop) {
    constexpr int kTurns = 5;
    double best = 0;
    for (int turn = 0; loop && turn < kTurns; ++turn)
      best =
          std::max(best, loop->operations / seconds(n_threads, [&](int) { return loop->run(); }));
    return best * n_threads * 1e-12;
  }

  ThreadTeam team_;
  HugeBuffer memory_;
};

}  // namespace

std::unique_ptr<LimitMeter> make_limit_meter(int n_threads) {
  return std::make_unique<CpuLimitMeter>(n_threads);
}

}  // namespace outrider
