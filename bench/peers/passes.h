// How bench/peers/measure speaks with an engine that stays loaded: it asks for passes on standard
// input and reads milliseconds from standard output. So engines take turns within seconds, and a
// minute in which memory is slow meets all of them.
//
//   pass N      a pass over N tokens of a new sequence, logits of all
//   prefill N   the same, logits of the last only
//   decode N    N passes of one token each, of one sequence that grows: the mean
//
// Which tokens they are does not matter; choosing the next one is no part of the time. The first
// line out says that the engine is loaded.

#pragma once

#include <chrono>
#include <iostream>
#include <string>

// Engine: void pass(int n_tokens, int position, bool all_logits), which returns with the logits
// computed; void clear(), which forgets the sequence. Passes of at most 512 tokens and sequences of
// at most 1024 are asked for.
template <typename Engine>
void serve_passes(Engine& engine) {
  using Clock = std::chrono::steady_clock;
  std::cout << "ready" << std::endl;
  std::string what;
  for (int n; std::cin >> what >> n;) {
    const bool decode = what == "decode";
    const int passes = decode ? n : 1;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < passes; ++i) engine.pass(decode ? 1 : n, i, what == "pass");
    const std::chrono::duration<double, std::milli> ms = Clock::now() - start;
    engine.clear();
    std::cout << ms.count() / passes << std::endl;
  }
}
