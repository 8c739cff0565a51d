// A Python environment with PyTorch of this program's own, in the cache, for what only PyTorch
// does: reading its files, training. It is made once: PyTorch is large, and only some of its
// versions are safe to read foreign files with.

#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/progress.h"
#include "base/subprocess.h"
#include "formats/partial_file.h"

namespace outrider {

// Exit status of a program for which packages are missing or too old.
inline constexpr int kPackagesMissing = 3;

class PythonEnvironment {
 public:
  // `subject`, a file or folder that is worked on, begins messages. offline: none is made.
  PythonEnvironment(std::string subject, bool offline, Progress progress);

  // "python/torch" in the cache. It may not exist. Throws Error as cache_folder() does.
  static std::filesystem::path folder();
  // Whether there is one. It may lack packages.
  bool is_there() const;

  // Makes the environment if there is none or it lacks packages: some minutes, gigabytes from the
  // network, which a note says before it begins. Throws Error: offline; no python3, venv or pip, no
  // network, no space, an interrupt. Of several processes one makes it, the others wait.
  void prepare() const;

  // Runs its python with the arguments `program.argv`, until the progress is interrupted. The
  // program exits with kPackagesMissing if it cannot import what it needs, before it does anything
  // else: then, as where there is no environment or python cannot be started, the environment is
  // made anew, once, and the program runs again. Throws Error as prepare(), and if it still does
  // not work. Any other status is the caller's to judge.
  SubprocessResult run(Subprocess program) const;

  // Throws Error: the environment does not work, for what the program said.
  [[noreturn]] void fail(const SubprocessResult& result) const;

 private:
  std::filesystem::path python() const;
  void note(const std::string& line) const;
  void check_interrupt() const;
  SubprocessResult run_watched(Subprocess subprocess) const;
  std::unique_ptr<PartialFile> lock() const;
  void make() const;
  void remove() const;
  void create() const;
  void install() const;

  const std::string subject_;
  const bool offline_;
  const Progress progress_;
  const std::filesystem::path folder_;
};

}  // namespace outrider
