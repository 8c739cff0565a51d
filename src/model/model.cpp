#include "model/model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/numbers.h"
#include "model/family.h"
#include "model/tensor_names.h"
#include "model/unsupported.h"

namespace outrider {
namespace {

bool once_per_model(Role role) {
  return role <= Role::confidence_bias;
}

using Shape = std::vector<std::int64_t>;

// The shape of a role's tensor in a layer, in GGUF's order: columns first. Nothing where this spec
// has no such tensor.
class Shapes {
 public:
  Shapes(const ModelSpec& spec, int layer) : spec_(spec) {
    for (const Operation& operation : spec.layers[static_cast<std::size_t>(layer)].operations) {
      norms_.insert(operation.pre_norm);
      norms_.insert(operation.post_norm);
      if (const auto* found = std::get_if<Attention>(&operation.body)) attention_ = found;
      if (const auto* found = std::get_if<Mlp>(&operation.body)) mlp_ = found;
    }
  }

  std::optional<Shape> of(Role role) const {
    const std::int64_t embedding = spec_.embedding;
    switch (role) {
      case Role::token_embedding:
      case Role::output: return {{embedding, spec_.vocabulary}};
      case Role::output_norm: return {{embedding}};
      case Role::output_norm_bias: return only_if(spec_.has_norm_bias, {embedding});
      case Role::rope_factors:
      case Role::rope_factors_long:
      case Role::rope_factors_short: return rope_factors();
      case Role::feature_fusion:
      case Role::feature_fusion_bias:
      case Role::feature_norm:
      case Role::successor_table:
      case Role::successor_gate:
      case Role::successor_gate_bias:
      case Role::successor_output:
      case Role::confidence:
      case Role::confidence_bias:
      case Role::token_norm:
      case Role::medusa_block:
      case Role::medusa_block_bias:
      case Role::medusa_output: return std::nullopt;  // of heads (model/head.h)
      case Role::attention_norm:
      case Role::attention_post_norm:
      case Role::mlp_norm:
      case Role::mlp_post_norm: return only_if(norms_.contains(role), {embedding});
      case Role::attention_norm_bias: return norm_bias(Role::attention_norm);
      case Role::mlp_norm_bias: return norm_bias(Role::mlp_norm);
      case Role::mlp_gate:
        return only_if(mlp_ && mlp_->is_gated, {embedding, mlp_ ? mlp_->width : 0});
      case Role::mlp_up: return only_if(mlp_, {embedding, mlp_ ? mlp_->width : 0});
      case Role::mlp_down: return only_if(mlp_, {mlp_ ? mlp_->width : 0, embedding});
      case Role::mlp_gate_bias:
        return only_if(mlp_ && mlp_->has_bias && mlp_->is_gated, {mlp_ ? mlp_->width : 0});
      case Role::mlp_up_bias: return only_if(mlp_ && mlp_->has_bias, {mlp_ ? mlp_->width : 0});
      case Role::mlp_down_bias: return only_if(mlp_ && mlp_->has_bias, {embedding});
      default: return attention_ ? of_attention(*attention_, role) : std::nullopt;
    }
  }

 private:
  static std::optional<Shape> only_if(bool condition, Shape shape) {
    return condition ? std::optional(std::move(shape)) : std::nullopt;
  }
  std::optional<Shape> norm_bias(Role norm) const {
    return only_if(spec_.has_norm_bias && norms_.contains(norm), {spec_.embedding});
  }
  std::optional<Shape> rope_factors() const {
    for (const LayerSpec& layer : spec_.layers) {
      const Attention* attention = attention_of(layer);
      if (attention && attention->rope) return {{attention->rope->dims() / 2}};
    }
    return std::nullopt;
  }
  static std::optional<Shape> head_norm(const Attention& attention, std::int64_t heads) {
    switch (attention.qk_norm) {
      case HeadNorm::none: return std::nullopt;
      case HeadNorm::shared: return {{attention.key_dim}};
      case HeadNorm::each: return {{attention.key_dim, heads}};
      case HeadNorm::all: return {{heads * attention.key_dim}};
    }
    return std::nullopt;
  }
  std::optional<Shape> of_attention(const Attention& attention, Role role) const {
    const std::int64_t embedding = spec_.embedding;
    const std::int64_t q = std::int64_t{attention.n_heads} * attention.key_dim;
    const std::int64_t k = std::int64_t{attention.n_kv_heads} * attention.key_dim;
    const std::int64_t v = std::int64_t{attention.n_kv_heads} * attention.value_dim;
    const std::int64_t attended = std::int64_t{attention.n_heads} * attention.value_dim;
    switch (role) {
      case Role::attention_q: return {{embedding, q}};
      case Role::attention_k: return {{embedding, k}};
      case Role::attention_v: return {{embedding, v}};
      case Role::attention_q_bias: return only_if(attention.has_bias, {q});
      case Role::attention_k_bias: return only_if(attention.has_bias, {k});
      case Role::attention_v_bias: return only_if(attention.has_bias, {v});
      case Role::attention_q_norm: return head_norm(attention, attention.n_heads);
      case Role::attention_k_norm: return head_norm(attention, attention.n_kv_heads);
      case Role::attention_gate: return only_if(attention.has_gate, {embedding, attended});
      case Role::attention_output: return {{attended, embedding}};
      case Role::attention_output_bias: return only_if(attention.has_output_bias, {embedding});
      default: return std::nullopt;
    }
  }

