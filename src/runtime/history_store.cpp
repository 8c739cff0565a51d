#include "runtime/history_store.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

using Answer = HistoryStore::Answer;

// Tokens as they stand in memory: the file stays on this machine, in its cache.
std::span<const std::byte> bytes_of(const Answer& answer) {
  return std::as_bytes(std::span(answer));
}

// A model's answers belong to it wherever its file is and whenever it was fetched.
std::string id_of(const ModelFile& model) {
  return fmt::format("{}-{}", model.header_hash, model.bytes);
}

std::string checksum(const std::string& model, std::span<const std::byte> tokens) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(model)));
  hash.update(tokens);
  return hash.hex();
}

// What answer_in() reads.
const std::string kSelectAnswers = "SELECT model, checksum, tokens FROM answers ";

Answer answer_in(Statement& row) {
  const std::string bytes = row.blob(2);
  Answer answer(bytes.size() / sizeof(Token));
  std::memcpy(answer.data(), bytes.data(), answer.size() * sizeof(Token));
  if (bytes.size() % sizeof(Token) != 0 || row.text(1) != checksum(row.text(0), bytes_of(answer)))
    throw DamagedStore("an answer is not as it was written");
  return answer;
}

void read_all(const Database& database) {
  Statement row(database, kSelectAnswers);
  while (row.step()) answer_in(row);
}

// turn: above that of every answer used earlier, whatever the clock says.
constexpr StoreFile::Form kHistoryForm = {
    .application = 0x6f757468,  // "outh"
    .layout = 1,
    .table =
        "CREATE TABLE answers (checksum TEXT NOT NULL PRIMARY KEY, model TEXT NOT NULL, "
        "name TEXT NOT NULL, turn INTEGER NOT NULL, used INTEGER NOT NULL, "
        "n_tokens INTEGER NOT NULL, tokens BLOB NOT NULL) STRICT",
    .rows = "answers",
    .mode = 0600,
    .read_all = read_all};

}  // namespace

std::filesystem::path history_file() {
  return cache_folder() / "history.db";
}

HistoryStore::HistoryStore(std::filesystem::path file, Progress progress)
    : file_(std::move(file), kHistoryForm, std::move(progress)) {}

std::vector<Answer> HistoryStore::answers(const ModelFile& model, std::int64_t n_tokens_max) {
  std::vector<Answer> answers;
  file_.without_failing([&] {
    answers.clear();
    const auto database = file_.open_to_read(false);
    if (!database) return;
    Statement row(*database, kSelectAnswers + "WHERE model = ?1 ORDER BY turn DESC", id_of(model));
    std::int64_t n_tokens = 0;
    while (row.step()) {
      Answer answer = answer_in(row);
      n_tokens += std::ssize(answer);
      if (n_tokens > n_tokens_max) break;
      answers.push_back(std::move(answer));
    }
  });
  std::ranges::reverse(answers);
  return answers;
}

void HistoryStore::keep(const ModelFile& model, const Answer& answer) {
  const std::string id = id_of(model);
  file_.without_failing([&] {
    const auto database = file_.open_to_write();
    Statement(*database,
              "INSERT OR REPLACE INTO answers (checksum, model, name, turn, used, n_tokens, tokens)"
              " VALUES (?1, ?2, ?3, (SELECT coalesce(max(turn), 0) + 1 FROM answers), unixepoch(), "
              "?4, ?5)",
              checksum(id, bytes_of(answer)), id, model.name,
              static_cast<std::int64_t>(answer.size()), bytes_of(answer))
        .step();
    Statement(*database,
              "DELETE FROM answers WHERE turn <= (SELECT max(turn) FROM (SELECT turn, "
              "sum(n_tokens) OVER (ORDER BY turn DESC) AS n FROM answers) WHERE n > ?1)",
              kHistoryTokensMax)
        .step();
    database->run("COMMIT");
  });
}

std::vector<HistoryStore::Entry> HistoryStore::entries() {
  return file_.on_sound_file([&] {
    std::vector<Entry> entries;
    const auto database = file_.open_to_read(true);
    if (!database) return entries;
    read_all(*database);
    // Of a maximum's row SQLite gives the other columns, too.
    Statement row(*database,
                  "SELECT name, count(*), sum(n_tokens), used, max(turn) AS last FROM answers "
                  "GROUP BY model ORDER BY last DESC");
    while (row.step()) {
      const std::int64_t used = row.integer(3);
      if (used < 0 || used > kUsedMax) throw DamagedStore("an answer is not as it was written");
      entries.push_back({.model = row.text(0),
                         .n_answers = row.integer(1),
                         .n_tokens = row.integer(2),
                         .used = std::chrono::sys_seconds(std::chrono::seconds(used))});
    }
    return entries;
  });
}

std::int64_t HistoryStore::clear() {
  return file_.clear();
}

}  // namespace outrider
