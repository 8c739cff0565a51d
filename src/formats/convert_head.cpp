#include "formats/convert_head.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/subprocess.h"
#include "formats/catalog.h"
#include "formats/foreign_file.h"
#include "formats/parse_json.h"
#include "formats/partial_file.h"
#include "formats/safetensors.h"

namespace outrider {

extern const char kConvertHeadScript[];

namespace {

namespace fs = std::filesystem;

// PyTorch brings the libraries of graphics processors, which is most of its size.
constexpr const char* kRequirements[] = {"torch==2.14.1", "safetensors==0.8.0", "numpy==2.4.6"};
constexpr std::uint64_t kEnvironmentBytes = 5'900'000'000;
constexpr std::uint64_t kDownloadBytes = 4'000'000'000;  // beside it while pip works

// Exit statuses of the script.
constexpr int kRefused = 2, kPackagesMissing = 3;

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

class Converter {
 public:
  Converter(const fs::path& from, const ConvertOptions& options)
      : from_(from), options_(options), folder_(converter_folder()) {}

  // What the script prints.
  nlohmann::json convert(const fs::path& to) const {
    std::string output;
    SubprocessResult result;
    const auto run_script = [&] {
      output.clear();
      result = run(
          {.argv = {python().string(), "-I", "-c", kConvertHeadScript, from_.string(), to.string()},
           .on_output = [&](std::span<const std::byte> bytes) {
             output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
           }});
    };
    // Whoever makes the environment holds a lock; another waits, and finds it made.
    std::error_code problem;
    if (fs::exists(python(), problem)) run_script();
    if (!fs::exists(python(), problem) || is_unusable(result)) {
      const std::unique_ptr<PartialFile> held = lock();
      if (fs::exists(python(), problem)) run_script();
      if (!fs::exists(python(), problem) || is_unusable(result)) {
        make_environment();
        run_script();
      }
    }
    if (result.status == kRefused) throw Error("{}: {}", from_.string(), complaint(result.errors));
    if (result.status != 0 || !result.start_problem.empty()) {
      throw Error("{}: the Python environment in {} does not work: {}; delete it and try again",
                  from_.string(), folder_.string(),
                  result.start_problem.empty() ? complaint(result.errors) : result.start_problem);
    }
    return parse_json(output, "the converter's answer");
  }

 private:
  fs::path python() const { return folder_ / "bin/python"; }

  static bool is_unusable(const SubprocessResult& result) {
    return result.status == kPackagesMissing || !result.start_problem.empty();
  }

  void note(const std::string& line) const {
    if (options_.progress.note) options_.progress.note(line);
  }
  void check_interrupt() const {
    if (options_.progress.interrupted && options_.progress.interrupted())
      throw Error("{}: interrupted", from_.string());
  }

  SubprocessResult run(Subprocess subprocess) const {
    subprocess.interrupted = options_.progress.interrupted;
    SubprocessResult result = run_subprocess(subprocess);
    if (result.was_interrupted) throw Error("{}: interrupted", from_.string());
    // Ctrl-C goes to all processes of the terminal: the child may have ended before we see it.
    if (result.status != 0) check_interrupt();
    return result;
  }

