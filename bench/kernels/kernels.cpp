#include "kernels.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

namespace outrider {

double KernelBench::read_gbs() const {
  double best = 0;
  for (const MachineLimits::ReadRate& rate : limits.read_rates) best = std::max(best, rate.gbs);
  return best;
}

double KernelBench::int8_tops(Isa isa) const {
  switch (isa) {
    case Isa::reference: return 0;
    case Isa::avx2: return limits.avx2_tops;
    case Isa::avxvnni:
    case Isa::avx512: return limits.int8_tops;
    case Isa::amx: return limits.amx_tops;
  }
  return 0;
}

void add_kernel(const KernelBench& bench, std::string name, Work work,
                std::function<KernelBody()> prepare) {
  const auto run = [&bench, work, prepare = std::move(prepare)](benchmark::State& state) {
    using Clock = std::chrono::steady_clock;
    const KernelBody body = prepare();
    std::size_t iteration = 0;
    double seconds = 0;
    for (auto _ : state) {
      Clock::time_point start, end;
      bench.team.run([&](int thread) {
        bench.team.barrier();
        if (thread == 0) start = Clock::now();
        body(thread, iteration);
        bench.team.barrier();
        if (thread == 0) end = Clock::now();
      });
      ++iteration;
      const double taken = std::chrono::duration<double>(end - start).count();
      state.SetIterationTime(taken);
      seconds += taken;
    }
    const double a_second = static_cast<double>(iteration) / seconds;
    if (work.bytes > 0) {
      state.counters["GB/s"] = work.bytes * a_second * 1e-9;
      state.counters["reading%"] = 100 * work.bytes * a_second * 1e-9 / bench.read_gbs();
    }
    if (work.operations > 0) {
      state.counters["Tops"] = work.operations * a_second * 1e-12;
      if (work.tera > 0)
        state.counters["work%"] = 100 * work.operations * a_second * 1e-12 / work.tera;
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace outrider
