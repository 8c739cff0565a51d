#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

// Where a file is mapped. Entries are reused and never freed, so that a signal handler can walk the
// list while other threads open and close files.
struct Mapping {
  std::string path;
  std::atomic<const std::byte*> begin = nullptr;  // null while the entry is free
  std::atomic<const std::byte*> end = nullptr;
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings = nullptr;
std::mutex mappings_mutex;  // held to change them

void remember(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mappings_mutex);
  Mapping* mapping = mappings;
  while (mapping != nullptr && mapping->begin != nullptr) mapping = mapping->next;
  if (mapping == nullptr) {
    mapping = new Mapping;
    mapping->next = mappings;
    mappings = mapping;
  }
  mapping->path = path.string();
  mapping->end = bytes.data() + bytes.size();
  mapping->begin = bytes.data();  // last: from now on the entry counts
}

void forget(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    if (mapping->begin == bytes.data()) mapping->begin = nullptr;
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for somebody to write into it.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw Error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status;
  void* address = MAP_FAILED;
  int problem = 0;
  if (::fstat(file, &status) != 0) {
    problem = errno;
  } else if (S_ISREG(status.st_mode) && status.st_size > 0) {
    address =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (address == MAP_FAILED) problem = errno;
  }
  ::close(file);
  if (problem != 0) throw Error("{}: cannot be read: {}", path.string(), std::strerror(problem));
  if (!S_ISREG(status.st_mode))
    throw Error("{}: is no regular file; copy what it gives into one", path.string());
  if (address != MAP_FAILED) {
    bytes_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(status.st_size)};
    remember(path, bytes_);
  }
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {

std::uintptr_t page_size() {
  return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

bool MappedFile::holds(std::span<const std::byte> part) const {
  constexpr std::less_equal<> kNotAfter;
  return part.empty() || (kNotAfter(bytes_.data(), part.data()) &&
                          kNotAfter(part.data() + part.size(), bytes_.data() + bytes_.size()));
}

void MappedFile::prefetch(std::span<const std::byte> part) const {
  CHECK(holds(part));
  if (part.empty()) return;
  // Of one request Linux reads no more than its readahead or the disk's largest transfer, whichever
  // is larger, and drops the rest.
  constexpr std::size_t kRequestBytes = 128 << 10;  // the usual readahead
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(part.data()) % page_size();
  std::byte* const begin = const_cast<std::byte*>(part.data()) - before;
  const std::size_t size = part.size() + before;
  for (std::size_t at = 0; at < size; at += kRequestBytes)
    ::madvise(begin + at, std::min(kRequestBytes, size - at), MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  CHECK(holds(part));
  const std::uintptr_t page = page_size();
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  // Whole pages only: the rest of a page may belong to bytes that are still needed.
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) {
    std::byte* const start = const_cast<std::byte*>(part.data()) + (first - begin);
    ::madvise(start, last - first, MADV_DONTNEED);
  }
}

const char* mapped_file_at(const void* address) {
  for (const Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    const std::byte* begin = mapping->begin;
    if (begin != nullptr && begin <= address && address < mapping->end)
      return mapping->path.c_str();
  }
  return nullptr;
}

}  // namespace outrider
