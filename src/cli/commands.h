// The table of commands: one line here and one file each.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine_limits.h"
#include "cli/settings.h"
#include "model/backend.h"

namespace outrider {

// What loading a model takes, in bytes.
struct MemoryPlan {
  std::uint64_t weights = 0, cache = 0, working = 0;
  std::uint64_t total() const { return weights + cache + working; }
};

// The device, as main.cpp hands it down: the one place that knows which it is.
struct Device {
  BackendFactory load;
  std::function<MemoryPlan(const Model&, const LoadOptions&)> memory_need;
  std::vector<std::string> instruction_sets;  // that this machine has, the best last
  std::function<std::string()>
      chosen_instruction_set;  // throws Error if OUTRIDER_ISA asks for what is not there
  std::function<std::unique_ptr<LimitMeter>(int n_threads)> make_limit_meter;
};

// One bit a command, so that a flag can name all that take it.
enum CommandBit : unsigned {
  kRun = 1 << 0,
  kProve = 1 << 1,
  kBenchCurve = 1 << 2,
  kBenchGenerate = 1 << 3,
  kPull = 1 << 4,
  kList = 1 << 5,
  kRm = 1 << 6,
  kInspect = 1 << 7,
  kTokenize = 1 << 8,
  kCompletions = 1 << 9,
  kManual = 1 << 10,
  kBenchBandwidth = 1 << 11,
};

struct Command {
  unsigned bit;
  std::string_view name;       // "bench curve"
  std::string_view arguments;  // as help shows them: "NAME…"
  int least_arguments, most_arguments;
  std::string_view summary;      // a line
  std::string_view description;  // a paragraph
  int (*run)(const Device& device, const Settings& settings);
};

std::span<const Command> commands();

int run_command(const Device& device, const Settings& settings);
int prove_command(const Device& device, const Settings& settings);
int bench_bandwidth_command(const Device& device, const Settings& settings);
int bench_curve_command(const Device& device, const Settings& settings);
int bench_generate_command(const Device& device, const Settings& settings);
int pull_command(const Device& device, const Settings& settings);
int list_command(const Device& device, const Settings& settings);
int rm_command(const Device& device, const Settings& settings);
int inspect_command(const Device& device, const Settings& settings);
int tokenize_command(const Device& device, const Settings& settings);
int completions_command(const Device& device, const Settings& settings);
int manual_command(const Device& device, const Settings& settings);

}  // namespace outrider
