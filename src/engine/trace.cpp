#include "engine/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace outrider {

std::string trace_line(std::span<const Turn> turns, const StepFigures& figures,
                       std::span<const std::unique_ptr<Drafter>> drafters) {
  nlohmann::ordered_json line{{"step", figures.step},
                              {"rows", figures.rows},
                              {"draft_ms", figures.draft_ms},
                              {"forward_ms", figures.forward_ms},
                              {"sequences", nlohmann::ordered_json::array()}};
  for (const Turn& turn : turns) {
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (int node = 1; node < turn.checked.size(); ++node) {
      nlohmann::ordered_json by;
      for (const Proposal& proposal : turn.checked[node].proposals)
        by[std::string(drafters[proposal.drafter]->name())] = proposal.confidence;
      const bool accepted = std::ranges::find(turn.accepted, node) != turn.accepted.end();
      nodes.push_back({{"token", turn.checked[node].token},
                       {"parent", turn.checked[node].parent},
                       {"accepted", accepted},
                       {"by", by}});
    }
    nlohmann::ordered_json finish;
    if (const auto reason = turn.generation->finished)
      finish = *reason == FinishReason::stop ? "stop" : "length";
    line["sequences"].push_back({{"sequence", turn.generation->draft_sequence.value},
                                 {"position", turn.first},
                                 {"text_rows", turn.n_text},
                                 {"proposed", turn.drafted.size() - 1},
                                 {"nodes", nodes},
                                 {"taken", turn.taken},
                                 {"finish", finish}});
  }
  return line.dump();
}

}  // namespace outrider
