// Grows draft trees from what a model says, level by level, where a path is most likely to be
// accepted (EAGLE-2, Li et al. 2024, arXiv:2406.16858). Derived classes say which model that is and
// what it knows of a text: a draft model with a cache of its own (model.h), the target's own layers
// (self.h), or a head of the target (eagle.h, block.h, medusa.h).

#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/backend.h"
#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/drafters/guesser.h"

namespace outrider {

// A node's children are the tokens with the model's best scores, processed logit / temperature +
// noise, with the noise that the target's choice will use: also when sampling, the drafter guesses
// the target's own choice (Daliri, Musco, Suresh 2025, arXiv:2408.07978). Each pass computes the
// best nodes, which gives them children, and beside them rows for guesses at what the model will
// say next (guesser.h). Where a guess is what it says, the next level is there without a pass.
// Without a price of time the proposals are the most likely nodes of all that the model could
// propose, with and without guesses the same. A row without usable logits (NaN) ends its sequence's
// drafting in this step.
//
// Where it draws instead (DraftRequest::draws), children are draws without replacement from the
// model's distribution, in the order drawn, and their confidence is their probability there. How
// many draws a node gets is settled before its first: as many as it has among the best nodes of a
// tree in which every draw is accepted as often as the drafter's usually are (Chen et al. 2024,
// arXiv:2402.12374), below the nodes that are drawn already.
//
// The confidence of a child is the logistic function of its lead: its score less the best other
// one. When sampling, the noise is known and only the target's logits are open, so the lead among
// noisy scores tells the same. A head may say itself how sure its best token is.
class GrowingDrafter : public Drafter {
 public:
  bool can_draw() const override { return true; }
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  long n_passes() const override { return n_passes_; }
  long n_levels() const override { return n_levels_; }
  void forget() override;
  std::vector<CostCurve::Point> costs() const override { return curve_.points(); }
  void restore_costs(std::span<const CostCurve::Point> costs) override { curve_.restore(costs); }
  DraftCost cost(int n_sequences, int length) const override;

 protected:
  // Tokens that the pass of the root computes where the sequence has gone on by a step; more are
  // prefill.
  static constexpr int kUsualCatchUp = 8;

  struct Options {
    int target_vocabulary;  // ids from there on are never drafted
    // For the index of one text, from which guesses come; 0: no guesses.
    std::size_t memory_bytes = 0;
    ForwardOptions passes = {};
    // Of a model that guesses several tokens in one pass: how many at most, and the token that
    // stands for one that is not known yet, if it reads such tokens. Nothing: it guesses the next.
    std::optional<int> n_parallel = {};
    std::optional<Token> mask = {};
    // Of a head: each of its rows goes on from the state that it has where the row before is.
    bool has_state = false;
    int depth_max = std::numeric_limits<int>::max();  // of a node
    // Whether rows of levels take slots and attend to what is in the cache.
    bool rows_are_in_cache = true;
  };
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
    std::vector<float> state = {};                          // a head's: what its tap gave
    // Of the best token, as the head itself says it; nothing: by the lead.
    std::optional<float> confidence = {};
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
    SequenceId id;     // of the backend
    SuffixText index;  // of the text up to the last propose()
    std::vector<Token> text = {};
    // Of the last propose(), until the text changes.
    // Positions of the backend's sequence that the text takes, the last token's too.
    int length = 0;
    std::vector<Said> said = {};
    std::vector<SlotId> text_end = {};  // rows of the text's last tokens that are not committed yet
    std::vector<Node> tree = {};
    int n_rows_max = 0;  // scratch rows that it may have, as far as there are pages

    int size() const { return static_cast<int>(text.size()); }
    std::optional<int> find_said(int parent, Token token) const;
    void forget_draft();
  };
  // A request and its tree.
  struct Draft {
    const DraftRequest* request;
    Sequence* sequence;
    int width;           // children of a node, at most
    int depth_max;       // of a node
    bool ended = false;  // by a row without usable logits

    // A node that has no children yet, and how many it shall have.
    struct Parent {
      int node, n_children;
    };

