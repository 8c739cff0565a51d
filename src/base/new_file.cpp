#include "base/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace outrider {

NewFile::NewFile(std::filesystem::path file) : file_(std::move(file)), partial_(file_) {
  // Of this process alone: two that build the same file do not mix.
  partial_ += ".partial-" + std::to_string(getpid());
  // A device or a pipe would be replaced by the file.
  if (std::filesystem::exists(file_) && !std::filesystem::is_regular_file(file_))
    throw Error("{}: cannot be written: is no regular file", file_.string());
  descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail();
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!is_complete_) unlink(partial_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void NewFile::complete() {
  if (fsync(descriptor_) != 0 || close(std::exchange(descriptor_, -1)) != 0 ||
      rename(partial_.c_str(), file_.c_str()) != 0)
    fail();
  is_complete_ = true;
}

void NewFile::fail() const {
  throw Error("{}: cannot be written: {}", file_.string(), std::strerror(errno));
}

}  // namespace outrider
