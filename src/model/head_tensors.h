// The tensors of a head's file, taken one by one with checks.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/head.h"

namespace outrider {

// Fills a head's model. Every function throws Error, naming the file and the tensor.
class HeadTensors {
 public:
  // kind: what messages call the head, with its article: "an EAGLE-3 head".
  HeadTensors(Head& head, const Checkpoint& file, const Model& target, std::string_view kind);

  const std::string& origin() const { return file_.metadata.origin(); }
  const TensorView* find(std::string_view name) const { return file_.find(name); }

  // After the spec is complete: makes room for the weights of its layers.
  void begin();
  // The tensor of this name becomes that of a role; it must be there, of this shape (columns
  // first, none of them 0), and hold finite weights.
  void take(Role role, int layer, std::string_view name, const std::vector<std::int64_t>& shape);
  // Such a tensor, or a copy of it where its bytes are not aligned.
  const TensorView* checked(std::string_view name, const std::vector<std::int64_t>& shape);
  void set(Role role, int layer, const TensorView* tensor);
  // A tensor whose bytes stay with the head.
  const TensorView* keep(TensorView view, std::vector<std::byte> bytes);
  // The target's tensor, or its embedding where it has no output, which stays alive with the head.
  const TensorView* of_target(Role role);

  // The head's own where it has one, of this shape, or else the target's.
  void take_or_share(Role role, std::string_view name, const std::vector<std::int64_t>& shape);

  // Says that a tensor was read, or need not be.
  void ignore(std::string_view name);
  // Tables of rope that old versions of transformers saved.
  void ignore_frequencies();
  // Throws Error if a tensor is left: it would compute something that this program does not.
  void check_nothing_else() const;

 private:
  void check_finite(const TensorView& tensor) const;

  Head& head_;
  const Checkpoint& file_;
  const Model& target_;
  const std::string kind_;
  std::unordered_set<const TensorView*> used_;
};

}  // namespace outrider
