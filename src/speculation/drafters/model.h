// Drafts with a smaller model: Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
// arXiv:2302.01318. How a tree grows from what it says is in growth.h.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/backend.h"
#include "speculation/drafters/excerpt.h"
#include "speculation/drafters/growth.h"
#include "speculation/vocabulary_map.h"

namespace outrider {

struct ModelDrafterOptions {
  int target_vocabulary;  // ids from there on are never drafted
  // For the index of one text, from which guesses come; 0: no guesses.
  std::size_t memory_bytes = std::size_t{256} << 20;
  // Of a draft model of another vocabulary, which was loaded with the common tokens under the
  // target's names (LoadOptions::output_names). Null: it has the target's.
  std::shared_ptr<const VocabularyMap> vocabulary = nullptr;
  // Of a model that was trained to guess several tokens in one pass, the next one and those for
  // which it is given this token: PARD, An et al. 2025, arXiv:2504.18583. Nothing: it guesses one.
  std::optional<Token> mask = {};
  int n_parallel = 1;
  std::string_view name = "model";  // lives as long as the program
};

// The draft model has a cache of its own, which is filled when proposals are wanted: the tokens
// that it lacks are rows of the root's pass, a long prompt takes passes of batch_rows before it.
// Rows that were computed for nodes of an accepted path become history. A sequence that fills the
// draft model's context or has tokens that it does not know gets no proposals. Where the draft
// model has logits for some tokens only, the sequence's own are added, because texts repeat their
// words. A draft model of another vocabulary reads the text token by token in its own, and proposes
// what both have (vocabulary_map.h).
//
// It may be asked to draft after the last tokens of a sequence alone, without those between them
// and the prefilled beginning (excerpt.h), so that a probe costs little.
//
// Where its backend shares pages, prefix hits save prefill. Where there are fewer pages than all
// sequences need, those in no request of a propose() give theirs back; a sequence that still lacks
// pages gets no proposals.
class ModelDrafter final : public GrowingDrafter {
 public:
  // Several drafters may share a backend on one thread, with as many sequences together as it has.
  ModelDrafter(std::shared_ptr<Backend> backend, ModelDrafterOptions options);
  ~ModelDrafter() override;

  std::string_view name() const override { return name_; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void truncate(DraftSequence sequence, int length) override;
  void suspend(DraftSequence sequence) override;
  void end(DraftSequence sequence) override;
  int n_to_prefill(DraftSequence sequence, int n_context) const override;
  int n_known(DraftSequence sequence, int n_context) const override;
  // Outputs that sequences added, too. Drafters that share the backend forget theirs.
  void forget() override;
  void measure_costs() override;

 private:
  // What the draft model knows of a text.
  struct Known {
    std::vector<Token> read = {};  // the text in its own tokens
    std::vector<int> ends = {};    // of the text's tokens among these
    Excerpt excerpt = {};          // of what it has read; positions are of its cache
    std::optional<std::size_t> first_unknown = {};  // place of a token that the draft model lacks
    // Places whose tokens were given logits. That takes time, so it waits until proposals are
    // wanted, and leaves out what is not prefilled.
    struct Range {
      int first = 0, end = 0;
    } outputs = {};

    int size() const { return static_cast<int>(read.size()); }
    // The place in the text of the token that begins with what is read after the first n tokens;
    // nothing: none begins there.
    std::optional<int> begins(int n) const;
  };
  // A row of a pass whose next token is in the sequence already.
  struct GuessedRow {
    const DraftRequest* request;
    int row;
    int next;    // place of that token in the text
    int n_read;  // its own tokens before that
  };

  bool prepare(const DraftRequest& request, Sequence& sequence, std::span<const DraftRequest> all,
               int& n_promised) override;
  bool prefill(std::span<Draft> drafts, double& passes) override;
  std::optional<Token> own(Token token) const override;
  void reuse_prefix(const Sequence& sequence, const Known& known);
  bool make_room(Sequence& sequence, const DraftRequest& request,
                 std::span<const DraftRequest> requests, int& n_promised);
  void add_outputs(const Sequence& sequence, Known& known);
  Excerpt excerpt(const Sequence& sequence, const Known& known, int n_context) const;
  void guess_prefilled(const Pass& pass, std::span<const GuessedRow> guessed_rows);

  const std::string_view name_;
  const std::shared_ptr<const VocabularyMap> vocabulary_;
  std::map<DraftSequence, Known> known_;
};

}  // namespace outrider
