#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/machine.h"
#include "base/progress.h"

namespace outrider {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(std::size_t bytes, bool is_filled) {
  if (bytes == 0) return;
  // Linux gives more than it has and kills the process later, so ask first. Small buffers are not
  // worth the question.
  constexpr std::size_t kSmall = std::size_t{64} << 20;
  const std::uint64_t available = bytes > kSmall ? available_memory_bytes() : bytes;
  const bool fits =
      bytes <= available && bytes <= std::numeric_limits<std::size_t>::max() - 2 * kHugePage;
  // A huge page must be aligned, so one more is mapped: a boundary lies in it.
  const std::size_t length = bytes + (bytes >= kHugePage ? kHugePage : 0);
  void* address = MAP_FAILED;
  if (fits) {
    address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (address == MAP_FAILED) {
    throw Error(
        Remedy::context,
        "{} of memory are needed at once, {} are available; use a smaller model or a smaller "
        "context",
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
              is_filled ? MADV_HUGEPAGE
                        : MADV_NOHUGEPAGE);  // if refused, the buffer is slower, not wrong
  }
}

HugeBuffer::~HugeBuffer() {
  if (mapped_first_ != nullptr) ::munmap(mapped_first_, mapped_);
}

}  // namespace outrider
