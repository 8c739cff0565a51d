#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/progress.h"

namespace outrider {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// "MemAvailable:   123 kB" in a file of such lines; nothing if it is absent.
std::optional<std::uint64_t> value_after(const char* path, const std::string& key) {
  std::ifstream in(path);
  std::string word;
  while (in >> word) {
    if (word == key) {
      std::uint64_t value;
      if (in >> value) return value;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// The only number in a file; nothing if the file is absent or says "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value;
  if (in >> value) return value;
  return std::nullopt;
}

// What the control groups above this process leave it, version 2; page cache that can be dropped
// counts as free.
std::uint64_t available_in_cgroups() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    for (std::string group = line.substr(3);; group.erase(group.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
      const auto most = number_in(folder + "/memory.max");
      const auto used = number_in(folder + "/memory.current");
      if (most && used) {
        const auto cached =
            value_after((folder + "/memory.stat").c_str(), "inactive_file").value_or(0);
        const std::uint64_t held = *used - std::min(*used, cached);
        least = std::min(least, *most - std::min(*most, held));
      }
      if (group.find('/') == std::string::npos || group.empty()) break;
    }
  }
  return least;
}

}  // namespace

std::uint64_t available_memory_bytes() {
  const auto kibibytes = value_after("/proc/meminfo", "MemAvailable:");
  const std::uint64_t machine =
      kibibytes ? *kibibytes * 1024 : std::numeric_limits<std::uint64_t>::max();
  return std::min(machine, available_in_cgroups());
}

HugeBuffer::HugeBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  // Linux hands out more than it has and kills later, so ask first; small buffers do not decide it.
  constexpr std::size_t kSmall = std::size_t{64} << 20;
  const std::uint64_t available = bytes > kSmall ? available_memory_bytes() : bytes;
  const bool fits =
      bytes <= available && bytes <= std::numeric_limits<std::size_t>::max() - 2 * kHugePage;
  // Only whole, aligned huge pages count, so one more is mapped to find the boundary in.
  const std::size_t length = bytes + (bytes >= kHugePage ? kHugePage : 0);
  void* address = MAP_FAILED;
  if (fits) {
    address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (address == MAP_FAILED) {
    throw Error(
        "{} of memory are needed at once, {} are available; use a smaller model, or a smaller "
        "context with -c",
        human_bytes(bytes), human_bytes(std::min(available, available_memory_bytes())));
  }
  mapped_first_ = static_cast<std::byte*>(address);
  mapped_ = length;
  size_ = bytes;
  first_ = mapped_first_;
  if (bytes >= kHugePage) {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    first_ += (kHugePage - place % kHugePage) % kHugePage;
    ::madvise(address, length,
              MADV_HUGEPAGE);  // a wish: without it the buffer is slower, not wrong
  }
}

HugeBuffer::~HugeBuffer() {
  if (mapped_first_ != nullptr) ::munmap(mapped_first_, mapped_);
}

}  // namespace outrider
