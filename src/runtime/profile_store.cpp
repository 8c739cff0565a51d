#include "runtime/profile_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// SQLite keeps both numbers in the file's header. The first says whose file it is ("outr"), the
// second counts the forms of kTable and of keys.
constexpr std::int64_t kApplication = 0x6f757472;
constexpr std::int64_t kLayout = 1;

// turn: above that of every profile used earlier, whatever the clock says. Long columns come last,
// so that SQLite can read the others without them.
constexpr const char* kTable =
    "CREATE TABLE profiles (id TEXT NOT NULL, schema INTEGER NOT NULL, turn INTEGER NOT NULL, "
    "used INTEGER NOT NULL, checksum TEXT NOT NULL, key TEXT NOT NULL, document TEXT NOT NULL, "
    "PRIMARY KEY (id, schema)) STRICT";

constexpr const char* kAside = ".damaged";

constexpr std::chrono::milliseconds kLongestWait{5000};  // for other processes

// The file is to be moved aside. The message is the reason alone.
class Damaged : public Error {
 public:
  using Error::Error;
};
class MadeByNewerVersion : public Error {
 public:
  using Error::Error;
};
class Unavailable : public Error {
 public:
  using Error::Error;
};

class Database {
 public:
  // Null if there is no file and none is to be made.
  static std::unique_ptr<Database> open(const fs::path& file, bool make);
  ~Database() { sqlite3_close(connection_); }  // takes back what was not committed
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* connection() const { return connection_; }
  // Statements without parameters, whose rows are not read.
  void run(const char* statements) const {
    check(sqlite3_exec(connection_, statements, nullptr, nullptr, nullptr));
  }
  // Throws what a code means, if it is no success.
  void check(int code) const;

 private:
  explicit Database(fs::path file) : file_(std::move(file)) {}
  fs::path file_;
  sqlite3* connection_ = nullptr;
};

// One statement, its parameters bound in order.
class Statement {
 public:
  template <typename... Values>
  Statement(const Database& database, const std::string& text, const Values&... values)
      : database_(database) {
    sqlite3_stmt* statement = nullptr;
    database_.check(
        sqlite3_prepare_v2(database_.connection(), text.c_str(), -1, &statement, nullptr));
    statement_.reset(statement);
    int n = 0;
    (bind(++n, values), ...);
  }

  // Runs it as far as its next row; false: it is done.
  bool step() {
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) database_.check(code);
    return false;
  }
  std::int64_t integer(int column) { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) {
    const unsigned char* bytes = sqlite3_column_text(statement_.get(), column);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
    return bytes ? std::string(reinterpret_cast<const char*>(bytes), size) : std::string();
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };

  void bind(int n, std::int64_t value) {
    database_.check(sqlite3_bind_int64(statement_.get(), n, value));
  }
  void bind(int n, const std::string& value) {
    database_.check(sqlite3_bind_text64(statement_.get(), n, value.data(), value.size(),
                                        SQLITE_TRANSIENT, SQLITE_UTF8));
  }

  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

std::unique_ptr<Database> Database::open(const fs::path& file, bool make) {
  std::unique_ptr<Database> database(new Database(file));
  const int flags = SQLITE_OPEN_READWRITE | (make ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(file.c_str(), &database->connection_, flags, nullptr);
  std::error_code problem;
  if (code == SQLITE_CANTOPEN && !make && !fs::exists(file, problem) && !problem) return nullptr;
  database->check(code);
  sqlite3_busy_timeout(database->connection_, static_cast<int>(kLongestWait.count()));
  database->run("PRAGMA synchronous = OFF");
  return database;
}

void Database::check(int code) const {
  const char* message = connection_ ? sqlite3_errmsg(connection_) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_OK: return;
    // Our statements are right and run on our own table alone, so an error in one of them or a
    // constraint that does not hold means a damaged file, too.
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT:
    case SQLITE_ERROR: throw Damaged("{}", message);
    default: throw Unavailable("{}: profiles cannot be used: {}", file_.string(), message);
  }
}

std::int64_t integer(const Database& database, const char* statement) {
  Statement value(database, statement);
  return value.step() ? value.integer(0) : 0;
}

std::string text(const Database& database, const char* statement) {
  Statement value(database, statement);
  return value.step() ? value.text(0) : std::string();
}

