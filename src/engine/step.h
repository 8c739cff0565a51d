// One step of speculative decoding over any number of sequences, stage by stage. Plain decoding is
// the same step without drafters.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "speculation/tree.h"
#include "speculation/verifier.h"

namespace outrider {

class Step {
 public:
  Step(Engine& engine, std::span<const Engine::Part> parts, int n_waiting);
  void run();

 private:
  // One sequence's part, handed from one stage to the next.
  struct SequenceStep {
    Generation* generation;
    int length;  // of its text before the step

    // tokens[first, first + n_tokens) are computed in this pass; the cache has those before.
    int first;
    int n_tokens;
    bool is_prefilled;  // the last of them is the last of the text
    bool generates;     // is_prefilled, and the text gets an answer: the last token is the root

    // Whether drafts may be checked: not in a pass that prefills, so that they delay no first
    // token.
    bool drafts;
    int rows_max;                // of drafts; 0: the text shall have none
    int depth_max;               // of drafts: what the context and the token limit leave room for
    int drawers;                 // drafters that draw for it (DraftRequest::draws)
    bool was_asked_for = false;  // a drafter was asked for its drafts
    DraftTree drafted;           // as proposed; the root alone unless it generates
    DraftTree chosen;            // if it has drawers: what was proposed before they drew, pruned
    DraftTree checked;           // as planned

    // A row that rides along for a drafter (Drafter::riders).
    struct RidingRow {
      int parent;               // in its list; -1: the root
      std::vector<Token> path;  // from the root's child to itself
      int row = 0;              // of the pass
    };
    std::map<int, std::vector<RidingRow>> riders;  // by drafter
    int n_riders() const;

    std::vector<int> token_rows;  // of the pass, [n_tokens]
    // If it generates, [checked.size()]. The root's row is the last of token_rows.
    std::vector<int> node_rows;
    std::vector<NodeAnswer> answers;
    Verdict verdict;  // emit() cuts it to the nodes that became text

    // The generation's, as they were before emit() changed them.
    std::optional<ChoiceState> state_before;
    std::optional<StopRules> stop_before;
  };

  void draft();
  void plan();
  void forward();
  void verify();
  void emit();
  void run_head();
  void commit();
  void learn();

  void settle_chosen(std::span<SequenceStep* const> drawing);
  static void add_draws(SequenceStep& sequence);
  void add_riders();
  void ask(int drafter, std::span<SequenceStep* const> sequences);
  std::vector<Row> lay_out_rows();
  static std::vector<int> history_rows(const SequenceStep& sequence);
  Choice logits_of(int row);
  void score_prompt(SequenceStep& sequence);
  void score_answer(SequenceStep& sequence);
  void count(const SequenceStep& sequence) const;
  void count_not_drafted(const SequenceStep& sequence) const;
  void fail(const Error& error);
  void report();
  std::vector<SequenceStep*> generating();
  std::vector<SequenceStep*> drafting();
  static PlannedSequence planned_sequence(const SequenceStep& sequence, DraftTree& tree);

  Engine& engine_;
  std::vector<SequenceStep> sequences_;
  PassLoad load_;
  int rows_ = 0;              // of the pass
  bool is_measured_ = false;  // without drafts, so that the time of such a pass stays known
  double draft_ms_ = 0, forward_ms_ = 0;
  long draft_passes_ = 0, draft_levels_ = 0;
  Pass pass_;
};

}  // namespace outrider
