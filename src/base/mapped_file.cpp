#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

void unmap(std::span<const std::byte> bytes) {
  if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
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
  if (!S_ISREG(status.st_mode)) throw Error("{}: is no regular file", path.string());
  if (address != MAP_FAILED) {
    bytes_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(status.st_size)};
  }
}

MappedFile::~MappedFile() {
  unmap(bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::release(std::span<const std::byte> part) const {
  CHECK(part.empty() || (part.data() >= bytes_.data() &&
                         part.data() + part.size() <= bytes_.data() + bytes_.size()));
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  // Whole pages only: the rest of a page may belong to a part that is still needed.
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace outrider
