#include "cli/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "cli/numbers.h"

namespace outrider {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The number behind `key` in a file of "key value" lines.
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

// What a control group still allows. Its page cache counts as used but goes when memory is short.
std::optional<std::uint64_t> left_in(const std::string& limit, const std::string& used,
                                     const std::string& statistics, std::string_view cache_key) {
  const auto most = parse_number<std::uint64_t>(first_line(limit));
  const auto now = parse_number<std::uint64_t>(first_line(used));
  if (!most || !now) return {};
  const std::uint64_t held = *now - std::min(*now, value_in(statistics, cache_key).value_or(0));
  return *most - std::min(*most, held);
}

// The folder of this process in the hierarchy of version 2: every folder above may limit as well.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

}  // namespace

std::uint64_t available_memory() {
  std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
  const auto limit = [&](std::optional<std::uint64_t> value) {
    if (value) bytes = std::min(bytes, *value);
  };
  if (const auto kib = value_in("/proc/meminfo", "MemAvailable:")) limit(*kib * 1024);

  const std::string root = "/sys/fs/cgroup";
  for (std::string group = own_group();;) {
    const std::string folder = root + (group == "/" ? "" : group);
    limit(left_in(folder + "/memory.max", folder + "/memory.current", folder + "/memory.stat",
                  "file"));
    if (group.size() <= 1) break;
    group.erase(std::max<std::size_t>(group.rfind('/'), 1));
  }
  const std::string old = root + "/memory";
  limit(left_in(old + "/memory.limit_in_bytes", old + "/memory.usage_in_bytes",
                old + "/memory.stat", "total_cache"));

  rlimit space = {};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    const auto used = value_in("/proc/self/status", "VmSize:").value_or(0) * 1024;
    limit(space.rlim_cur - std::min<std::uint64_t>(space.rlim_cur, used));
  }
  // What plans do not count: the program, stacks, the allocator's slack, and the machine's other
  // needs.
  const std::uint64_t margin = (128 << 20) + bytes / 32;
  return bytes - std::min(bytes, margin);
}

int context_that_fits(const Device& device, const Model& model, LoadOptions options, int most,
                      std::uint64_t available) {
  constexpr int kPage = 64;
  const auto fits = [&](int context) {
    options.context = context;
    return device.memory_need(model, options).total() <= available;
  };
  if (fits(most)) return most;
  int least = 0, too_long = most / kPage + 1;  // in pages
  while (too_long - least > 1) {
    const int middle = least + (too_long - least) / 2;
    (fits(middle * kPage) ? least : too_long) = middle;
  }
  return least * kPage;
}

}  // namespace outrider
