// One way to decode a text, and the tokens that it gives: what exactness tests compare.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cpu/backend.h"
#include "model/model.h"
#include "sampling/sampling.h"
#include "text/tokenizer.h"

namespace outrider::testing {

// Everything that must not change a text.
struct Way {
  // off, or those of lookup+history+rest+lookahead+prediction+self+parallel+model+eagle, or mtp,
  // dflash, dspark or medusa, that it names.
  // history: lookup with the prediction as earlier answer; rest: a datastore of the prediction;
  // self: without the middle layer; parallel: the draft model guesses three tokens in a pass.
  std::string draft = "off";
  int rows = 16, width = 4, depth = 16;
  bool planner_automatic = false;
  int n_threads = 1;
  int prompt_chunk = 0;  // 0: as many rows as fit
  int n_mates = 0;       // other texts in the same passes
  Isa isa = Isa::reference;

  std::string name() const;
};

// What the text depends on.
struct Task {
  const Model* target = nullptr;
  const Model* draft = nullptr;
  std::shared_ptr<const HeadToLoad> head = {}, medusa = {};  // head: of all kinds but Medusa's
  const Tokenizer* tokenizer = nullptr;
  std::vector<Token> prompt;
  std::vector<Token> prediction = {};  // of the answer
  SamplingParams sampling;
  int n_predict = 32;
  CacheType cache_type = CacheType::f16;
  // The draft model's savings: requantize, output_ids, output_room. Last, because GCC 12 takes it
  // for uninitialized if the initializer of a later field may throw.
  LoadOptions draft_options = {};
};

struct Decoded {
  std::vector<Token> tokens;
  long accepted = 0;  // draft tokens
  long drafted = 0;
};

Decoded decode(const Task& task, const Way& way);

// Values for each of several parameters such that every pair of values of two parameters is in some
// row, for tests too long for the full product. n_values: of each parameter. Result:
// [rows][parameters].
std::vector<std::vector<int>> pairwise(const std::vector<int>& n_values);

}  // namespace outrider::testing
