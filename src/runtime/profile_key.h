// What a profile belongs to: the files, the machine and the settings that it was measured with. Any
// difference is another profile.

#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint.h"

namespace outrider {

// A model file, told apart from other files and from what it was before.
struct ModelFile {
  std::string name = {};  // as it was asked for; shown to people, and not compared
  std::string header_hash = {};
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970; 0 if Linux does not say
};

// Of a checkpoint that was read from a file. Hashes the first and the last 256 KiB of the header,
// which ends where tensor bytes begin. All that is left out are parts of the tokenizer's arrays:
// keys stand before and after these, and the list of tensors is last. With the SHA instructions
// that takes 0.3 ms, and 2 ms without; all of a header of 6 MB would take 4.4 and 32 ms.
ModelFile identify(std::string name, const Checkpoint& checkpoint);

struct ProfileKey {
  std::vector<ModelFile> files = {};  // the target, then the drafters' models in order
  std::string processor = {};         // processor_name()
  int n_processors = 0;               // that the process may use
  std::string instruction_set = {};   // in use
  int n_threads = 0;
  std::string cache_type = {};
  std::vector<std::string> drafters = {};            // in order: "lookup", "model"
  std::map<std::string, std::string> settings = {};  // others that change costs, by name
};

// All of the key. Text that is no UTF-8 becomes U+FFFD.
nlohmann::json json_of(const ProfileKey& key);
// Throws nlohmann::json::exception for anything that json_of() does not make.
ProfileKey profile_key_from(const nlohmann::json& json);

// 64 digits, the same for equal keys: a hash of all but the names.
std::string id_of(const ProfileKey& key);

}  // namespace outrider
