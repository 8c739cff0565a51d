#include "runtime/profile_store.h"

#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

using Json = nlohmann::json;

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

ProfileStore::Entry entry_in(Statement& row) {
  const std::string key = row.text(0), document = row.text(1);
  const std::int64_t used = row.integer(4);
  if (row.text(2) != checksum(key, document) || used < 0 || used > kUsedMax)
    throw DamagedStore("a profile is not as it was written");
  try {
    return {.key = profile_key_from(Json::parse(key)),
            .document = Json::parse(document),
            .schema = static_cast<int>(row.integer(3)),
            .used = std::chrono::sys_seconds(std::chrono::seconds(used)),
            .bytes = key.size() + document.size()};
  } catch (const Json::exception& problem) {
    throw DamagedStore("{}", printable(problem.what()));
  }
}

std::vector<ProfileStore::Entry> read_entries(const Database& database) {
  std::vector<ProfileStore::Entry> entries;
  Statement row(database, kSelectEntries + "ORDER BY turn DESC");
  while (row.step()) entries.push_back(entry_in(row));
  return entries;
}

// turn: above that of every profile used earlier, whatever the clock says. Long columns come last,
// so that SQLite can read the others without them.
constexpr StoreFile::Form kProfileForm = {
    .application = 0x6f757472,  // "outr"
    .layout = 1,
    .table =
        "CREATE TABLE profiles (id TEXT NOT NULL, schema INTEGER NOT NULL, turn INTEGER NOT NULL, "
        "used INTEGER NOT NULL, checksum TEXT NOT NULL, key TEXT NOT NULL, document TEXT NOT NULL, "
        "PRIMARY KEY (id, schema)) STRICT",
    .rows = "profiles",
    .mode = 0644,
    .read_all = [](const Database& database) { read_entries(database); }};

}  // namespace

std::filesystem::path profile_file() {
  return cache_folder() / "profiles.db";
}

ProfileStore::ProfileStore(std::filesystem::path file, Progress progress)
    : file_(std::move(file), kProfileForm, std::move(progress)) {}

std::optional<Json> ProfileStore::find(const ProfileKey& key, bool counts_as_use) {
  const std::string id = id_of(key);
  std::optional<Json> document;
  file_.without_failing([&] {
    document.reset();
    const auto database = file_.open_to_read(false);
    if (!database) return;
    {
      Statement row(*database, kSelectEntries + "WHERE id = ?1 AND schema = ?2", id,
                    std::int64_t{kProfileSchema});
      if (!row.step()) return;
      document = entry_in(row).document;
    }
    database->run("COMMIT");
    if (!counts_as_use) return;
    try {
      Statement(
          *database,
          "UPDATE profiles SET used = unixepoch(), turn = (SELECT max(turn) + 1 FROM profiles) "
          "WHERE id = ?1 AND schema = ?2",
          id, std::int64_t{kProfileSchema})
          .step();
    } catch (const UnavailableStore&) {
      // The file can be read and not be written.
    }
  });
  return document;
}

void ProfileStore::keep(const ProfileKey& key, const Json& document) {
  const std::string id = id_of(key), key_text = dump(json_of(key)), text = dump(document);
  file_.without_failing([&] {
    const auto database = file_.open_to_write();
    Statement(*database,
              "INSERT OR REPLACE INTO profiles (id, schema, key, document, checksum, used, turn) "
              "VALUES (?1, ?2, ?3, ?4, ?5, unixepoch(), "
              "(SELECT coalesce(max(turn), 0) + 1 FROM profiles))",
              id, std::int64_t{kProfileSchema}, key_text, text, checksum(key_text, text))
        .step();
    Statement(*database,
              "DELETE FROM profiles WHERE turn <= "
              "(SELECT turn FROM profiles ORDER BY turn DESC LIMIT 1 OFFSET ?1)",
              std::int64_t{kProfilesMax})
        .step();
    database->run("COMMIT");
  });
}

std::vector<ProfileStore::Entry> ProfileStore::entries() {
  return file_.on_sound_file([&] {
    const auto database = file_.open_to_read(true);
    return database ? read_entries(*database) : std::vector<Entry>();
  });
}

std::int64_t ProfileStore::clear() {
  return file_.clear();
}

}  // namespace outrider
