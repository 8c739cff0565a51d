#include "speculation/drafters/head.h"

#include "base/error.h"

namespace outrider {

std::shared_ptr<Backend> HeadDrafter::head_of(const std::shared_ptr<Backend>& target) {
  CHECK(target->head());
  return {target, target->head()};
}

HeadDrafter::HeadDrafter(const std::shared_ptr<Backend>& target, Options options)
    : GrowingDrafter(head_of(target), std::move(options)) {}

void HeadDrafter::begin(DraftSequence sequence, CacheScope) {
  add(sequence, {});
}

void HeadDrafter::bind(DraftSequence sequence, SequenceId target) {
  sequences_.at(sequence).id = target;
}

void HeadDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  GrowingDrafter::observe(sequence, tokens);
  backend_->add_outputs(tokens);
}

void HeadDrafter::forget() {
  GrowingDrafter::forget();
  backend_->remove_added_outputs();
}

bool HeadDrafter::prepare(const DraftRequest& request, Sequence& sequence,
                          std::span<const DraftRequest>, int&) {
  sequence.length = sequence.size();
  // So many rows the target's pass has room for, too: there are pages for them.
  sequence.n_rows_max = 1 + request.limits.nodes;
  return sequence.length > 1 && backend_->committed(sequence.id) == sequence.length - 1;
}

}  // namespace outrider