    double acceptance(float confidence, int depth) const;
    double draw_acceptance(int depth) const;
    bool is_better(int node, int other) const;
    std::vector<int> best() const;
    double level_gain(std::span<const Parent> parents) const;
    std::vector<Parent> parents() const;
    int depth() const;
    std::vector<int> draws() const;
    void hand_over() const;
  };
  // The rows of a pass.
  struct Batch {
    // A row whose logits say what follows a path.
    struct Asked {
      Draft* draft;
      int said;
      int row;
      // That its answer is wanted, as far as is known before the pass: for its draft's best node 1.
      double probability;
    };
    std::vector<Row> rows = {};
    std::vector<Asked> asked = {};
    long length = 0;  // of the texts

    int n_rows(SequenceId sequence) const;
    // The last row is the last token of the text.
    void ask_root(Draft& draft);
    // Rows of the mask after it: what follows a node is what the model says at its depth.
    void ask_masks(Draft& draft, Token mask, int n);
    // What is said so many places after the text, whatever stands between: in order of the places.
    void ask_place(Draft& draft, int n);
    // A row for the path that goes on with this token.
    void ask(Draft& draft, int parent, Token token, SuffixText::End end,
             outrider::Parent parent_row, double probability);
  };

  // Several drafters may share a backend on one thread.
  GrowingDrafter(std::shared_ptr<Backend> backend, Options options);

  void add(DraftSequence sequence, SequenceId id);
  // Makes a sequence ready for rows after its text: sets its length and how many rows it may have.
  // False: it gets no proposals. n_promised: pages of the backend that others were promised.
  virtual bool prepare(const DraftRequest& request, Sequence& sequence,
                       std::span<const DraftRequest> all, int& n_promised) = 0;
  // One pass over what lies before the trees; the last one asks their roots. True once all are
  // asked. Rows beside those of the text take time, which is added to `passes`, in usual passes.
  virtual bool prefill(std::span<Draft> drafts, double& passes) = 0;
  // The row of a text's last token, if neither history nor scratch has it: a level that goes on
  // from it computes it, too.
  virtual std::optional<Row> missing_text_end(const Sequence& /*sequence*/) const { return {}; }
  // What a row goes on from, if that is not the state of the row before.
  virtual std::optional<StateBefore> state_before(const Sequence& /*sequence*/,
                                                  const Said& /*said*/) const {
    return {};
  }
  // The drafts are handed over.
  virtual void finish(std::span<const Draft> /*drafts*/) {}
  // The model's token for one of the target's; nothing: it has none.
  virtual std::optional<Token> own(Token token) const {
    return token < backend_->spec().vocabulary ? std::optional(token) : std::nullopt;
  }

  int free_rows(const Sequence& sequence) const;
  void add_guesses(Batch& batch, std::span<Draft* const> drafts) const;
  PassWork work_of(const Batch& batch) const;
  // The pass, and what the model said in it. Of a head whose passes keep a tap, that is its state.
  Pass compute(const Batch& batch) { return compute(batch, options_.passes); }
  Pass compute(const Batch& batch, const ForwardOptions& passes);
  // Of what a pass of `work` takes, that of rows beside n_rows.
  double passes_beside(const PassWork& work, int n_rows, std::size_t n_sequences,
                       long length) const;
  void time_passes(SequenceId sequence, const StateBefore& before = KeptFeatures{});
  static float confidence(const std::vector<Candidate>& best, std::size_t candidate);

  const std::shared_ptr<Backend> backend_;
  const Options options_;
  std::vector<std::uint64_t> allowed_;  // bit per id that both models have; empty: all
  std::map<DraftSequence, Sequence> sequences_;
  CostCurve curve_;  // of its passes

 private:
  std::vector<Draft> start(std::span<const DraftRequest> requests);
  std::optional<int> said_after(const Sequence& sequence, int parent, int depth, Token token) const;
  void expand(Draft& draft) const;
  bool grow(std::span<Draft> drafts, double& passes);
  bool guess_pays(const DraftRequest& request, double probability, int n_rows) const;
  double usual_pass_ms(std::size_t n_sequences, long length) const;
  double passes_per_level() const;
  double level_ms(std::size_t n_sequences, long length) const;
  ChoiceRequest question(const Draft& draft, int said, int row,
                         std::vector<TokenCount>& counts) const;

  Guesser guesser_;
  long n_passes_ = 0, n_levels_ = 0;
  // Of the recent proposals: levels after the first, and the time of their passes as a multiple of
  // one over two rows of each text.
  double recent_levels_ = 0, recent_passes_ = 0;
};

}  // namespace outrider
