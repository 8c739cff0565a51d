#include "base/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

namespace outrider {
namespace {

// The first number in a file; nothing if there is none ("max").
std::optional<double> number_in(const std::string& path) {
  std::ifstream file(path);
  double value;
  if (file >> value) return value;
  return {};
}

// The number behind `key` in a file of lines that begin with a key.
std::optional<std::uint64_t> value_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t value = 0;
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return {};
}

std::vector<std::string> own_group_folders(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(file), {}};
  return group_folders(groups, controller);
}

// The quota of one group in cores.
std::optional<double> quota(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");  // version 2: quota and period
  double most = 0, period = 0;
  if (file >> most >> period && period > 0) return most / period;
  const auto old_most = number_in(folder + "/cpu.cfs_quota_us");
  const auto old_period = number_in(folder + "/cpu.cfs_period_us");
  if (old_most && old_period && *old_most > 0 && *old_period > 0) return *old_most / *old_period;
  return {};
}

// What one group still allows, in bytes.
std::optional<double> memory_left(const std::string& folder) {
  struct Names {
    const char *most, *used, *prefix;
  };
  for (const Names& names : {Names{"memory.max", "memory.current", ""},
                             Names{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"}}) {
    const auto most = number_in(fmt::format("{}/{}", folder, names.most));
    const auto used = number_in(fmt::format("{}/{}", folder, names.used));
    if (!most || !used) continue;
    double droppable = 0;
    for (const char* key : {"inactive_file", "active_file"}) {
      const auto bytes = value_in(folder + "/memory.stat", fmt::format("{}{}", names.prefix, key));
      droppable += static_cast<double>(bytes.value_or(0));
    }
    return std::max(0.0, *most - std::max(0.0, *used - droppable));
  }
  return {};
}

}  // namespace

int usable_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  // Hyperthreads of one core have the same list of siblings. Where Linux shows no topology, every
  // processor counts.
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (!(file >> siblings)) siblings = fmt::format("cpu {}", cpu);
    cores.insert(siblings);
  }
  double count = static_cast<double>(cores.size());
  for (const std::string& folder : own_group_folders("cpu"))
    count = std::min(count, quota(folder).value_or(count));
  return std::max(1, static_cast<int>(std::ceil(count)));
}

std::uint64_t available_memory_bytes() {
  double bytes = 0x1p63;
  if (const auto kib = value_in("/proc/meminfo", "MemAvailable:"))
    bytes = static_cast<double>(*kib) * 1024;
  for (const std::string& folder : own_group_folders("memory"))
    bytes = std::min(bytes, memory_left(folder).value_or(bytes));
  rlimit space = {};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    const auto used = value_in("/proc/self/status", "VmSize:").value_or(0) * 1024;
    const std::uint64_t most = space.rlim_cur;
    bytes = std::min(bytes, static_cast<double>(most - std::min(most, used)));
  }
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t resident_bytes() {
  return value_in("/proc/self/status", "RssAnon:").value_or(0) * 1024;
}

std::vector<std::string> group_folders(std::string_view groups, std::string_view controller) {
  std::vector<std::string> folders;
  while (!groups.empty()) {
    // hierarchy:controllers:group; version 2 names no controllers.
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(groups.size(), line.size() + 1));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string mount = "/sys/fs/cgroup";
    if (controllers != ",,") {
      if (controllers.find(fmt::format(",{},", controller)) == controllers.npos) continue;
      mount += fmt::format("/{}", controller);
    }
    for (std::string group(line.substr(second + 1));;) {
      folders.push_back(mount + (group == "/" ? "" : group));
      if (group == "/") break;
      group.erase(std::max<std::size_t>(group.rfind('/'), 1));
    }
  }
  return folders;
}

}  // namespace outrider
