#include "formats/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/progress.h"

namespace outrider {
namespace {

[[noreturn]] void cannot(const std::filesystem::path& path, const char* what) {
  throw Error("{}: cannot be {}: {}", path.string(), what, std::strerror(errno));
}

}  // namespace

PartialFile::PartialFile(std::filesystem::path whole, std::filesystem::path path, int fd)
    : whole_(std::move(whole)), path_(std::move(path)), fd_(fd) {}

std::unique_ptr<PartialFile> PartialFile::try_lock(const std::filesystem::path& whole) {
  std::filesystem::path path = whole;
  path += kPartialSuffix;
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) cannot(path, "opened");
    std::unique_ptr<PartialFile> file(new PartialFile(whole, path, fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int problem = errno;
      ::close(std::exchange(file->fd_, -1));
      if (problem == EWOULDBLOCK) return nullptr;
      errno = problem;
      cannot(path, "locked");
    }
    // Between opening and locking, the last holder may have renamed or deleted the file: then our
    // lock is on a file that is no longer in place.
    if (file->is_in_place()) return file;
  }
}

PartialFile::~PartialFile() {
  if (fd_ < 0) return;
  struct stat ours;
  if (::fstat(fd_, &ours) == 0 && ours.st_size == 0 && is_in_place()) ::unlink(path_.c_str());
  ::close(fd_);
}

bool PartialFile::is_in_place() const {
  struct stat ours, there;
  return ::fstat(fd_, &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

std::filesystem::path PartialFile::download_folder() const {
  std::filesystem::path folder = whole_;
  folder += ".download";
  return folder;
}

std::uint64_t PartialFile::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) cannot(path_, "read");
  return static_cast<std::uint64_t>(status.st_size);
}

void PartialFile::truncate(std::uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) cannot(path_, "cut");
}

void PartialFile::append(std::span<const std::byte> bytes) {
  auto offset = static_cast<off_t>(size());
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      throw Error(
          "{}: the disk is full after {}; make room and pull again, which goes on from here",
          path_.string(), human_bytes(static_cast<std::uint64_t>(offset)));
    }
    if (n < 0) cannot(path_, "written");
    offset += n;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void PartialFile::publish() {
  // A rename may reach the disk before the content does.
  if (::fsync(fd_) != 0) cannot(path_, "written");
  if (::rename(path_.c_str(), whole_.c_str()) != 0) cannot(path_, "renamed");
}

}  // namespace outrider