  std::unique_ptr<PartialFile> lock() const {
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

  void make_environment() const {
    if (options_.offline) {
      throw Error("{}: there is no Python environment with PyTorch in {}, and offline none is made",
                  from_.string(), folder_.string());
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
    remove_environment();
    try {
      create();
      install();
    } catch (...) {
      remove_environment();
      throw;
    }
    fs::remove_all(folder_ / "tmp", problem);
  }

  void remove_environment() const {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void create() const {
    std::string output;
    const SubprocessResult result =
        run({.argv = {"python3", "-I", "-m", "venv", folder_.string()},
             .on_output = [&](std::span<const std::byte> bytes) {
               output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
             }});
    if (!result.start_problem.empty()) {
      throw Error(
          "{}: python3 cannot be started: {}; install the packages python3 and python3-venv",
          from_.string(), result.start_problem);
    }
    if (result.status == 0) return;
    for (const std::string& said : {output, result.errors}) {
      if (said.find("ensurepip") != said.npos || said.find("No module named venv") != said.npos)
        throw Error("{}: python3 cannot make environments; install the package python3-venv",
                    from_.string());
    }
    throw Error("{}: python3 -m venv failed with status {}: {}", from_.string(), result.status,
                complaint(result.errors.empty() ? output : result.errors));
  }

  void install() const {
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
    const SubprocessResult result =
        run({.argv = std::move(argv),
             // pip would fill the system's temporary folder, which is often small; and a pip.py in
             // the working folder must not be imported.
             .environment = {{"TMPDIR", (folder_ / "tmp").string()}, {"PYTHONSAFEPATH", "1"}},
             .on_tick = [&] {
               const auto now = std::chrono::steady_clock::now();
               // Tens of thousands of files are counted.
               if (!options_.progress.advance || now - shown < std::chrono::seconds(3)) return;
               shown = now;
               options_.progress.advance("installing PyTorch",
                                         std::min(bytes_in(folder_), kEnvironmentBytes),
                                         kEnvironmentBytes);
             }});
    if (result.status == 0) return;
    if (result.errors.find("No module named pip") != result.errors.npos)
      throw Error("{}: python3 has no pip; install the packages python3-pip and python3-venv",
                  from_.string());
    if (result.errors.find("No space left on device") != result.errors.npos) {
      throw Error("{}: the disk is full; make room or set OUTRIDER_CACHE to another disk",
                  folder_.parent_path().string());
    }
    throw Error("{}: PyTorch cannot be installed: {}; check the network and try again",
                from_.string(), complaint(result.errors));
  }

  const fs::path& from_;
  const ConvertOptions& options_;
  const fs::path folder_;
};

std::string content_of(const fs::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

fs::path folder_of(const fs::path& path) {
  return fs::absolute(path).lexically_normal().parent_path();
}

void check_input(const fs::path& from) {
  std::error_code problem;
  if (fs::is_directory(from, problem))
    throw Error("{}: {}", from.string(), refusal_of_folder(from, Wanted::head));
  const MappedFile file(from);
  const std::span<const std::byte> bytes = file.bytes();
  if (is_pytorch_file(bytes)) return;
  if (bytes.size() > 8 && bytes[8] == std::byte{'{'}) {
    throw Error("{}: is a safetensors file, expected one of PyTorch's; it needs no conversion",
                from.string());
  }
  throw Error("{}: {}", from.string(), refusal_of_file(bytes, from, Wanted::head));
}

void check_output(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  if (!fs::is_directory(folder_of(to), problem))
    throw Error("{}: cannot be written: there is no such folder", to.string());
  if (!fs::exists(to, problem)) return;
  if (!fs::is_regular_file(to, problem))
    throw Error("{}: cannot be written: is no regular file", to.string());
  if (fs::equivalent(from, to, problem))
    throw Error("{}: is the file to convert, expected another one to write", to.string());
}

// Whether the configuration must be copied. Throws Error if another one is there.
bool needs_config(const fs::path& source, const fs::path& target) {
  std::error_code problem;
  if (!fs::exists(source, problem)) return false;
  if (!fs::exists(target, problem)) return true;
  if (fs::equivalent(source, target, problem) || content_of(source) == content_of(target))
    return false;
  throw Error("{}: is another configuration than {}; write into another folder", target.string(),
              source.string());
}

}  // namespace

fs::path converter_folder() {
  return cache_folder() / "python" / "convert-head";
}

fs::path converted_path(const fs::path& from) {
  return fs::path(from).replace_extension(".safetensors");
}

ConvertedHead convert_head(const fs::path& from, const fs::path& to,
                           const ConvertOptions& options) {
  check_input(from);
  check_output(from, to);
  const fs::path config = folder_of(from) / "config.json";
  const fs::path config_copy = folder_of(to) / "config.json";
  ConvertedHead head;
  head.path = to;
  const bool copies_config = needs_config(config, config_copy);

  const nlohmann::json answer = Converter(from, options).convert(to);
  if (!answer.is_object())
    throw Error("{}: the converter gave no answer, expected an object", from.string());
  for (const auto& name : answer.value("left_out", nlohmann::json::array()))
    if (name.is_string()) head.left_out.push_back(name.get<std::string>());
  const Checkpoint written = read_safetensors(to);
  head.n_tensors = written.tensors.size();
  head.bytes = written.file_bytes();
  if (copies_config) {
    std::error_code problem;
    fs::copy_file(config, config_copy, problem);
    if (problem) throw Error("{}: cannot be written: {}", config_copy.string(), problem.message());
    head.config_was_copied = true;
  }
  return head;
}

}  // namespace outrider
