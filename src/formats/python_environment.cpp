#include "formats/python_environment.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// PyTorch brings the libraries of graphics processors, which is most of its size. matplotlib draws
// the curves of training.
constexpr const char* kRequirements[] = {"torch==2.14.1", "safetensors==0.8.0", "numpy==2.4.6",
                                         "matplotlib==3.11.2"};
constexpr std::uint64_t kEnvironmentBytes = 5'900'000'000;
constexpr std::uint64_t kDownloadBytes = 4'000'000'000;  // beside it while pip works

// Curves can be done without, so an environment that lacks matplotlib is good enough.
constexpr const char* kProbe = R"(
import sys
try:
    import numpy, safetensors, torch
except (ImportError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)
)";

bool is_unusable(const SubprocessResult& result) {
  return result.status == kPackagesMissing || !result.start_problem.empty();
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t total = 0;
  std::error_code problem;
  fs::recursive_directory_iterator entry(folder, problem), end;
  while (!problem && entry != end) {
    std::error_code gone;
    const std::uintmax_t size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) total += size;
    entry.increment(problem);
  }
  return total;
}

}  // namespace

PythonEnvironment::PythonEnvironment(std::string subject, bool offline, Progress progress)
    : subject_(std::move(subject)),
      offline_(offline),
      progress_(std::move(progress)),
      folder_(folder()) {}

fs::path PythonEnvironment::folder() {
  return cache_folder() / "python" / "torch";
}

fs::path PythonEnvironment::python() const {
  return folder_ / "bin/python";
}

bool PythonEnvironment::is_there() const {
  std::error_code problem;
  return fs::exists(python(), problem);
}

void PythonEnvironment::prepare() const {
  const SubprocessResult result = run({.argv = {"-I", "-c", kProbe}});
  if (result.status != 0) fail(result);
}

SubprocessResult PythonEnvironment::run(Subprocess program) const {
  program.argv.insert(program.argv.begin(), python().string());
  SubprocessResult result;
  // Whether it ran, so that nothing is left to make.
  const auto runs = [&] {
    if (!is_there()) return false;
    result = run_watched(program);
    return !is_unusable(result);
  };
  if (runs()) return result;
  // Whoever makes the environment holds a lock; another waits, and finds it made.
  const std::unique_ptr<PartialFile> held = lock();
  if (runs()) return result;
  make();
  if (!runs()) fail(result);
  return result;
}

void PythonEnvironment::fail(const SubprocessResult& result) const {
  std::string problem =
      result.start_problem.empty() ? complaint(result.errors) : result.start_problem;
  if (problem.empty()) problem = fmt::format("python ended with status {}", result.status);
  throw Error("{}: the Python environment in {} does not work: {}; delete it and try again",
              subject_, folder_.string(), problem);
}

void PythonEnvironment::note(const std::string& line) const {
  if (progress_.note) progress_.note(line);
}

void PythonEnvironment::check_interrupt() const {
  if (progress_.interrupted && progress_.interrupted()) throw Error("{}: interrupted", subject_);
}

SubprocessResult PythonEnvironment::run_watched(Subprocess subprocess) const {
  subprocess.interrupted = progress_.interrupted;
  SubprocessResult result = run_subprocess(subprocess);
  if (result.was_interrupted) throw Error("{}: interrupted", subject_);
  // Ctrl-C goes to all processes of the terminal: the child may have ended before we see it.
  if (result.status != 0) check_interrupt();
  return result;
}

std::unique_ptr<PartialFile> PythonEnvironment::lock() const {
  std::error_code problem;
  fs::create_directories(folder_.parent_path(), problem);
  if (problem) {
    throw Error("{}: cannot be created: {}; OUTRIDER_CACHE can name another folder for it",
                folder_.parent_path().string(), problem.message());
  }
  for (bool told = false;; told = true) {
    if (auto file = PartialFile::try_lock(folder_)) return file;
    if (!told) note("another process makes the Python environment; waiting for it");
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void PythonEnvironment::make() const {
  if (offline_) {
    throw Error("{}: there is no Python environment with PyTorch in {}, and offline none is made",
                subject_, folder_.string());
  }
  std::error_code problem;
  const fs::space_info disk = fs::space(folder_.parent_path(), problem);
  if (!problem && disk.available < kEnvironmentBytes + kDownloadBytes) {
    throw Error(
        "{}: a Python environment with PyTorch needs {} of free disk, {} are left; make room or "
        "set OUTRIDER_CACHE to another disk",
        folder_.parent_path().string(), human_bytes(kEnvironmentBytes + kDownloadBytes),
        human_bytes(disk.available));
  }
  note(
      fmt::format("making a Python environment with PyTorch in {}: once, some minutes and up to "
                  "{}",
                  folder_.string(), human_bytes(kEnvironmentBytes)));
  remove();
  try {
    create();
    install();
  } catch (...) {
    remove();
    throw;
  }
  fs::remove_all(folder_ / "tmp", problem);
}

void PythonEnvironment::remove() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void PythonEnvironment::create() const {
  std::string output;
  const SubprocessResult result =
      run_watched({.argv = {"python3", "-I", "-m", "venv", folder_.string()},
                   .on_output = [&](std::span<const std::byte> bytes) {
                     output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                   }});
  if (!result.start_problem.empty()) {
    throw Error("{}: python3 cannot be started: {}; install the packages python3 and python3-venv",
                subject_, result.start_problem);
  }
  if (result.status == 0) return;
  for (const std::string& said : {output, result.errors}) {
    if (said.find("ensurepip") != said.npos || said.find("No module named venv") != said.npos)
      throw Error("{}: python3 cannot make environments; install the package python3-venv",
                  subject_);
  }
  throw Error("{}: python3 -m venv failed with status {}: {}", subject_, result.status,
              complaint(result.errors.empty() ? output : result.errors));
}

void PythonEnvironment::install() const {
  std::error_code problem;
  fs::create_directories(folder_ / "tmp", problem);
  std::vector<std::string> argv = {python().string(),
                                   "-m",
                                   "pip",
                                   "install",
                                   "--quiet",
                                   "--no-input",
                                   "--no-cache-dir",
                                   "--progress-bar",
                                   "off",
                                   "--disable-pip-version-check",
                                   "--only-binary",
                                   ":all:"};
  argv.insert(argv.end(), std::begin(kRequirements), std::end(kRequirements));
  std::chrono::steady_clock::time_point shown;
  const SubprocessResult result = run_watched(
      {.argv = std::move(argv),
       // pip would fill the system's temporary folder, which is often small; and a pip.py in
       // the working folder must not be imported.
       .environment = {{"TMPDIR", (folder_ / "tmp").string()}, {"PYTHONSAFEPATH", "1"}},
       .on_tick = [&] {
         const auto now = std::chrono::steady_clock::now();
         // Tens of thousands of files are counted.
         if (!progress_.advance || now - shown < std::chrono::seconds(3)) return;
         shown = now;
         progress_.advance("installing PyTorch", std::min(bytes_in(folder_), kEnvironmentBytes),
                           kEnvironmentBytes);
       }});
  if (result.status == 0) return;
  if (result.errors.find("No module named pip") != result.errors.npos)
    throw Error("{}: python3 has no pip; install the packages python3-pip and python3-venv",
                subject_);
  if (result.errors.find("No space left on device") != result.errors.npos) {
    throw Error("{}: the disk is full; make room or set OUTRIDER_CACHE to another disk",
                folder_.parent_path().string());
  }
  throw Error("{}: PyTorch cannot be installed: {}; check the network and try again", subject_,
              complaint(result.errors));
}

}  // namespace outrider