  const ModelSpec& spec_;
  const Attention* attention_ = nullptr;
  const Mlp* mlp_ = nullptr;
  std::set<std::optional<Role>> norms_;
};

// A file may lack these though the spec has a place for them.
bool is_optional(Role role) {
  switch (role) {
    case Role::output:
    case Role::rope_factors:
    case Role::rope_factors_long:
    case Role::rope_factors_short: return true;
    default: return false;
  }
}

void check_tensor(const std::string& origin, const TensorView& tensor, Role role,
                  const Shape& expected) {
  // Trailing dimensions of 1 mean nothing.
  Shape shape = tensor.shape;
  while (shape.size() > expected.size() && shape.back() == 1) shape.pop_back();
  if (shape != expected) {
    throw Error("{}: tensor {} is [{}], but the metadata asks for [{}]; convert the model again",
                origin, tensor.name, fmt::join(tensor.shape, ", "), fmt::join(expected, ", "));
  }
  if (!is_weight_type(tensor.type)) {
    throw Error("{}: tensor {} is {}, expected weights; convert the model again", origin,
                tensor.name, traits(tensor.type).name);
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
  const std::string_view kind = kind_of_architecture(architecture);
  throw Error(
      "{}: architecture \"{}\"{} is not supported in this version; choose a model of one of "
      "these: {}",
      metadata.origin(), printable(architecture), kind.empty() ? "" : fmt::format(" ({})", kind),
      fmt::join(known, ", "));
}

FamilyFile family_file(const Checkpoint& checkpoint) {
  const Family& family = find_family(checkpoint.metadata);
  return FamilyFile(checkpoint, family.architecture, family.own_keys);
}

// llama.cpp writes large models as several files; only the first one says what the model is.
void check_whole(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  const std::int64_t count = metadata.integer("split.count").value_or(1);
  if (count <= 1 || count == static_cast<std::int64_t>(checkpoint.files.size())) return;
  throw Error(
      "{}: is part {} of {} of a model; open the first, whose name ends in -00001-of-{:05}.gguf",
      metadata.origin(), metadata.require_integer("split.no", 0, count - 1) + 1, count, count);
}

}  // namespace

bool is_matrix(Role role) {
  switch (role) {
    case Role::token_embedding:
    case Role::output:
    case Role::feature_fusion:
    case Role::successor_table:
    case Role::successor_gate:
    case Role::successor_output:
    case Role::medusa_block:
    case Role::medusa_output:
    case Role::attention_q:
    case Role::attention_k:
    case Role::attention_v:
    case Role::attention_gate:
    case Role::attention_output:
    case Role::mlp_gate:
    case Role::mlp_up:
    case Role::mlp_down: return true;
    default: return false;
  }
}

const TensorView* Model::weight(Role role, int layer) const {
  return weights[(once_per_model(role) ? 0 : layer) * kRoles + static_cast<int>(role)];
}

namespace {

// Finds the tensors of a model by their names.
class Reader {
 public:
  // first_block: the number of the first layer in names.
  explicit Reader(Model& model, int first_block = 0)
      : model_(model),
        first_block_(first_block),
        checkpoint_(*model.checkpoint),
        origin_(checkpoint_.metadata.origin()) {}

  void read(int n_prediction_layers) {
    read_layers();
    check_nothing_else(n_prediction_layers);
  }

  void read_layers() {
    for (int layer = 0; layer < model_.spec.n_layers(); ++layer) {
      const Shapes shapes(model_.spec, layer);
      for (const FusedTensorName& name : kFusedTensorNames) read_fused(name, layer, shapes);
      for (const TensorName& name : kTensorNames) read_one(name, layer, shapes);
    }
  }

 private:
  const TensorView*& place(Role role, int layer) {
    return model_.weights[static_cast<std::size_t>(layer * kRoles + static_cast<int>(role))];
  }
  std::string name_in(std::string_view pattern, int layer) const {
    return fmt::format(fmt::runtime(pattern), first_block_ + layer);
  }
  std::string name_of(Role role, int layer) const {
    return name_in(std::ranges::find(kTensorNames, role, &TensorName::role)->pattern, layer);
  }

  void read_one(const TensorName& name, int layer, const Shapes& shapes) {
    if (first_block_ + layer > 0 && once_per_model(name.role)) return;
    const std::optional<Shape> shape = shapes.of(name.role);
    if (!shape || place(name.role, layer) != nullptr) return;
    const std::string tensor_name = name_in(name.pattern, layer);
    const TensorView* tensor = checkpoint_.find(tensor_name);
    if (tensor == nullptr && is_optional(name.role)) return;
    if (tensor == nullptr) {
      throw Error("{}: tensor {} is missing; the file is incomplete, convert the model again",
                  origin_, tensor_name);
    }
    check_tensor(origin_, *tensor, name.role, *shape);
    place(name.role, layer) = tensor;
    used_.insert(tensor);
  }

