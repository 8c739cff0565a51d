// A SQLite file in the cache folder, in which a store keeps its rows.
//
// Any number of processes may use the file at once. Each use opens it anew, so a process holds
// nothing of it in between. Writing is atomic, also if the process is killed. The file is not
// written through to the disk, which would take 10 to 20 ms each time: if the power fails it may be
// damaged, which is noticed.
//
// A damaged file (cut off, overwritten, no such store) is moved to FILE.damaged, in place of an
// older one, with a note, and a new file is begun. Processes lock the folder (flock) together while
// they use the file, and alone to move it. A file that a newer version of the program made stays as
// it is.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/progress.h"

struct sqlite3;
struct sqlite3_stmt;

namespace outrider {

// The latest time of use that a store believes, in seconds since 1970: in the year 2242.
inline constexpr std::int64_t kUsedMax = std::int64_t{1} << 33;

// The file is to be moved aside. The message is the reason alone.
class DamagedStore : public Error {
 public:
  using Error::Error;
};
class StoreOfNewerVersion : public Error {
 public:
  using Error::Error;
};
class UnavailableStore : public Error {
 public:
  using Error::Error;
};

class Database {
 public:
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();  // takes back what was not committed

  // Statements without parameters, whose rows are not read.
  void run(const char* statements) const;
  // The first value of a statement's first row; 0 or nothing if it has none.
  std::int64_t integer(const char* statement) const;
  std::string text(const char* statement) const;

 private:
  friend class StoreFile;
  friend class Statement;

  Database(std::filesystem::path file, const char* rows) : file_(std::move(file)), rows_(rows) {}
  // Throws what a code means, if it is no success.
  void check(int code) const;

  const std::filesystem::path file_;
  const char* const rows_;  // what messages call what it holds
  sqlite3* connection_ = nullptr;
};

// One statement, its parameters bound in order.
class Statement {
 public:
  template <typename... Values>
  Statement(const Database& database, const std::string& text, const Values&... values)
      : Statement(database, text) {
    int n = 0;
    (bind(++n, values), ...);
  }
  Statement(const Database& database, const std::string& text);

  // Runs it as far as its next row; false: it is done.
  bool step();
  // Of the row.
  std::int64_t integer(int column);
  std::string text(int column);
  std::string blob(int column);

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };

  void bind(int n, std::int64_t value);
  void bind(int n, const std::string& value);
  void bind(int n, std::span<const std::byte> value);

  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class StoreFile {
 public:
  struct Form {
    // SQLite keeps both in the file's header. application: the kind of store; layout: the version
    // of the table and of its contents.
    std::int64_t application, layout;
    const char* table;  // the statement that makes it
    const char* rows;   // the table's name, and what messages call what it holds
    unsigned mode;      // of a new file; one that excludes others is given to an old file, too
    // Reads all rows; throws DamagedStore where one is not as it was written.
    void (*read_all)(const Database& database);
  };

  // `progress` is told, by note and detail, as long as the store lives. Touches no file.
  StoreFile(std::filesystem::path file, Form form, Progress progress)
      : file_(std::move(file)), form_(form), progress_(std::move(progress)) {}

  // Does work that opens the file; where it is damaged, moves it aside and begins again. Throws
  // Error if the file cannot be used.
  template <typename Work>
  std::invoke_result_t<Work> on_sound_file(Work work) const {
    for (int tries = 3;; --tries) {
      try {
        const FolderLock lock(file_, Holding::with_others);
        return work();
      } catch (const DamagedStore& damage) {
        if (tries == 1) throw UnavailableStore("{}: damaged ({})", file_.string(), damage.what());
        move_aside(damage);
      }
    }
  }

  // The same, but where the file cannot be used (a folder that cannot be written, a full disk, a
  // newer version's file) one line says why: a detail, or a note about a newer version's file. From
  // then on this does nothing.
  template <typename Work>
  void without_failing(Work work) {
    if (!usable_) return;
    try {
      on_sound_file(work);
    } catch (const StoreOfNewerVersion& problem) {
      usable_ = false;
      if (progress_.note) progress_.note(problem.what());
    } catch (const UnavailableStore& problem) {
      usable_ = false;
      if (progress_.detail) progress_.detail(problem.what());
    }
  }

  // In a transaction that reads; null if nothing was ever written. `whole`: throws if anything in
  // the file is damaged, which takes 0.5 ms for 1 MB; otherwise what is read shows it.
  std::unique_ptr<Database> open_to_read(bool whole) const;
  // In a transaction that writes. Makes the file, its folder and the table if they are missing.
  std::unique_ptr<Database> open_to_write() const;
  // Removes all rows, and a damaged file that was moved aside earlier; returns how many rows.
  std::int64_t clear() const;

 private:
  // Everybody who uses the file holds the folder's lock with others, and who moves the file holds
  // it alone: a process that still had the moved file open would take the new file's journal for
  // its own and apply it.
  enum class Holding { with_others, alone };
  class FolderLock {
   public:
    // A folder that is not there holds no file, and is not locked.
    FolderLock(const std::filesystem::path& file, Holding holding);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

   private:
    int descriptor_;
  };

  void prepare(bool make) const;
  std::unique_ptr<Database> open(bool make) const;
  bool has_table(const Database& database) const;
  bool is_damaged() const;
  void move_aside(const DamagedStore& damage) const;

  const std::filesystem::path file_;
  const Form form_;
  const Progress progress_;
  bool usable_ = true;
};

}  // namespace outrider
