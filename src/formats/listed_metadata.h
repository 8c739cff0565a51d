// Metadata read by a list of keys (metadata_key.h): a family's or a tokenizer's, with its defaults.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/metadata_key.h"

namespace outrider {

class ListedMetadata {
 public:
  // `prefix` stands before the names of the list: "llama." or "tokenizer.ggml.". The metadata is
  // borrowed. Throws Error if an unsupported key has a value that would change something.
  ListedMetadata(const Metadata& metadata, std::string prefix, std::vector<MetadataKey> keys);

  const Metadata& metadata() const { return metadata_; }
  const std::string& origin() const { return metadata_.origin(); }
  std::span<const MetadataKey> keys() const { return keys_; }
  std::string key(std::string_view name) const;  // with the prefix
  bool has(std::string_view name) const;

  // The file's value, or what the list says in its place. `name` must be one of the list that is
  // used. A value of another type or outside [least, most], or one that is required and missing, is
  // an Error.
  int integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  double number(std::string_view name, double least, double most) const;
  std::string text(std::string_view name) const;
  bool boolean(std::string_view name) const;
  // Only the file's value, for defaults that are computed: nothing if the file lacks the key.
  std::optional<int> given_integer(std::string_view name, std::int64_t least,
                                   std::int64_t most) const;
  std::optional<double> given_number(std::string_view name, double least, double most) const;

  // Throws Error if the file has the unsupported key `name` with another value than `wanted`: for
  // keys that must equal another one, whose default only the family knows.
  void must_be(std::string_view name, int wanted) const;

  // What holds if the file lacks the key, in words.
  std::string default_text(const MetadataKey& row) const;
  // A line for each key behind the prefix that the list lacks.
  std::vector<std::string> unknown_keys() const;

 private:
  const MetadataKey& row(std::string_view name) const;
  std::optional<std::int64_t> found_integer(const MetadataKey& row) const;
  bool holds(const Published& published) const;
  double default_number(const MetadataKey& row) const;
  void must_be(const MetadataKey& row, std::optional<double> wanted) const;
  void check_unsupported() const;

  const Metadata& metadata_;
  const std::string prefix_;
  const std::vector<MetadataKey> keys_;
};

// A key as a list has it, and whether the file has it: what `outrider inspect` shows.
struct TakenKey {
  std::string name;  // in full
  MetadataKey row;
  bool is_in_file = false;
  std::string default_text;  // what holds if it is not
};
std::vector<TakenKey> taken_keys(const ListedMetadata& listed);

// The number that an array holds for every layer; nothing for other arrays and values.
std::optional<std::int64_t> same_for_all_layers(const MetadataValue& value);

}  // namespace outrider
