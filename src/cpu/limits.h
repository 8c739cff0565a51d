// What this machine can do at best, measured: the limits that kernels are held against.

#pragma once

namespace outrider {

// GB/s (10^9 bytes) at which `threads` threads together read memory far larger than the caches, in
// huge pages: the best of several access patterns. Takes about `seconds`, and 512 MiB of memory
// while it runs.
double read_gbs(int threads, double seconds);

// 10^12 int8 operations a second of `threads` threads, two a multiply-add, in a loop of VNNI
// instructions on registers; 0 on a processor without AVX-512 VNNI.
double int8_tops(int threads, double seconds);

}  // namespace outrider
