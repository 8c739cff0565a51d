#include "runtime/store_file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAside = ".damaged";
constexpr std::chrono::milliseconds kLongestWait{5000};  // for other processes

fs::path with_suffix(fs::path file, const char* suffix) {
  return file += suffix;
}

// Reads all of the file.
void check_integrity(const Database& database) {
  if (const std::string found = database.text("PRAGMA integrity_check(1)"); found != "ok")
    throw DamagedStore("{}", found);
}

}  // namespace

Database::~Database() {
  sqlite3_close(connection_);
}

void Database::run(const char* statements) const {
  check(sqlite3_exec(connection_, statements, nullptr, nullptr, nullptr));
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
    case SQLITE_ERROR: throw DamagedStore("{}", message);
    default: throw UnavailableStore("{}: {} cannot be used: {}", file_.string(), rows_, message);
  }
}

std::int64_t Database::integer(const char* statement) const {
  Statement value(*this, statement);
  return value.step() ? value.integer(0) : 0;
}

std::string Database::text(const char* statement) const {
  Statement value(*this, statement);
  return value.step() ? value.text(0) : std::string();
}

Statement::Statement(const Database& database, const std::string& text) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  database_.check(sqlite3_prepare_v2(database_.connection_, text.c_str(), -1, &statement, nullptr));
  statement_.reset(statement);
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.check(code);
  return false;
}

