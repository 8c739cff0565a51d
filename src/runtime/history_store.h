// The answers of earlier runs, kept in one SQLite file (store_file.h) that only its owner may read:
// what `--history` drafts from.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/token.h"
#include "runtime/profile_key.h"
#include "runtime/store_file.h"

namespace outrider {

// How many tokens of answers a file holds, of all models together; the least recently used answers
// are removed. An answer that is given again is kept once, with the new time of use.
inline constexpr std::int64_t kHistoryTokensMax = std::int64_t{1} << 20;

// "history.db" in the cache folder. Throws Error as cache_folder() does.
std::filesystem::path history_file();

// One thread at a time calls a store. Other stores, of this process or others, may have the same
// file.
class HistoryStore {
 public:
  using Answer = std::vector<Token>;

  // `progress` is told, by note and detail, as long as the store lives. Touches no file.
  HistoryStore(std::filesystem::path file, Progress progress);

  // These two never fail (StoreFile::without_failing).

  // The model's most recently used answers, at most n_tokens_max tokens together, the newest last.
  std::vector<Answer> answers(const ModelFile& model, std::int64_t n_tokens_max);
  // Makes the file and its folder if they are missing.
  void keep(const ModelFile& model, const Answer& answer);

  struct Entry {
    std::string model;  // its name when it was used last
    std::int64_t n_answers, n_tokens;
    std::chrono::sys_seconds used;
  };
  // One for each model; those used last come first. Throws Error if the file cannot be used.
  std::vector<Entry> entries();
  // Removes all answers, and a damaged file that was moved aside earlier; returns how many answers.
  // Throws Error if the file cannot be used.
  std::int64_t clear();

 private:
  StoreFile file_;
};

}  // namespace outrider
