// outrider-bench kernels [--mib N] [--threads N] [flags of Google Benchmark]

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "cpu/limit_meter.h"
#include "kernels.h"

using namespace outrider;

namespace {

constexpr const char* kUsage =
    "usage: outrider-bench kernels [--mib N] [--threads N] [--benchmark_filter=REGEX ...]\n"
    "--mib: weights to walk through, 256 by default: more than the caches hold\n";

int number(const char* text) {
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 1)
    throw Error("{}: expected a whole number of at least 1", text);
  return value;
}

// Puts the limits into the first lines of every report, so that shares can be checked.
void add_context(const MachineLimits& limits, int n_threads) {
  benchmark::AddCustomContext("threads", fmt::format("{}", n_threads));
  for (const MachineLimits::ReadRate& rate : limits.read_rates)
    benchmark::AddCustomContext("GB/s " + rate.pattern, fmt::format("{:.1f}", rate.gbs));
  benchmark::AddCustomContext("int8 VNNI Tops", fmt::format("{:.3f}", limits.int8_tops));
  benchmark::AddCustomContext("int8 AVX2 Tops", fmt::format("{:.3f}", limits.avx2_tops));
  benchmark::AddCustomContext("int8 AMX Tops", fmt::format("{:.3f}", limits.amx_tops));
  benchmark::AddCustomContext("float fma Tflops", fmt::format("{:.3f}", limits.f32_tflops));
}

void run(int argc, char** argv) {
  int n_threads = usable_cores(), mib = 256;
  std::vector<char*> rest = {argv[0]};
  for (int i = 2; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if ((flag == "--mib" || flag == "--threads") && i + 1 < argc) {
      (flag == "--mib" ? mib : n_threads) = number(argv[++i]);
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) throw Error("{}", kUsage);

  const MachineLimits limits = make_limit_meter(n_threads)->measure(n_threads);
  add_context(limits, n_threads);
  ThreadTeam team(n_threads);
  const KernelBench bench{team, limits, static_cast<std::size_t>(mib) << 20};
  add_products(bench);
  add_attention(bench);
  add_vectors(bench);
  add_choice(bench);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "kernels") {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-bench: %s\n", error.what());
    return 1;
  }
}