  // A tensor that holds those of several roles, if the spec asks for these and the file lacks the
  // first.
  void read_fused(const FusedTensorName& name, int layer, const Shapes& shapes) {
    const std::optional<Shape> first = shapes.of(name.roles.front());
    const TensorView* tensor = checkpoint_.find(name_in(name.pattern, layer));
    if (tensor == nullptr || !first) return;
    if (checkpoint_.find(name_of(name.roles.front(), layer)) != nullptr) return;
    if (tensor->shape == *shapes.of(name.roles.back())) return;  // ffn_up alone
    Shape whole = *first;
    for (std::size_t i = 1; i < name.roles.size(); ++i)
      whole.back() += shapes.of(name.roles[i])->back();
    check_tensor(origin_, *tensor, name.roles.front(), whole);
    const std::size_t row_bytes = tensor->bytes.size() / static_cast<std::size_t>(whole.back());
    std::size_t offset = 0;
    for (const Role role : name.roles) {
      const Shape shape = *shapes.of(role);
      const std::size_t bytes = static_cast<std::size_t>(shape.back()) * row_bytes;
      model_.parts.push_back(std::make_shared<TensorView>(
          TensorView{tensor->name, tensor->type, shape, tensor->bytes.subspan(offset, bytes)}));
      place(role, layer) = model_.parts.back().get();
      offset += bytes;
    }
    used_.insert(tensor);
  }

  // What a tensor that no layer reads is for; nothing: unknown.
  std::optional<LeftOut> part_left_out(const TensorView& tensor, int n_prediction_layers) const {
    const auto begins = [&](std::string_view prefix) { return tensor.name.starts_with(prefix); };
    if (begins("v.") || begins("mm.")) return LeftOut{"vision"};
    if (begins("a.")) return LeftOut{"audio"};
    const int n_layers = model_.spec.n_layers();
    for (int layer = 0; layer < n_prediction_layers; ++layer)
      if (begins(fmt::format("blk.{}.", n_layers + layer)))
        return layer == 0 ? LeftOut{.part = "prediction of further tokens", .is_head = true}
                          : LeftOut{"further layers for prediction"};
    return {};
  }

  // Layers that the metadata does not know are more likely a wrong count than another variant.
  void check_layer(const TensorView& tensor) const {
    constexpr std::string_view kPrefix = "blk.";
    if (!tensor.name.starts_with(kPrefix)) return;
    const std::string number = tensor.name.substr(kPrefix.size(), tensor.name.find('.', 4) - 4);
    const std::optional<int> layer = parse_number<int>(number);
    if (!layer || *layer < model_.spec.n_layers()) return;
    throw Error(
        "{}: tensor {} is of layer {}, but {}.block_count counts {} layers of text, the first is "
        "0; "
        "convert the model again",
        origin_, printable(tensor.name), *layer, model_.spec.family, model_.spec.n_layers());
  }

  // A tensor that nothing reads means that the model computes something that this program would
  // not.
  void check_nothing_else(int n_prediction_layers) {
    std::map<std::string, LeftOut> left_out;
    for (const TensorView& tensor : checkpoint_.tensors) {
      if (used_.contains(&tensor)) continue;
      const std::optional<LeftOut> part = part_left_out(tensor, n_prediction_layers);
      if (!part) {
        check_layer(tensor);
        throw Error(
            "{}: tensor {} has no place in architecture \"{}\"; this variant is not supported in "
            "this version, choose another model",
            origin_, printable(tensor.name), model_.spec.family);
      }
      ++left_out.try_emplace(part->part, *part).first->second.n_tensors;
    }
    for (const auto& [name, part] : left_out) model_.left_out.push_back(part);
  }

  Model& model_;
  const int first_block_;
  const Checkpoint& checkpoint_;
  const std::string& origin_;
  std::unordered_set<const TensorView*> used_;
};

}  // namespace

Model interpret_checkpoint(std::shared_ptr<const Checkpoint> checkpoint) {
  check_whole(*checkpoint);
  check_kind(checkpoint->metadata);
  const FamilyFile file = family_file(*checkpoint);
  Model model{.checkpoint = checkpoint,
              .spec = find_family(checkpoint->metadata).spec(file),
              .weights = {},
              .parts = {},
              .left_out = {},
              .warnings = file.unknown_keys()};
  model.weights.assign(model.spec.layers.size() * kRoles, nullptr);
  Reader(model).read(prediction_layer_count(file));
  return model;
}

std::vector<std::string> left_out_texts(const Model& model, bool loads_head) {
  std::vector<std::string> texts;
  for (const LeftOut& part : model.left_out)
    if (!(loads_head && part.is_head))
      texts.push_back(fmt::format("{} ({} tensors)", part.part, part.n_tensors));
  return texts;
}

void find_layers(Model& model, int first_block) {
  Reader(model, first_block).read_layers();
}

std::vector<TakenKey> taken_keys(const Model& model) {
  return taken_keys(family_file(*model.checkpoint));
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
