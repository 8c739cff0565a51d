#include "speculation/planner.h"

#include "speculation/fixed_planner.h"
#include "speculation/priced_planner.h"

namespace outrider {

std::unique_ptr<Planner> make_planner(const PlannerOptions& options, CostCurve& curve,
                                      int n_drafters) {
  if (options.automatic) return std::make_unique<PricedPlanner>(options, curve, n_drafters);
  return std::make_unique<FixedPlanner>(options);
}

}  // namespace outrider
