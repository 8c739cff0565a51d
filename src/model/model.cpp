#include "model/model.h"

#include <unordered_set>

#include "base/bytes.h"
#include "base/error.h"
#include "model/family.h"

namespace outrider {
namespace {

bool once_per_model(Role role) {
  return role <= Role::output;
}

// GGUF's order: columns first. Nothing where this spec has no such tensor.
std::optional<std::vector<std::int64_t>> expected_shape(const ModelSpec& spec, Role role,
                                                        int layer) {
  const Attention* attention = nullptr;
  const Mlp* mlp = nullptr;
  for (const Operation& operation : spec.layers[layer].operations) {
    if (const auto* found = std::get_if<Attention>(&operation.body)) attention = found;
    if (const auto* found = std::get_if<Mlp>(&operation.body)) mlp = found;
  }
  const std::int64_t embedding = spec.embedding;
  const auto heads = [&](int n) { return static_cast<std::int64_t>(n) * attention->head_dim; };
  switch (role) {
    case Role::token_embedding:
    case Role::output: return {{embedding, spec.vocabulary}};
    case Role::output_norm:
    case Role::attention_norm:
    case Role::attention_post_norm:
    case Role::mlp_norm:
    case Role::mlp_post_norm: return {{embedding}};
    case Role::attention_q: return {{embedding, heads(attention->n_heads)}};
    case Role::attention_k:
    case Role::attention_v: return {{embedding, heads(attention->n_kv_heads)}};
    case Role::attention_q_bias: return {{heads(attention->n_heads)}};
    case Role::attention_k_bias:
    case Role::attention_v_bias: return {{heads(attention->n_kv_heads)}};
    case Role::attention_q_norm:
    case Role::attention_k_norm: return {{attention->head_dim}};
    case Role::attention_output: return {{heads(attention->n_heads), embedding}};
    case Role::mlp_gate:
    case Role::mlp_up: return {{embedding, mlp->width}};
    case Role::mlp_down: return {{mlp->width, embedding}};
  }
  return std::nullopt;
}

void check_tensor(const Model& model, const TensorView& tensor, Role role, int layer) {
  const std::string& origin = model.checkpoint->metadata.origin();
  const auto expected = expected_shape(model.spec, role, layer);
  CHECK(expected);
  // Trailing dimensions of 1 mean nothing.
  std::vector<std::int64_t> shape = tensor.shape;
  while (shape.size() > expected->size() && shape.back() == 1) shape.pop_back();
  if (shape != *expected) {
    throw Error("{}: tensor {} is [{}], but the metadata asks for [{}]; convert the model again",
                origin, tensor.name, fmt::join(tensor.shape, ", "), fmt::join(*expected, ", "));
  }
  // Vectors enter float operations directly, and all converters write them as F32.
  if (!is_matrix(role) && tensor.type != TensorType::f32) {
    throw Error("{}: tensor {} is {}, expected F32; convert the model again", origin, tensor.name,
                traits(tensor.type).name);
  }
}

const Family& find_family(const Metadata& metadata) {
  const std::string architecture = metadata.require_string("general.architecture");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (family.architecture == architecture) return family;
    known.push_back(family.architecture);
  }
  throw Error(
      "{}: architecture \"{}\" is not supported in this version; choose a model of one of these: "
      "{}",
      metadata.origin(), printable(architecture), fmt::join(known, ", "));
}

// llama.cpp writes large models as several files; only the first one says what the model is.
void check_whole(const Metadata& metadata) {
  const std::int64_t count = metadata.integer("split.count").value_or(1);
  if (count <= 1) return;
  throw Error(
      "{}: is part {} of {} of a model; join them with llama.cpp's llama-gguf-split --merge "
      "FIRST_PART WHOLE.gguf and use the whole",
      metadata.origin(), metadata.require_integer("split.no", 0, count - 1) + 1, count);
}

}  // namespace

bool is_matrix(Role role) {
  switch (role) {
    case Role::token_embedding:
    case Role::output:
    case Role::attention_q:
    case Role::attention_k:
    case Role::attention_v:
    case Role::attention_output:
    case Role::mlp_gate:
    case Role::mlp_up:
    case Role::mlp_down: return true;
    case Role::output_norm:
    case Role::attention_norm:
    case Role::attention_q_bias:
    case Role::attention_k_bias:
    case Role::attention_v_bias:
    case Role::attention_q_norm:
    case Role::attention_k_norm:
    case Role::attention_post_norm:
    case Role::mlp_norm:
    case Role::mlp_post_norm: return false;
  }
  return false;
}

const TensorView* Model::weight(Role role, int layer) const {
  return weights[(once_per_model(role) ? 0 : layer) * kRoles + static_cast<int>(role)];
}

Model understand(std::shared_ptr<const Checkpoint> checkpoint) {
  check_whole(checkpoint->metadata);
  const Family& family = find_family(checkpoint->metadata);
  Model model{checkpoint, family.spec(*checkpoint), {}};
  model.weights.assign(model.spec.layers.size() * kRoles, nullptr);

  std::unordered_set<const TensorView*> used;
  for (const TensorName& name : family.names) {
    const int n = once_per_model(name.role) ? 1 : model.spec.n_layers();
    for (int layer = 0; layer < n; ++layer) {
      const std::string tensor_name = fmt::format(fmt::runtime(name.pattern), layer);
      const TensorView* tensor = checkpoint->find(tensor_name);
      if (tensor == nullptr && name.optional) continue;
      if (tensor == nullptr) {
        throw Error("{}: tensor {} is missing; the file is incomplete, convert the model again",
                    checkpoint->metadata.origin(), tensor_name);
      }
      check_tensor(model, *tensor, name.role, layer);
      model.weights[layer * kRoles + static_cast<int>(name.role)] = tensor;
      used.insert(tensor);
    }
  }
  // A tensor that nothing reads means that the model computes something that this program would
  // not.
  for (const TensorView& tensor : checkpoint->tensors) {
    if (!used.contains(&tensor)) {
      throw Error(
          "{}: tensor {} has no place in architecture \"{}\"; this variant is not supported in "
          "this "
          "version, choose another model",
          checkpoint->metadata.origin(), printable(tensor.name), family.architecture);
    }
  }
  return model;
}

std::size_t bytes_per_token(const Model& model) {
  std::size_t bytes = 0;
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int role = 0; role < kRoles; ++role) {
      const TensorView* tensor = model.weights[layer * kRoles + role];
      if (tensor != nullptr && role != static_cast<int>(Role::token_embedding))
        bytes += tensor->bytes.size();
    }
  }
  const TensorView& embedding = *model.weight(Role::token_embedding);
  const bool tied = model.weight(Role::output) == nullptr;
  return bytes + (tied ? embedding.bytes.size() : embedding.bytes.size() / embedding.rows());
}

std::size_t weights_per_token(const Model& model) {
  std::size_t weights = 0;
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int role = 0; role < kRoles; ++role) {
      const TensorView* tensor = model.weights[layer * kRoles + role];
      if (tensor != nullptr && is_matrix(static_cast<Role>(role)) &&
          role != static_cast<int>(Role::token_embedding)) {
        weights += tensor->elements();
      }
    }
  }
  if (model.weight(Role::output) == nullptr)
    weights += model.weight(Role::token_embedding)->elements();
  return weights;
}

}  // namespace outrider
