// A checkpoint understood: its family's spec and its tensors by role, shapes checked.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/listed_metadata.h"
#include "model/spec.h"

namespace outrider {

// A part of a file that is no model of text: not loaded.
struct LeftOut {
  std::string part;  // "vision"
  int n_tensors = 0;
  // The first of the layers for multi-token prediction, which can be read as a head (head.h).
  bool is_head = false;
};

struct Model {
  std::shared_ptr<const Checkpoint> checkpoint;  // owns what the views point into
  ModelSpec spec;

  // Null where the family or this file has no such tensor. `layer` is ignored for the roles that a
  // model has once.
  const TensorView* weight(Role role, int layer = 0) const;

  std::vector<const TensorView*> weights;  // [n_layers][kRoles]
  // Parts of tensors that hold those of several roles.
  std::vector<std::shared_ptr<const TensorView>> parts;
  std::vector<LeftOut> left_out;
  // A line for each key of the family's name space that no list knows.
  std::vector<std::string> warnings;
};

// Whether tensors of this role multiply, whatever their size; the others are vectors of floats.
bool is_matrix(Role role);

// Throws Error if the architecture is unknown, metadata is missing or absurd, or a tensor is
// missing, unknown, or of another shape or type than the metadata asks for. Tensors of images and
// sound, and layers that predict further tokens, are left out. If the file holds a
// vocabulary, spec.vocabulary is its size: every token that the model can choose has a text.
Model interpret_checkpoint(std::shared_ptr<const Checkpoint> checkpoint);

// "vision (436 tensors)" for each part that is left out, also where the head in it is loaded.
std::vector<std::string> left_out_texts(const Model& model, bool loads_head);

// Finds the tensors of the spec's layers in the model's checkpoint, which calls the first of them
// "blk.N", as interpret_checkpoint() does with those of a whole model. model.weights has room for
// them. Throws Error.
void find_layers(Model& model, int first_block);

// The keys of the model's family.
std::vector<TakenKey> taken_keys(const Model& model);

// Bytes of the tensors that producing one token must read: every matrix and vector once, but of an
// embedding that is not the head's matrix too, one row.
std::size_t bytes_per_token(const Model& model);
// Multiply-adds with weights that one token needs, the head counted.
std::size_t weights_per_token(const Model& model);

}  // namespace outrider