std::int64_t Statement::integer(int column) {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string Statement::text(int column) {
  const unsigned char* bytes = sqlite3_column_text(statement_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return bytes ? std::string(reinterpret_cast<const char*>(bytes), size) : std::string();
}

std::string Statement::blob(int column) {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return bytes ? std::string(static_cast<const char*>(bytes), size) : std::string();
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void Statement::bind(int n, std::int64_t value) {
  database_.check(sqlite3_bind_int64(statement_.get(), n, value));
}

void Statement::bind(int n, const std::string& value) {
  database_.check(sqlite3_bind_text64(statement_.get(), n, value.data(), value.size(),
                                      SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind(int n, std::span<const std::byte> value) {
  database_.check(
      sqlite3_bind_blob64(statement_.get(), n, value.data(), value.size(), SQLITE_TRANSIENT));
}

StoreFile::FolderLock::FolderLock(const fs::path& file, Holding holding) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const auto cannot = [&](const char* what) {
    throw UnavailableStore("{}: cannot be {}: {}", folder.string(), what, std::strerror(errno));
  };
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    cannot("opened");
  }
  const int operation = (holding == Holding::alone ? LOCK_EX : LOCK_SH) | LOCK_NB;
  constexpr std::chrono::milliseconds kPause{5};
  for (auto tries = kLongestWait / kPause; ::flock(descriptor_, operation) != 0; --tries) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries == 0) {
      const int problem = errno;
      ::close(descriptor_);
      errno = problem;
      cannot("locked");
    }
    std::this_thread::sleep_for(kPause);
  }
}

StoreFile::FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// Makes the file, if SQLite is not to make it with the mode of any file, and keeps others from a
// file that is the user's alone: one that a backup brought back, perhaps.
void StoreFile::prepare(bool make) const {
  if (make) {
    const int made = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, form_.mode);
    if (made >= 0) ::close(made);
  }
  struct stat status;
  if (::stat(file_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if ((status.st_mode & 07777 & ~form_.mode) == 0 || (form_.mode & 0077) != 0) return;
  if (status.st_uid != ::geteuid())
    throw UnavailableStore("{}: belongs to somebody else", file_.string());
  if (::chmod(file_.c_str(), form_.mode) != 0)
    throw UnavailableStore("{}: others may read it, and that cannot be changed: {}", file_.string(),
                           std::strerror(errno));
}

std::unique_ptr<Database> StoreFile::open(bool make) const {
  prepare(make);
  std::unique_ptr<Database> database(new Database(file_, form_.rows));
  const int code =
      sqlite3_open_v2(file_.c_str(), &database->connection_, SQLITE_OPEN_READWRITE, nullptr);
  std::error_code problem;
  if (code == SQLITE_CANTOPEN && !make && !fs::exists(file_, problem) && !problem) return nullptr;
  database->check(code);
  sqlite3_busy_timeout(database->connection_, static_cast<int>(kLongestWait.count()));
  database->run("PRAGMA synchronous = OFF; PRAGMA secure_delete = ON");
  return database;
}

// False if the file is still empty. Throws if it is no store of this version.
bool StoreFile::has_table(const Database& database) const {
  const std::int64_t application = database.integer("PRAGMA application_id");
  const std::int64_t layout = database.integer("PRAGMA user_version");
  if (application == form_.application && layout > form_.layout)
    throw StoreOfNewerVersion(
        "{}: made by a newer version of outrider; use that version, or delete the file",
        file_.string());
  const std::string schema =
      database.text("SELECT coalesce(group_concat(sql, ';'), '') FROM sqlite_schema");
  if (schema.empty() && application == 0) return false;
  if (application != form_.application || layout != form_.layout || schema != form_.table)
    throw DamagedStore("it is no store of {}", form_.rows);
  return true;
}

std::unique_ptr<Database> StoreFile::open_to_read(bool whole) const {
  auto database = open(false);
  if (!database) return nullptr;
  database->run("BEGIN");
  if (!has_table(*database)) return nullptr;
  if (whole) check_integrity(*database);
  return database;
}

std::unique_ptr<Database> StoreFile::open_to_write() const {
  std::error_code problem;  // opening the file says it
  fs::create_directories(file_.parent_path(), problem);
  auto database = open(true);
  database->run("BEGIN IMMEDIATE");
  if (has_table(*database)) {
    check_integrity(*database);
  } else {
    database->run(form_.table);
    database->run(fmt::format("PRAGMA application_id = {}", form_.application).c_str());
    database->run(fmt::format("PRAGMA user_version = {}", form_.layout).c_str());
  }
  return database;
}

std::int64_t StoreFile::clear() const {
  const std::int64_t n_rows = on_sound_file([&]() -> std::int64_t {
    const auto database = open(false);
    if (!database) return 0;
    database->run("BEGIN IMMEDIATE");
    if (!has_table(*database)) return 0;
    const std::string table = form_.rows;
    const std::int64_t n = database->integer(("SELECT count(*) FROM " + table).c_str());
    database->run(("DELETE FROM " + table + "; COMMIT").c_str());
    try {
      database->run("VACUUM");
    } catch (const UnavailableStore&) {
      // The file stays as large as it is.
    }
    return n;
  });
  // One that was found damaged just now, too.
  std::error_code problem;
  const fs::path aside = with_suffix(file_, kAside);
  fs::remove(aside, problem);
  if (problem)
    throw UnavailableStore("{}: cannot be removed: {}", aside.string(), problem.message());
  return n_rows;
}

bool StoreFile::is_damaged() const {
  try {
    if (const auto database = open_to_read(true)) form_.read_all(*database);
    return false;
  } catch (const DamagedStore&) {
    return true;
  }
}

// The caller may have met a file that another process has replaced since.
void StoreFile::move_aside(const DamagedStore& damage) const {
  const FolderLock lock(file_, Holding::alone);
  if (!is_damaged()) return;
  std::error_code problem;
  // Journals belong to this file, and the new one will have its name.
  for (const char* suffix : {"-journal", "-wal", "-shm"})
    fs::remove(with_suffix(file_, suffix), problem);
  const fs::path aside = with_suffix(file_, kAside);
  fs::rename(file_, aside, problem);
  if (problem)
    throw UnavailableStore("{}: damaged ({}), and cannot be moved: {}", file_.string(),
                           damage.what(), problem.message());
  if (progress_.note)
    progress_.note(fmt::format("{}: damaged ({}), moved to {} and begun anew", file_.string(),
                               damage.what(), aside.filename().string()));
}

}  // namespace outrider
