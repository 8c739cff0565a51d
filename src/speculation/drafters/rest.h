// Drafts from a datastore of documents: where the end of the text occurs there, it proposes what
// followed, weighted by how often. REST, He et al. 2023, arXiv:2311.08252.

#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "speculation/datastore.h"
#include "speculation/drafter.h"
#include "speculation/drafters/proposal_time.h"

namespace outrider {

class RestDrafter final : public Drafter {
 public:
  explicit RestDrafter(std::shared_ptr<const Datastore> datastore)
      : datastore_(std::move(datastore)) {}

  std::string_view name() const override { return "rest"; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  // Of the longest end of the text that occurs, up to kOccurrences of its occurrences, evenly over
  // all in the order of what follows; their most likely continuations.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost(int n_sequences, int) const override { return time_.cost(n_sequences); }

 private:
  void propose(const DraftRequest& request) const;

  const std::shared_ptr<const Datastore> datastore_;
  std::map<DraftSequence, std::vector<Token>> texts_;
  ProposalTime time_;
};

}  // namespace outrider
