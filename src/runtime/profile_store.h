// Profiles: what was measured with a model on a machine, kept between runs in one SQLite file
// (store_file.h). With 256 profiles of 3 kB find() takes 1.3 ms and keep() 1.7.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "runtime/profile_key.h"
#include "runtime/store_file.h"

namespace outrider {

// The version of the documents: those of another version are not found. Increase it when the
// meaning of a document changes.
inline constexpr int kProfileSchema = 5;

// How many profiles a file holds; the least recently used are removed.
inline constexpr int kProfilesMax = 256;

// "profiles.db" in the cache folder. Throws Error as cache_folder() does.
std::filesystem::path profile_file();

// One thread at a time calls a store. Other stores, of this process or others, may have the same
// file.
class ProfileStore {
 public:
  // `progress` is told, by note and detail, as long as the store lives. Touches no file.
  ProfileStore(std::filesystem::path file, Progress progress);

  // These two never fail: where the file cannot be used (a folder that cannot be written, a full
  // disk, a newer version's file) nothing is found, nothing is kept, and one line says why: a
  // detail, or a note about a newer version's file. From then on this store does nothing.

  // The document that was kept last under an equal key. counts_as_use: its time of use is written,
  // too; where the file can only be read, it is found all the same.
  std::optional<nlohmann::json> find(const ProfileKey& key, bool counts_as_use = true);
  // Replaces what was kept under an equal key. Makes the file and its folder if they are missing.
  // Numbers that are not finite come back as null, text that is no UTF-8 with U+FFFD.
  void keep(const ProfileKey& key, const nlohmann::json& document);

  struct Entry {
    ProfileKey key;
    nlohmann::json document;
    int schema;  // of the document: kProfileSchema, or another version's
    std::chrono::sys_seconds used;
    std::uint64_t bytes;  // that key and document take
  };
  // Those used last come first; none if there is no file. Throws Error if the file cannot be used.
  std::vector<Entry> entries();
  // Removes all profiles, and a damaged file that was moved aside earlier; returns how many
  // profiles. Throws Error if the file cannot be used.
  std::int64_t clear();

 private:
  StoreFile file_;
};

}  // namespace outrider
