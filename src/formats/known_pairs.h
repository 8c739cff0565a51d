// Which published models draft well for which, and which heads are made for which: by family and
// size, whether or not the catalogue has their files. The list is assets/pairs.json, built into the
// program.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"

namespace outrider {

struct KnownModel {
  std::string name;  // "Llama 3.1 8B"
  std::int64_t layers = 0, embedding = 0;
  std::vector<std::string> drafts;  // names in the same series, the smallest first; may be empty
  // Learned heads (model/head.h), by the names of their repositories: "OWNER/NAME".
  std::vector<std::string> heads = {};
};

// Models of one architecture and one vocabulary. Several series can have equal sizes, so a file
// belongs to one only if all of these agree.
struct ModelSeries {
  struct Mark {
    std::size_t token = 0;
    std::string text;
  };
  std::string architecture;  // general.architecture
  std::string pre;           // tokenizer.ggml.pre; empty: any
  // A part of general.basename or general.name, which are reduced to lower-case letters and digits.
  std::string named;
  std::vector<Mark> marks;  // tokens that only this vocabulary has
  std::vector<KnownModel> models;
};

// Thread-safe; the entries live as long as the program.
std::span<const ModelSeries> model_series();

// Reads a list's text, the embedded one or a test's. Throws Error on anything malformed.
std::vector<ModelSeries> parse_model_series(std::string_view json, std::string_view origin);

// The published model that a file's metadata describe, of the first series that it belongs to; null
// if it is none of the list. Keys that are missing or of another type agree with nothing; none
// throws. Thread-safe.
const KnownModel* known_model(const Metadata& metadata);

// Whether the list names `draft` as a draft model for `target`; either may be null.
bool is_known_pair(const KnownModel* target, const KnownModel* draft);

}  // namespace outrider
