// A checkpoint as its family reads it: keys by their names in the family's list, with its defaults.

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

class FamilyFile {
 public:
  // The checkpoint and the architecture are borrowed. Throws Error if the file has a key of another
  // value than the family supports.
  FamilyFile(const Checkpoint& checkpoint, std::string_view architecture,
             std::span<const MetadataKey> own_keys);

  // The family's rows and the common ones that it does not replace, by name.
  std::span<const MetadataKey> keys() const { return keys_; }

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Metadata& metadata() const { return checkpoint_.metadata; }
  std::string_view architecture() const { return architecture_; }
  const std::string& origin() const { return metadata().origin(); }
  // "<architecture>.<name>"
  std::string key(std::string_view name) const;

  // The file's value, or what the list says in its place. `name` must be one of the list that is
  // used. A value of another type or outside [least, most], or one that is required and missing, is
  // an Error.
  int integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  double number(std::string_view name, double least, double most) const;
  std::string text(std::string_view name) const;
  bool boolean(std::string_view name) const;
  // The same where the list says that the default is computed: nothing if the file lacks the key.
  std::optional<int> given_integer(std::string_view name, std::int64_t least,
                                   std::int64_t most) const;
  std::optional<double> given_number(std::string_view name, double least, double most) const;
  bool has(std::string_view name) const;

  // A line for each key of the architecture's name space that is on no list.
  std::vector<std::string> unknown_keys() const;

 private:
  const MetadataKey& row(std::string_view name) const;
  std::optional<std::int64_t> found_integer(const MetadataKey& row) const;
  double default_number(const MetadataKey& row) const;
  std::int64_t in_range(std::string_view name, std::int64_t value, std::int64_t least,
                        std::int64_t most) const;
  double in_range(std::string_view name, double value, double least, double most) const;
  void check_unsupported() const;
  std::optional<double> expected(const MetadataKey& row) const;
  [[noreturn]] void missing(std::string_view name) const;

  const Checkpoint& checkpoint_;
  const std::string_view architecture_;
  const std::vector<MetadataKey> keys_;
};

// The number that an array holds for every layer; nothing for other arrays and values.
std::optional<std::int64_t> same_for_all_layers(const MetadataValue& value);

}  // namespace outrider
