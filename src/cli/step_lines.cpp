#include "cli/step_lines.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/json.h"

namespace outrider {

namespace {

// The tree of one sequence's drafts, a line for each node.
class Board {
 public:
  Board(const StepReport& report, const StepReport::Sequence& sequence, const Tokenizer& tokenizer)
      : report_(report), sequence_(sequence), tokenizer_(tokenizer) {}

  std::vector<std::string> lines() {
    lines_ = {fmt::format("  {}{}", shown(sequence_.last), said_after(0))};
    add_children(0, "  ");
    const auto n_accepted = static_cast<std::size_t>(
        std::ranges::count(sequence_.nodes, true, &StepReport::Node::accepted));
    if (sequence_.emitted.size() > n_accepted)
      lines_.push_back(fmt::format("  {} {}",
                                   is_accepted_to_a_leaf() ? "bonus token" : "correction",
                                   shown(sequence_.emitted.back())));
    return std::move(lines_);
  }

 private:
  std::string shown(Token token) const { return json_text(tokenizer_.bytes(token, true)); }

  // `place`: 0 for the root, else a node's number + 1.
  std::string said_after(std::size_t place) const {
    const std::optional<Token> choice = sequence_.choices.at(place);
    return choice ? " -> " + shown(*choice) : " -> no usable logits";
  }

  std::vector<int> children(int place) const {
    std::vector<int> children;
    for (int node = 0; node < std::ssize(sequence_.nodes); ++node)
      if (sequence_.nodes[node].parent == place) children.push_back(node + 1);
    return children;
  }

  // The last accepted node, or the root, has no children.
  bool is_accepted_to_a_leaf() const {
    int last = 0;
    for (int node = 0; node < std::ssize(sequence_.nodes); ++node)
      if (sequence_.nodes[node].accepted) last = node + 1;
    return children(last).empty();
  }

  void add_children(int place, const std::string& indent) {
    const std::vector<int> all = children(place);
    for (const int child : all) {
      const StepReport::Node& node = sequence_.nodes[child - 1];
      std::vector<std::string> by;
      for (const Proposal& proposal : node.proposals)
        by.push_back(
            fmt::format("{} {:.2f}", report_.drafters[proposal.drafter], proposal.confidence));
      const bool is_last = child == all.back();
      lines_.push_back(fmt::format("{}{}─{} {} ({}){}", indent, is_last ? "└" : "├",
                                   node.accepted ? "+" : "─", shown(node.token),
                                   fmt::join(by, ", "), said_after(child)));
      add_children(child, indent + (is_last ? "   " : "│  "));
    }
  }

  const StepReport& report_;
  const StepReport::Sequence& sequence_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string step_text(std::string_view draft, const StepReport& report,
                      const Tokenizer& tokenizer) {
  std::vector<std::string> lines;
  for (const StepReport::Sequence& sequence : report.sequences) {
    lines.push_back(
        fmt::format("step {}: {}, position {}, {} rows, {} of {} drafts accepted, {:.1f} ms, "
                    "drafting {:.1f} ms",
                    report.step, draft, sequence.position, report.rows,
                    std::ranges::count(sequence.nodes, true, &StepReport::Node::accepted),
                    sequence.nodes.size(), report.forward_ms, report.draft_ms));
    if (sequence.nodes.empty() || sequence.choices.empty()) continue;
    const std::vector<std::string> board = Board(report, sequence, tokenizer).lines();
    lines.insert(lines.end(), board.begin(), board.end());
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string step_json(std::string_view draft, const StepReport& report) {
  Json sequences = Json::array();
  for (const StepReport::Sequence& sequence : report.sequences) {
    Json nodes = Json::array();
    for (const StepReport::Node& node : sequence.nodes) {
      Json by;
      for (const Proposal& proposal : node.proposals)
        by[report.drafters[static_cast<std::size_t>(proposal.drafter)]] = proposal.confidence;
      nodes.push_back({{"token", node.token},
                       {"parent", node.parent},
                       {"accepted", node.accepted},
                       {"by", by}});
    }
    Json choices = Json::array();
    for (const std::optional<Token>& choice : sequence.choices)
      choices.push_back(choice ? Json(*choice) : Json());
    Json finish;
    if (sequence.error) finish = "error";
    if (sequence.finish_reason) finish = name(*sequence.finish_reason);
    sequences.push_back({{"sequence", sequence.id.value},
                         {"position", sequence.position},
                         {"text_rows", sequence.n_tokens},
                         {"proposed", sequence.n_proposed},
                         {"nodes", nodes},
                         {"choices", choices},
                         {"taken", sequence.emitted},
                         {"finish", finish}});
  }
  const Json line = {{"draft", draft},
                     {"step", report.step},
                     {"rows", report.rows},
                     {"draft_ms", report.draft_ms},
                     {"forward_ms", report.forward_ms},
                     {"sequences", sequences}};
  return line.dump();
}

}  // namespace outrider
