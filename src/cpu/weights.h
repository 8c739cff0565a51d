// A model's weights as the kernels read them: matrices packed into huge pages, vectors as floats.

#pragma once

#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/pack.h"
#include "model/backend.h"
#include "model/model.h"

namespace outrider {

// Working memory to pack a panel whose rows must be gathered or encoded.
struct PackingMemory {
  std::vector<float> row;
  std::vector<std::byte> panel;
};

class Weights {
 public:
  // Packs every matrix, each thread the panels that it will read, and releases the pages of the
  // mapped file that have been packed. The model's checkpoint must outlive this object: embedding
  // rows are read from it. Throws as BackendFactory::load() does.
  Weights(const Model& model, const LoadOptions& options, ThreadTeam& team,
          const LoadProgress& progress);

  int n_layers() const { return static_cast<int>(matrices_.size()) / kRoles; }
  const PackedMatrix& matrix(Role role, int layer = 0) const {
    return matrices_[index(role, layer)];
  }
  std::span<const float> vector(Role role, int layer = 0) const {
    return vectors_[index(role, layer)];
  }
  // The output matrix; of Medusa's heads that have their own, the first one's and theirs; of a head
  // of blocks also successor_output.
  const PackedMatrix& head(std::size_t i = 0) const { return heads_[i].matrix; }
  std::size_t n_heads() const { return heads_.size(); }
  // Appends outputs for these tokens, which with those before are no more than
  // LoadOptions::output_room. Allocates nothing.
  void add_to_head(std::span<const Token> tokens);
  // Keeps the first n outputs of a head that was loaded with output_ids.
  void cut_head(std::size_t n);

  // The embedding of a token, before any scaling: [embedding].
  void embed(Token token, std::span<float> out) const { copy_row(embedding_, token, out); }
  // Its row of successor_table: [rank].
  void successor(Token token, std::span<float> out) const { copy_row(successors_, token, out); }

 private:
  std::size_t index(Role role, int layer) const { return layer * kRoles + static_cast<int>(role); }

  struct Head {
    TensorView tensor;
    PackedMatrix matrix;
  };

  static void copy_row(const TensorView& table, Token token, std::span<float> out);

  TensorView embedding_, successors_;  // rows are read from the file
  HugeBuffer packed_;
  std::vector<PackedMatrix> matrices_;       // [n_layers][kRoles]
  std::vector<std::vector<float>> vectors_;  // [n_layers][kRoles]
  std::vector<Head> heads_;
  std::vector<Token> head_tokens_;  // of the head's outputs; empty: output i is token i's
  PackingMemory head_memory_;       // for add_to_head()
};

// What a model's weights take, for planning memory before loading.
struct WeightBytes {
  std::size_t matrices = 0;  // packed
  std::size_t vectors = 0;
};
WeightBytes weight_bytes(const Model& model, const LoadOptions& options);

}  // namespace outrider
