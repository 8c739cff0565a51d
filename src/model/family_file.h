// A checkpoint as its family reads it: tensors, and metadata by the family's list of keys.

#pragma once

#include <span>
#include <string_view>

#include "formats/listed_metadata.h"

namespace outrider {

class FamilyFile : public ListedMetadata {
 public:
  // The checkpoint and the architecture are borrowed. Throws Error if the file has an unsupported
  // value of one of the family's own keys or of those that all families share (family_keys.h).
  FamilyFile(const Checkpoint& checkpoint, std::string_view architecture,
             std::span<const MetadataKey> own_keys);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::string_view architecture() const { return architecture_; }

 private:
  const Checkpoint& checkpoint_;
  const std::string_view architecture_;
};

}  // namespace outrider
