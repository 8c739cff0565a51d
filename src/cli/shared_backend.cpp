#include "cli/shared_backend.h"

namespace outrider {
namespace {

class SharedBackend final : public Backend {
 public:
  explicit SharedBackend(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const ModelSpec& spec() const override { return backend_->spec(); }
  const LoadOptions& options() const override { return backend_->options(); }
  Pass forward(std::span<const Row> rows, const ForwardOptions& options) override {
    return backend_->forward(rows, options);
  }
  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    return backend_->choose(pass, requests);
  }
  std::vector<float> read_tap(const Pass& pass, int tap, int row) const override {
    return backend_->read_tap(pass, tap, row);
  }
  void add_outputs(std::span<const Token> tokens) override { backend_->add_outputs(tokens); }
  SequenceId begin() override { return backend_->begin(); }
  void end(SequenceId sequence) override { backend_->end(sequence); }
  SequenceId fork(SequenceId sequence) override { return backend_->fork(sequence); }
  void commit(SequenceId sequence, std::span<const SlotId> path) override {
    backend_->commit(sequence, path);
  }
  void discard(SequenceId sequence) override { backend_->discard(sequence); }
  void truncate(SequenceId sequence, int length) override { backend_->truncate(sequence, length); }
  int committed(SequenceId sequence) const override { return backend_->committed(sequence); }
  int free_slots(SequenceId sequence) const override { return backend_->free_slots(sequence); }

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace

std::unique_ptr<Backend> share_backend(std::shared_ptr<Backend> backend) {
  return std::make_unique<SharedBackend>(std::move(backend));
}

}  // namespace outrider
