// Drafts with a smaller model: Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
// arXiv:2302.01318. A node's children are the tokens with the draft model's best scores, processed
// logit / temperature + noise, with the noise that the target's choice will use: also when
// sampling, the drafter guesses the target's own choice (Daliri, Musco, Suresh 2025,
// arXiv:2408.07978). The tree grows where a path is most likely to be accepted (EAGLE-2, Li et al.
// 2024, arXiv:2406.16858).

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/backend.h"
#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/drafters/excerpt.h"
#include "speculation/drafters/guesser.h"

namespace outrider {

// The draft model has a cache of its own, which is filled when proposals are wanted: the tokens
// that it lacks are rows of the root's pass, a long prompt takes passes of batch_rows before it.
// Each further pass computes the best nodes, which gives them children, and beside them rows for
// guesses at what the model will say next (guesser.h). Where a guess is what it says, the next
// level is there without a pass. Without a price of time the proposals are the most likely nodes of
// all that the model could propose, with and without guesses the same. Rows that were computed for
// nodes of an accepted path become history. A sequence that fills the draft model's context or has
// tokens that it does not know gets no proposals. A row without usable logits (NaN) ends its
// sequence's drafting in this step. Where the draft model has logits for some tokens only, the
// sequence's own are added, because texts repeat their words.
//
// Where it draws instead (DraftRequest::draws), children are draws without replacement from the
// model's distribution, in the order drawn, and their confidence is their probability there. How
// many draws a node gets is settled before its first: as many as it has among the best nodes of a
// tree in which every draw is accepted as often as the drafter's usually are (Chen et al. 2024,
// arXiv:2402.12374), below the nodes that are drawn already.
//
// The confidence of a child is the logistic function of its lead: its score less the best other
// one. When sampling, the noise is known and only the target's logits are open, so the lead among
// noisy scores tells the same.
//
// It may be asked to draft after the last tokens of a sequence alone, without those between them
// and the prefilled beginning (excerpt.h), so that a probe costs little.
//
// Where its backend shares pages, prefix hits save prefill. Where there are fewer pages than all
// sequences need, those in no request of a propose() give theirs back; a sequence that still lacks
// pages gets no proposals.
struct ModelDrafterOptions {
  int target_vocabulary;  // ids from there on are never drafted
  // For the index of one text, from which guesses come; 0: no guesses.
  std::size_t memory_bytes = std::size_t{256} << 20;
};

class ModelDrafter final : public Drafter {
 public:
  // Several drafters may share a backend on one thread, with as many sequences together as it has.
  ModelDrafter(std::shared_ptr<Backend> backend, ModelDrafterOptions options);
  ~ModelDrafter() override;

  std::string_view name() const override { return "model"; }
  bool can_draw() const override { return true; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void suspend(DraftSequence sequence) override;
  void end(DraftSequence sequence) override;
  int n_to_prefill(DraftSequence sequence, int n_context) const override;
  int n_known(DraftSequence sequence, int n_context) const override;
  long n_passes() const override { return n_passes_; }
  long n_levels() const override { return n_levels_; }
  // Outputs that sequences added. Drafters that share the backend forget theirs, too.
  void forget() override;
  void measure_costs() override;
  std::vector<CostCurve::Point> costs() const override { return curve_.points(); }
  void restore_costs(std::span<const CostCurve::Point> costs) override { curve_.restore(costs); }
  DraftCost cost(int n_sequences, int length) const override;

 private:
  // What the model said after the text and a path of tokens from its end.
  struct Said {
    Token token;  // the path's last; of the first: the text's last
    int parent;   // an earlier one; -1: this is the text's end
    int depth;
    SuffixText::End end;              // of text and path
    std::optional<SlotId> slot = {};  // nothing: committed
    // Empty: the row cannot be used. If the sequence draws: the draws, as many as a node may get.
    std::vector<Candidate> best = {};
    std::shared_ptr<const Distribution> distribution = {};  // that these were drawn from
  };
  // A node of a tree in the making. The root is the text's last token.
  struct Node {
    Token token;
    int parent;
    int depth;
    float confidence;              // given its parent
    double value;                  // product of acceptances along its path
    std::optional<int> said = {};  // what followed it, if that was computed
    bool has_children = false;     // all that it may have
    std::shared_ptr<const Distribution> drawn_from = {};
  };
  struct Sequence {
    SequenceId id;
    SuffixText index;  // of the text up to the last propose()
    std::vector<Token> text;
    Excerpt excerpt;  // what the model knows of it; positions are of its tokens
    std::optional<std::size_t> first_unknown;  // place of a token that the draft model lacks
    // Places whose tokens were given logits. That takes time, so it waits until proposals are
    // wanted, and leaves out what is not prefilled.
    struct Range {
      int first = 0, end = 0;
    } outputs;
    // Of the last propose(), until the text changes.
    std::vector<Said> said;
    std::vector<SlotId> text_end;  // rows of the text's last tokens that are not committed yet
    std::vector<Node> tree;
    int n_rows_max = 0;  // scratch rows that it may have, as far as there are pages

    int size() const { return static_cast<int>(text.size()); }
    int length() const { return excerpt.length(size()); }
    std::optional<int> find_said(int parent, Token token) const;
    void forget_draft();
  };
  struct Draft;  // one request and its tree
  struct Batch;  // the rows of a pass
  // A row of a pass whose next token is in the sequence already.
  struct GuessedRow {
    const DraftRequest* request;
    int row;
    int next;  // place of that token in the sequence
  };

  std::vector<Draft> start(std::span<const DraftRequest> requests);
  void reuse_prefix(Sequence& sequence);
  bool make_room(Sequence& sequence, const DraftRequest& request,
                 std::span<const DraftRequest> requests, int& n_promised);
  int free_rows(const Sequence& sequence) const;
  void add_outputs(Sequence& sequence);
  Excerpt excerpt(const Sequence& sequence, int n_context) const;
  bool prefill(std::span<Draft> drafts, double& passes);
  void expand(Draft& draft) const;
  bool grow(std::span<Draft> drafts, double& passes);
  void add_guesses(Batch& batch, std::span<Draft* const> drafts) const;
  bool guess_pays(const DraftRequest& request, double probability, int n_rows) const;
  Pass compute(const Batch& batch);
  PassWork work_of(const Batch& batch) const;
  double usual_pass_ms(std::size_t n_sequences, long length) const;
  double passes_per_level() const;
  double level_ms(std::size_t n_sequences, long length) const;
  ChoiceRequest question(const Draft& draft, int said, int row,
                         std::vector<TokenCount>& counts) const;
  void guess_prefilled(const Pass& pass, std::span<const GuessedRow> guessed_rows);

  std::shared_ptr<Backend> backend_;
  const ModelDrafterOptions options_;
  Guesser guesser_;
  std::vector<std::uint64_t> allowed_;  // bit per id that both models have; empty: all
  std::map<DraftSequence, Sequence> sequences_;
  CostCurve curve_;  // of its passes
  long n_passes_ = 0, n_levels_ = 0;
  // Of the recent proposals: levels after the first, and the time of their passes as a multiple of
  // one over two rows of each text.
  double recent_levels_ = 0, recent_passes_ = 0;
};

}  // namespace outrider
