#include "cli/commands.h"

#include <algorithm>

// The commands in the order of help: bench_curve stands for bench_curve_command(), which
// bench_curve.cpp defines.
// clang-format off
#define OUTRIDER_COMMANDS(row) \
  row(run)                     \
  row(serve)                   \
  row(prove)                   \
  row(bench_bandwidth)         \
  row(bench_curve)             \
  row(bench_generate)          \
  row(pull)                    \
  row(list)                    \
  row(rm)                      \
  row(inspect)                 \
  row(tokenize)                \
  row(perplexity)              \
  row(datastore_build)         \
  row(train)                   \
  row(features)                \
  row(convert_head)            \
  row(tune_self)               \
  row(profile_show)            \
  row(profile_clear)           \
  row(history_show)            \
  row(history_clear)           \
  row(completions)             \
  row(manual)
// clang-format on

namespace outrider {

#define DECLARE(name) Command name##_command();
OUTRIDER_COMMANDS(DECLARE)
#undef DECLARE

bool Command::takes(const Flag& flag) const {
  return flag.set <= flag_set || std::ranges::find(flags, flag.name()) != flags.end();
}

std::span<const Command> commands() {
#define CALL(name) name##_command(),
  static const std::vector<Command> list = {OUTRIDER_COMMANDS(CALL)};
#undef CALL
  return list;
}

}  // namespace outrider