// False if the file is still empty. Throws if it is no store of this version.
bool has_profiles(const Database& database, const fs::path& file) {
  const std::int64_t application = integer(database, "PRAGMA application_id");
  const std::int64_t layout = integer(database, "PRAGMA user_version");
  if (application == kApplication && layout > kLayout)
    throw MadeByNewerVersion(
        "{}: made by a newer version of outrider; use that version, or delete the file",
        file.string());
  const std::string schema =
      text(database, "SELECT coalesce(group_concat(sql, ';'), '') FROM sqlite_schema");
  if (schema.empty() && application == 0) return false;
  if (application != kApplication || layout != kLayout || schema != kTable)
    throw Damaged("it is no store of profiles");
  return true;
}

// Reads all of the file, which takes 0.5 ms for 1 MB. find() does without: it notices damage in
// what it reads.
void check_integrity(const Database& database) {
  if (const std::string found = text(database, "PRAGMA integrity_check(1)"); found != "ok")
    throw Damaged("{}", found);
}

void begin_profiles(const Database& database) {
  database.run(kTable);
  database.run(fmt::format("PRAGMA application_id = {}", kApplication).c_str());
  database.run(fmt::format("PRAGMA user_version = {}", kLayout).c_str());
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string checksum(const std::string& key, const std::string& document) {
  Sha256 hash;
  for (const std::string& part : {key, std::string("\n"), document})
    hash.update(std::as_bytes(std::span(part)));
  return hash.hex();
}

// What entry_in() reads.
const std::string kSelectEntries = "SELECT key, document, checksum, schema, used FROM profiles ";
constexpr std::int64_t kUsedMax = std::int64_t{1} << 33;  // the year 2242

ProfileStore::Entry entry_in(Statement& row) {
  const std::string key = row.text(0), document = row.text(1);
  const std::int64_t used = row.integer(4);
  if (row.text(2) != checksum(key, document) || used < 0 || used > kUsedMax)
    throw Damaged("a profile is not as it was written");
  try {
    return {.key = profile_key_from(Json::parse(key)),
            .document = Json::parse(document),
            .schema = static_cast<int>(row.integer(3)),
            .used = std::chrono::sys_seconds(std::chrono::seconds(used)),
            .bytes = key.size() + document.size()};
  } catch (const Json::exception& problem) {
    throw Damaged("{}", printable(problem.what()));
  }
}

std::vector<ProfileStore::Entry> read_entries(const fs::path& file) {
  const auto database = Database::open(file, false);
  if (!database) return {};
  database->run("BEGIN");
  if (!has_profiles(*database, file)) return {};
  check_integrity(*database);
  std::vector<ProfileStore::Entry> entries;
  Statement row(*database, kSelectEntries + "ORDER BY turn DESC");
  while (row.step()) entries.push_back(entry_in(row));
  return entries;
}

// Everybody who uses the file holds the folder's lock with others, and who moves the file holds it
// alone: a process that still had the moved file open would take the new file's journal for its own
// and apply it.
enum class Holding { with_others, alone };

class FolderLock {
 public:
  // A folder that is not there holds no file, and is not locked.
  FolderLock(const fs::path& file, Holding holding) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return;
      cannot(folder, "opened");
    }
    const int operation = (holding == Holding::alone ? LOCK_EX : LOCK_SH) | LOCK_NB;
    constexpr std::chrono::milliseconds kPause{5};
    for (auto tries = kLongestWait / kPause; ::flock(descriptor_, operation) != 0; --tries) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || tries == 0) {
        const int problem = errno;
        ::close(descriptor_);
        errno = problem;
        cannot(folder, "locked");
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  [[noreturn]] static void cannot(const fs::path& folder, const char* what) {
    throw Unavailable("{}: cannot be {}: {}", folder.string(), what, std::strerror(errno));
  }

  int descriptor_;
};

fs::path with_suffix(fs::path file, const char* suffix) {
  return file += suffix;
}

bool is_damaged(const fs::path& file) {
  try {
    read_entries(file);
    return false;
  } catch (const Damaged&) {
    return true;
  }
}

// The caller may have met a file that another process has replaced since.
void move_aside(const fs::path& file, const Damaged& damage, const Progress& progress) {
  const FolderLock lock(file, Holding::alone);
  if (!is_damaged(file)) return;
  std::error_code problem;
  // Journals belong to this file, and the new one will have its name.
  for (const char* suffix : {"-journal", "-wal", "-shm"})
    fs::remove(with_suffix(file, suffix), problem);
  const fs::path aside = with_suffix(file, kAside);
  fs::rename(file, aside, problem);
  if (problem)
    throw Unavailable("{}: damaged ({}), and cannot be moved: {}", file.string(), damage.what(),
                      problem.message());
  if (progress.note)
    progress.note(fmt::format("{}: damaged ({}), moved to {} and begun anew", file.string(),
                              damage.what(), aside.filename().string()));
}

