// A drafter with a model of its own, which takes long to load. It is made on another thread, and
// sequences go on without it until it is there.

#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "speculation/drafter.h"

namespace outrider {

class LateDrafter final : public Drafter {
 public:
  // The rest of making it, on the thread of propose(). Returns null or throws if it cannot be had.
  using Finish = std::function<std::unique_ptr<Drafter>()>;
  // What takes long, on another thread. Should return soon once it is stopped. Does not throw.
  using Make = std::function<Finish(const std::atomic<bool>& is_stopped)>;

  LateDrafter(std::string name, const Make& make);
  ~LateDrafter() override;  // stops making it

  std::string_view name() const override { return name_; }
  bool can_draw() const override { return true; }  // as what takes long to make: models
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void expect(DraftSequence sequence, std::span<const Token> prediction) override;
  // Nothing until the drafter is made; the first call after that takes it over, later ones propose.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void suspend(DraftSequence sequence) override;
  void end(DraftSequence sequence) override;
  int n_to_prefill(DraftSequence sequence, int n_context) const override;
  int n_known(DraftSequence sequence, int n_context) const override;
  long n_passes() const override { return drafter_ ? drafter_->n_passes() : 0; }
  long n_levels() const override { return drafter_ ? drafter_->n_levels() : 0; }
  void forget() override;
  void measure_costs() override;
  std::vector<CostCurve::Point> costs() const override;
  void restore_costs(std::span<const CostCurve::Point> costs) override;
  // All 0 until it is there.
  DraftCost cost(int n_sequences, int length) const override;

  void wait() const { made_.wait(); }  // until it is made

 private:
  // A sequence, as the drafter will be told of it.
  struct Text {
    CacheScope scope;
    std::vector<Token> tokens = {}, prediction = {};
    std::size_t answer = 0;  // where it begins
  };
  void take();

  const std::string name_;
  std::atomic<bool> is_stopped_ = false;
  std::future<Finish> made_;  // until it is taken
  std::unique_ptr<Drafter> drafter_;
  std::map<DraftSequence, Text> texts_;  // as long as it is not there
  std::vector<CostCurve::Point> known_costs_;
};

}  // namespace outrider
