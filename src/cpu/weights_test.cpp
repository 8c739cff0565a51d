#include "cpu/weights.h"

#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace outrider {
namespace {

// The smallest model there is: every matrix has one row.
Model smallest_model() {
  GgufWriter file;
  file.add("general.architecture", std::string("llama"));
  const auto set = [&](const char* name, std::int64_t value) {
    file.add(std::string("llama.") + name, value);
  };
  set("block_count", 1);
  set("context_length", 64);
  set("embedding_length", 1);
  set("feed_forward_length", 1);
  set("attention.head_count", 1);
  set("rope.dimension_count", 0);
  file.add("llama.attention.layer_norm_rms_epsilon", 1e-5);
  float value = 0;
  const auto tensor = [&](const char* name, std::vector<std::int64_t> shape) {
    ++value;
    file.add_tensor(name, TensorType::f32, shape, std::as_bytes(std::span(&value, 1)));
  };
  tensor("token_embd.weight", {1, 1});
  tensor("output_norm.weight", {1});
  tensor("blk.0.attn_norm.weight", {1});
  tensor("blk.0.attn_q.weight", {1, 1});
  tensor("blk.0.attn_k.weight", {1, 1});
  tensor("blk.0.attn_v.weight", {1, 1});
  tensor("blk.0.attn_output.weight", {1, 1});
  tensor("blk.0.ffn_norm.weight", {1});
  tensor("blk.0.ffn_gate.weight", {1, 1});
  tensor("blk.0.ffn_up.weight", {1, 1});
  tensor("blk.0.ffn_down.weight", {1, 1});
  struct Owner {
    std::vector<std::byte> bytes;
    Checkpoint checkpoint;
  };
  auto owner = std::make_shared<Owner>();
  owner->bytes = file.bytes();
  owner->checkpoint = read_gguf(owner->bytes, "smallest.gguf");
  return interpret_checkpoint(std::shared_ptr<const Checkpoint>(owner, &owner->checkpoint));
}

TEST(Weights, AMatrixOfOneRowIsNoVector) {
  const Model model = smallest_model();
  ThreadTeam team(1);
  const Weights weights(model, {}, team, {});
  for (int r = 0; r < kRoles; ++r) {
    const Role role = static_cast<Role>(r);
    const TensorView* tensor = model.weight(role);
    if (tensor == nullptr || role == Role::token_embedding) continue;
    SCOPED_TRACE(tensor->name);
    float expected = 0;
    std::memcpy(&expected, tensor->bytes.data(), sizeof expected);
    if (is_matrix(role)) {
      EXPECT_EQ(weights.matrix(role).outputs, 1u);
      ASSERT_NE(weights.matrix(role).first, nullptr);
      EXPECT_EQ(*reinterpret_cast<const float*>(weights.matrix(role).first), expected);
    } else {
      EXPECT_EQ(weights.vector(role).size(), 1u);
      EXPECT_EQ(weights.vector(role)[0], expected);
    }
  }
  EXPECT_EQ(weights.head().outputs, 1u);
}

TEST(Weights, PlansForVectorsAndWholePanels) {
  const WeightBytes bytes = weight_bytes(smallest_model(), {});
  EXPECT_EQ(bytes.matrices, 8 * kPanel * sizeof(float));
  EXPECT_EQ(bytes.vectors, 3 * sizeof(float));
}

// A table of 2^20 positions weighs more than a small model.
TEST(MemoryNeed, CountsTheTablesOfPositions) {
  Model model = smallest_model();
  auto& attention = std::get<Attention>(model.spec.layers[0].operations[0].body);
  const auto working = [&](int context) {
    return cpu_backends().memory_need(model, {.context = context, .batch_rows = 1}).working;
  };
  EXPECT_EQ(working(1 << 20), working(64));
  attention.rope = Rope{.pairing = RopePairing::halves, .frequencies = {}, .longer = {}};
  attention.rope->frequencies.resize(64);
  EXPECT_EQ(working(1 << 20) - working(1 << 19), (std::size_t{1} << 19) * 128 * sizeof(float));
}

}  // namespace
}  // namespace outrider