// Does work that opens the file; where it is damaged, moves it aside and begins again.
template <typename Work>
std::invoke_result_t<Work> on_sound_file(const fs::path& file, const Progress& progress,
                                         Work work) {
  for (int tries = 3;; --tries) {
    try {
      const FolderLock lock(file, Holding::with_others);
      return work();
    } catch (const Damaged& damage) {
      if (tries == 1) throw Unavailable("{}: damaged ({})", file.string(), damage.what());
      move_aside(file, damage, progress);
    }
  }
}

std::optional<Json> find_in(const fs::path& file, const std::string& id) {
  const auto database = Database::open(file, false);
  if (!database) return {};
  database->run("BEGIN");
  if (!has_profiles(*database, file)) return {};
  std::optional<Json> document;
  {
    Statement row(*database, kSelectEntries + "WHERE id = ?1 AND schema = ?2", id,
                  std::int64_t{kProfileSchema});
    if (!row.step()) return {};
    document = entry_in(row).document;
  }
  database->run("COMMIT");
  try {
    Statement(*database,
              "UPDATE profiles SET used = unixepoch(), turn = (SELECT max(turn) + 1 FROM profiles) "
              "WHERE id = ?1 AND schema = ?2",
              id, std::int64_t{kProfileSchema})
        .step();
  } catch (const Unavailable&) {
    // The file can be read and not be written.
  }
  return document;
}

void keep_in(const fs::path& file, const std::string& id, const std::string& key,
             const std::string& document) {
  const auto database = Database::open(file, true);
  database->run("BEGIN IMMEDIATE");
  if (has_profiles(*database, file)) {
    check_integrity(*database);
  } else {
    begin_profiles(*database);
  }
  Statement(*database,
            "INSERT OR REPLACE INTO profiles (id, schema, key, document, checksum, used, turn) "
            "VALUES (?1, ?2, ?3, ?4, ?5, unixepoch(), "
            "(SELECT coalesce(max(turn), 0) + 1 FROM profiles))",
            id, std::int64_t{kProfileSchema}, key, document, checksum(key, document))
      .step();
  Statement(*database,
            "DELETE FROM profiles WHERE turn <= "
            "(SELECT turn FROM profiles ORDER BY turn DESC LIMIT 1 OFFSET ?1)",
            std::int64_t{kProfilesMax})
      .step();
  database->run("COMMIT");
}

std::int64_t clear_in(const fs::path& file) {
  const auto database = Database::open(file, false);
  if (!database) return 0;
  database->run("BEGIN IMMEDIATE");
  if (!has_profiles(*database, file)) return 0;
  const std::int64_t n_profiles = integer(*database, "SELECT count(*) FROM profiles");
  database->run("DELETE FROM profiles; COMMIT");
  try {
    database->run("VACUUM");
  } catch (const Unavailable&) {
    // The file stays as large as it is.
  }
  return n_profiles;
}

}  // namespace

fs::path profile_file() {
  return cache_folder() / "profiles.db";
}

ProfileStore::ProfileStore(fs::path file, Progress progress)
    : file_(std::move(file)), progress_(std::move(progress)) {}

template <typename Work>
void ProfileStore::without_failing(Work work) {
  if (!usable_) return;
  try {
    on_sound_file(file_, progress_, work);
  } catch (const MadeByNewerVersion& problem) {
    usable_ = false;
    if (progress_.note) progress_.note(problem.what());
  } catch (const Unavailable& problem) {
    usable_ = false;
    if (progress_.detail) progress_.detail(problem.what());
  }
}

std::optional<Json> ProfileStore::find(const ProfileKey& key) {
  std::optional<Json> document;
  without_failing([&] { document = find_in(file_, id_of(key)); });
  return document;
}

void ProfileStore::keep(const ProfileKey& key, const Json& document) {
  std::error_code problem;  // opening the file says it
  if (usable_) fs::create_directories(file_.parent_path(), problem);
  without_failing([&] { keep_in(file_, id_of(key), dump(json_of(key)), dump(document)); });
}

std::vector<ProfileStore::Entry> ProfileStore::entries() {
  return on_sound_file(file_, progress_, [&] { return read_entries(file_); });
}

std::int64_t ProfileStore::clear() {
  std::error_code problem;
  fs::remove(with_suffix(file_, kAside), problem);
  return on_sound_file(file_, progress_, [&] { return clear_in(file_); });
}

}  // namespace outrider
