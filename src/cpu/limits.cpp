#include "cpu/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/kernels/intrinsics.h"

namespace outrider {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{512} << 20;
constexpr std::size_t kLine = 64;

// Sums of what was read or computed go here, so that no compiler drops the work.
std::atomic<std::int64_t> sink;

// One way to read: `streams` parts of a thread's share side by side, asking for lines `ahead` bytes
// early (0: not at all).
struct Pattern {
  std::size_t streams, ahead;
};
constexpr Pattern kPatterns[] = {{1, 0}, {1, 2048}, {1, 5120}, {2, 2048}, {2, 0}, {4, 1024}};

// Reads `bytes`, a multiple of streams * 256.
[[OUTRIDER_AVX512]] std::int64_t read_avx512(const std::byte* first, std::size_t bytes,
                                             Pattern pattern) {
  __m512i sums[4] = {};
  const std::size_t stream_bytes = bytes / pattern.streams;
  for (std::size_t at = 0; at < stream_bytes; at += 4 * kLine) {
    for (std::size_t s = 0; s < pattern.streams; ++s) {
      const std::byte* lines = first + s * stream_bytes + at;
      for (std::size_t i = 0; i < 4; ++i) {
        if (pattern.ahead) {
          _mm_prefetch(reinterpret_cast<const char*>(lines + pattern.ahead + i * kLine),
                       _MM_HINT_T0);
        }
        sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(lines + i * kLine));
      }
    }
  }
  return _mm512_reduce_add_epi64(
      _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]), _mm512_add_epi64(sums[2], sums[3])));
}

std::int64_t read_plain(const std::byte* first, std::size_t bytes, Pattern pattern) {
  __m128i sums[4] = {};
  const std::size_t stream_bytes = bytes / pattern.streams;
  for (std::size_t at = 0; at < stream_bytes; at += kLine) {
    for (std::size_t s = 0; s < pattern.streams; ++s) {
      const std::byte* line = first + s * stream_bytes + at;
      if (pattern.ahead) {
        _mm_prefetch(reinterpret_cast<const char*>(line + pattern.ahead), _MM_HINT_T0);
      }
      for (std::size_t i = 0; i < 4; ++i) {
        sums[i] =
            _mm_add_epi64(sums[i], _mm_load_si128(reinterpret_cast<const __m128i*>(line) + i));
      }
    }
  }
  const __m128i sum =
      _mm_add_epi64(_mm_add_epi64(sums[0], sums[1]), _mm_add_epi64(sums[2], sums[3]));
  return _mm_cvtsi128_si64(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum)));
}

// 16 chains hide the latency. Returns the operations of one call.
constexpr int kChains = 16, kSteps = 100000;

[[OUTRIDER_AVX512]] std::int64_t multiply_add_registers(int seed) {
  const __m512i a = _mm512_set1_epi32(seed), b = _mm512_set1_epi32(seed + 1);
  __m512i sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      // In assembly, so that no step is merged with another or moved.
      asm volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
    }
  }
  std::int64_t sum = 0;
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum += _mm512_reduce_add_epi32(sums[i]);
  return sum;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The shortest time in which all threads finish work(thread), over repeats that fill `seconds`, at
// least one.
template <typename Work>
double shortest(ThreadTeam& team, double seconds, const Work& work) {
  double best = 0;
  const Clock::time_point begin = Clock::now();
  for (int repeat = 0; repeat == 0 || seconds_since(begin) < seconds; ++repeat) {
    Clock::time_point start;
    double taken = 0;
    team.run([&](int thread) {
      team.barrier();
      if (thread == 0) start = Clock::now();
      sink += work(thread);
      team.barrier();
      if (thread == 0) taken = seconds_since(start);
    });
    if (repeat == 0 || taken < best) best = taken;
  }
  return best;
}

}  // namespace

double read_gbs(int threads, double seconds) {
  ThreadTeam team(threads);
  HugeBuffer buffer(kBufferBytes + (64 << 10));  // the rest is for prefetches past the end
  const bool wide = available_isas().back() == Isa::avx512;
  const auto share_of = [&](int thread) { return share(kBufferBytes, thread, threads, 1 << 20); };
  // Each thread touches what it reads first, which places the pages near it.
  team.run([&](int thread) {
    const Range part = share_of(thread);
    std::fill(buffer.begin() + part.begin, buffer.begin() + part.end, std::byte{1});
  });
  double best = 0;
  for (const Pattern& pattern : kPatterns) {
    const double taken = shortest(team, seconds / std::size(kPatterns), [&](int thread) {
      const Range part = share_of(thread);
      return (wide ? read_avx512 : read_plain)(buffer.begin() + part.begin, part.end - part.begin,
                                               pattern);
    });
    best = std::max(best, kBufferBytes / taken * 1e-9);
  }
  return best;
}

double int8_tops(int threads, double seconds) {
  if (available_isas().back() != Isa::avx512) return 0;
  ThreadTeam team(threads);
  const double taken =
      shortest(team, seconds, [](int thread) { return multiply_add_registers(thread); });
  const double operations = 2.0 * 64 * kChains * kSteps;
  return operations * threads / taken * 1e-12;
}

}  // namespace outrider
