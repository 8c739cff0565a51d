#include "cli/step_lines.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/json.h"

namespace outrider {

std::string step_text(std::string_view draft, const StepReport& report) {
  std::vector<std::string> lines;
  for (const StepReport::Sequence& sequence : report.sequences)
    lines.push_back(
        fmt::format("step {}: {}, position {}, {} rows, {} of {} drafts accepted, {:.1f} ms, "
                    "drafting {:.1f} ms",
                    report.step, draft, sequence.position, report.rows,
                    std::ranges::count(sequence.nodes, true, &StepReport::Node::accepted),
                    sequence.nodes.size(), report.forward_ms, report.draft_ms));
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
    Json finish;
    if (sequence.error) finish = "error";
    if (sequence.finish_reason) finish = name(*sequence.finish_reason);
    sequences.push_back({{"sequence", sequence.id.value},
                         {"position", sequence.position},
                         {"text_rows", sequence.n_tokens},
                         {"proposed", sequence.n_proposed},
                         {"nodes", nodes},
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
