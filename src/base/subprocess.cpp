#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

constexpr int kTickMs = 200;
constexpr std::size_t kErrorsMax = 16 << 10;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  FileDescriptor read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error("a pipe cannot be opened: {}", std::strerror(errno));
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> out;
  for (const auto& [name, value] : added) out.push_back(fmt::format("{}={}", name, value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    bool replaced = false;
    for (const auto& [name, value] : added) replaced |= text.substr(0, text.find('=')) == name;
    if (!replaced) out.emplace_back(text);
  }
  return out;
}

// Runs between fork and exec, so it makes only calls that are safe there. Writes errno to `failure`
// if exec fails.
[[noreturn]] void become(char* const* argv, char** environment, int null, int output, int errors,
                         int failure, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // the parent died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP, SIGQUIT}) ::signal(number, SIG_DFL);
  ::dup2(null, 0);
  ::dup2(output, 1);
  ::dup2(errors, 2);
  environ = environment;
  ::execvp(argv[0], argv);
  const int problem = errno;
  [[maybe_unused]] const auto written = ::write(failure, &problem, sizeof problem);
  ::_exit(127);
}

// errno of a failed exec, or 0 once exec has succeeded, which closes the pipe.
int exec_problem(int fd) {
  int problem = 0;
  ssize_t n;
  do {
    n = ::read(fd, &problem, sizeof problem);
  } while (n < 0 && errno == EINTR);
  return n == sizeof problem ? problem : 0;
}

// A running child. The destructor ends it and waits for that.
class Child {
 public:
  Child(pid_t pid, std::chrono::milliseconds grace) : pid_(pid), grace_(grace) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    for (; !poll(); std::this_thread::sleep_for(std::chrono::milliseconds(10))) press();
  }

  // Its exit status, once it has ended.
  std::optional<int> poll() {
    if (!status_) {
      int status;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
    }
    return status_;
  }

  // Asks its group to end, once, and kills it when its grace is over. To be called until it ended.
  void press() {
    const auto now = std::chrono::steady_clock::now();
    if (poll()) return;
    if (!was_asked_) {
      was_asked_ = true;
      deadline_ = now + grace_;
      ::kill(-pid_, SIGTERM);
    } else if (now >= deadline_) {
      ::kill(-pid_, SIGKILL);
    }
  }

 private:
  const pid_t pid_;
  const std::chrono::milliseconds grace_;
  bool was_asked_ = false;                            // to end
  std::chrono::steady_clock::time_point deadline_{};  // once it was
  std::optional<int> status_;
};

// Gives what a pipe holds at the moment to `take`; false at its end.
bool read_some(int fd, const std::function<void(std::span<const std::byte>)>& take) {
  std::array<std::byte, 1 << 16> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0 && take) take(std::span(buffer).first(static_cast<std::size_t>(n)));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

SubprocessResult run_subprocess(const Subprocess& subprocess) {
  CHECK(!subprocess.argv.empty());
  std::vector<std::string> argv_texts = subprocess.argv;
  std::vector<std::string> environment_texts = environment_with(subprocess.environment);
  const std::vector<char*> argv = pointers(argv_texts);
  std::vector<char*> environment = pointers(environment_texts);
  Pipe output, errors, failure;
  const FileDescriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("{} cannot be started: {}", argv[0], std::strerror(errno));
  if (pid == 0) {
    become(argv.data(), environment.data(), null.get(), output.write.get(), errors.write.get(),
           failure.write.get(), parent);
  }
  ::setpgid(pid, pid);  // here too, so that the group exists before anybody ends it
  Child child(pid, subprocess.grace);
  output.write.reset();
  errors.write.reset();
  failure.write.reset();
  SubprocessResult result;
  if (const int problem = exec_problem(failure.read.get()); problem != 0) {
    result.start_problem = std::strerror(problem);
    return result;
  }
  const auto keep_errors = [&](std::span<const std::byte> bytes) {
    result.errors.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (result.errors.size() > kErrorsMax)
      result.errors.erase(0, result.errors.size() - kErrorsMax);
    if (subprocess.on_error) subprocess.on_error(bytes);
  };
  auto next_tick = std::chrono::steady_clock::now();
  while (output.read.get() >= 0 || errors.read.get() >= 0 || !child.poll()) {
    if (std::chrono::steady_clock::now() >= next_tick) {
      if (!result.was_interrupted && subprocess.interrupted)
        result.was_interrupted = subprocess.interrupted();
      if (result.was_interrupted) child.press();
      if (subprocess.on_tick) subprocess.on_tick();
      next_tick = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs);
    }
    const bool ended = child.poll().has_value();
    // poll() skips descriptors below zero.
    std::array<pollfd, 2> pipes = {pollfd{output.read.get(), POLLIN, 0},
                                   pollfd{errors.read.get(), POLLIN, 0}};
    const bool open = pipes[0].fd >= 0 || pipes[1].fd >= 0;
    const int n_ready = ::poll(pipes.data(), pipes.size(), ended ? 0 : open ? kTickMs : 10);
    if (pipes[0].revents != 0 && !read_some(pipes[0].fd, subprocess.on_output)) output.read.reset();
    if (pipes[1].revents != 0 && !read_some(pipes[1].fd, keep_errors)) errors.read.reset();
    // A grandchild may hold the pipes open for ever, but all that the child itself wrote is read.
    if (ended && n_ready == 0) break;
  }
  result.status = child.poll().value_or(128 + SIGTERM);
  return result;
}

std::string complaint(std::string_view errors) {
  std::string_view last, last_error;
  while (!errors.empty()) {
    const std::size_t end = std::min(errors.find('\n'), errors.size());
    const std::string_view line = errors.substr(0, end);
    if (line.find_first_not_of(" \t\r") != line.npos) last = line;
    if (line.starts_with("ERROR")) last_error = line;
    errors.remove_prefix(std::min(end + 1, errors.size()));
  }
  return printable(last_error.empty() ? last : last_error, 240);
}

}  // namespace outrider
