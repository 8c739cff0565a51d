// What becomes of a key of a file's metadata, as data: families (model/family_keys.h) and
// tokenizers (text/tokenizer_keys.h) list theirs. docs/metadata.md shows the lists.

#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace outrider {

// What a key's absence means.
struct Required {};  // an Error
struct SameAs {      // what holds for another key of the same family
  std::string_view name;
};
struct Computed {  // from the rest of the file, as these words say
  std::string_view how;
};
// A number that the configuration of the published `model` has and its GGUF files lack: `then` in
// files that meet all of `where`, else `elsewhere`.
struct Published {
  struct Condition {
    std::string_view name = {};  // empty: none
    double is = 0;
  };
  std::string_view model;
  double then, elsewhere;
  std::array<Condition, 3> where = {};
};
using Default = std::variant<Required, SameAs, Computed, Published, double, std::string_view>;

// What becomes of a key.
enum class KeyUse {
  computes,     // it changes logits or tokens; values that are not supported are refused
  limits,       // it changes how long texts may be, and what other keys default to
  unsupported,  // it would change them: refused unless it says that it changes nothing
  harmless,     // it changes neither
};

struct MetadataKey {
  // Behind "<architecture>." or "tokenizer.ggml."; one that ends in '.' stands for all behind it.
  std::string_view name;
  KeyUse use = KeyUse::computes;
  Default otherwise = Required{};  // of computes and limits; of unsupported: what changes nothing
  std::string_view why = {};       // of harmless: why it changes nothing
  bool may_be_by_layer = false;    // an array of equal numbers, one per layer, is as good as one
};

// Whether a row of this name is about this key: names that end in '.' are about all behind it.
bool stands_for(std::string_view row_name, std::string_view key);

// The row that holds for a key; null: the list has none.
const MetadataKey* find_key(std::span<const MetadataKey> keys, std::string_view name);

// "required", "as context_length", "10000", or words.
std::string text_of(const Default& otherwise);

}  // namespace outrider
