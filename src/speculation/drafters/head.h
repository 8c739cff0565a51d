// What drafters have in common that run a head of the target (Backend::head).

#pragma once

#include <memory>

#include "speculation/drafters/growth.h"

namespace outrider {

// Its sequences are the target's, so it has no cache and prefills nothing. If the head has
// output_room, the tokens of each text become its outputs, too.
class HeadDrafter : public GrowingDrafter {
 public:
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void bind(DraftSequence sequence, SequenceId target) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void forget() override;
  bool uses_head() const override { return true; }

 protected:
  HeadDrafter(const std::shared_ptr<Backend>& target, Options options);
  // The head of a backend, which lives as long as the result.
  static std::shared_ptr<Backend> head_of(const std::shared_ptr<Backend>& target);

  // Sequences of which the target has computed all but the last token.
  bool prepare(const DraftRequest& request, Sequence& sequence, std::span<const DraftRequest> all,
               int& n_promised) override;
};

}  // namespace outrider
