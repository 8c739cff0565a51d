// Medusa's heads in the layouts of FasterDecoding/Medusa, of TGI (text-generation-inference), which
// has no output matrices, and of vLLM.

#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cache/cache.h"
#include "model/head_config.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"

namespace outrider {
namespace {

// What a layout calls its tensors; "{0}" is the head, "{1}" the block.
struct Layout {
  std::string_view producer, block, bias, output;
  // Its output is block {1} after the last one's.
  bool output_follows_blocks = false;
};
constexpr Layout kLayouts[] = {
    {"FasterDecoding", "{0}.{1}.linear.weight", "{0}.{1}.linear.bias", "{0}.{1}.weight", true},
    {"vLLM", "blocks.{0}.layers.{1}.weight", "blocks.{0}.layers.{1}.bias", "lm_heads.{0}.weight"},
    {"vLLM", "medusa_heads.blocks.{0}.layers.{1}.weight", "medusa_heads.blocks.{0}.layers.{1}.bias",
     "medusa_heads.lm_heads.{0}.weight"},
    {"vLLM", "medusa_heads.blocks.{0}.layers.{1}.weight", "medusa_heads.blocks.{0}.layers.{1}.bias",
     "lm_heads.{0}.weight"},
};
constexpr int kHeadsMax = 64, kBlocksMax = 16;

std::string name_of(std::string_view pattern, int head, int block) {
  return fmt::format(fmt::runtime(pattern), head, block);
}

// The layout of a file; of those that name blocks alike the one whose outputs it has.
const Layout* layout_of(const Checkpoint& file) {
  const Layout* found = nullptr;
  for (const Layout& layout : kLayouts) {
    if (!file.find(name_of(layout.block, 0, 0))) continue;
    if (!found || file.find(name_of(layout.output, 0, 1))) found = &layout;
  }
  return found;
}

class MedusaReader {
 public:
  MedusaReader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
               const Model& target)
      : file_(*checkpoint),
        layout_(*layout_of(file_)),
        target_(target),
        config_(config.is_null() ? nlohmann::json::object() : config, file_.metadata.origin()),
        tensors_(head_, file_, target, "a file of Medusa's heads") {
    head_.kind = "Medusa";
    head_.model.checkpoint = std::move(checkpoint);
    head_.made_for = read_made_for(config, origin());
  }

  Head read() {
    if (head_.made_for) check_shape(*head_.made_for, origin(), target_);
    read_spec();
    tensors_.begin();
    read_blocks();
    read_token_map();
    read_outputs();
    tensors_.set(Role::token_embedding, 0, tensors_.of_target(Role::token_embedding));
    tensors_.check_nothing_else();
    return std::move(head_);
  }

 private:
  const std::string& origin() const { return tensors_.origin(); }
  ModelSpec& spec() { return head_.model.spec; }
  const MedusaHeads& medusa() { return *spec().medusa; }
  bool has(std::string_view pattern, int head, int block) const {
    return tensors_.find(name_of(pattern, head, block)) != nullptr;
  }

  // Heads and blocks are counted: published configurations say 2 heads where files have 5.
  void read_spec() {
    MedusaHeads heads{.n_heads = 1, .n_blocks = 1};
    while (heads.n_heads < kHeadsMax && has(layout_.block, heads.n_heads, 0)) ++heads.n_heads;
    while (heads.n_blocks < kBlocksMax && has(layout_.block, 0, heads.n_blocks)) ++heads.n_blocks;
    heads.has_bias = has(layout_.bias, 0, 0);
    head_.producer = layout_.producer;
    if (layout_.output_follows_blocks && !has(layout_.output, 0, heads.n_blocks))
      head_.producer = "TGI";
    if (target_.spec.n_layers() >= kMaxLayers)
      throw Error("{}: {} has {} layers; beside Medusa's heads at most {} are supported", origin(),
                  target_.checkpoint->metadata.origin(), target_.spec.n_layers(), kMaxLayers - 1);
    spec() = {.family = "medusa",
              .vocabulary = target_.spec.vocabulary,
              .embedding = target_.spec.embedding,
              .context_trained = target_.spec.context_trained,
              .norm_eps = target_.spec.norm_eps,
              .logit_scale = static_cast<float>(
                  config_.number("logit_scale", 1e-6, 1e6).value_or(target_.spec.logit_scale)),
              .logit_softcap = target_.spec.logit_softcap,
              .layers = {},
              .eagle = {},
              .medusa = heads,
              .block = {}};
    if (const auto width = config_.integer("hidden_size", 1, 1 << 20);
        width && *width != spec().embedding)
      throw Error("{}: is for a target of width {}, but {} has {}", origin(), *width,
                  target_.checkpoint->metadata.origin(), spec().embedding);
    spec().layers.resize(static_cast<std::size_t>(heads.n_heads) *
                         static_cast<std::size_t>(heads.n_blocks));
  }

  void read_blocks() {
    const std::int64_t width = spec().embedding;
    for (int head = 0; head < medusa().n_heads; ++head)
      for (int block = 0; block < medusa().n_blocks; ++block) {
        const int layer = head * medusa().n_blocks + block;
        tensors_.take(Role::medusa_block, layer, name_of(layout_.block, head, block),
                      {width, width});
        if (medusa().has_bias)
          tensors_.take(Role::medusa_block_bias, layer, name_of(layout_.bias, head, block),
                        {width});
      }
  }

  // vLLM's: the target's tokens that have outputs.
  void read_token_map() {
    for (const char* name : {"token_map", "medusa_heads.token_map"}) {
      const TensorView* map = tensors_.find(name);
      if (!map) continue;
      if (map->type != TensorType::i64)
        throw Error("{}: tensor {} is {}, expected I64", origin(), name, traits(map->type).name);
      tensors_.ignore(name);
      std::vector<bool> is_named(static_cast<std::size_t>(spec().vocabulary));
      for (std::size_t at = 0; at < map->bytes.size(); at += sizeof(std::int64_t)) {
        std::int64_t token;
        std::memcpy(&token, &map->bytes[at], sizeof(token));
        if (token < 0 || token >= spec().vocabulary)
          throw Error("{}: {} names token {}, but the target's vocabulary has {}", origin(), name,
                      token, spec().vocabulary);
        if (is_named[static_cast<std::size_t>(token)])
          throw Error("{}: {} names token {} twice", origin(), name, token);
        is_named[static_cast<std::size_t>(token)] = true;
        token_map_.push_back(static_cast<Token>(token));
      }
    }
  }

  void read_outputs() {
    const std::int64_t width = spec().embedding;
    const int last = medusa().n_blocks;
    if (!has(layout_.output, 0, last)) {
      tensors_.set(Role::output, 0, tensors_.of_target(Role::output));
      return;
    }
    const std::string first = name_of(layout_.output, 0, last);
    const std::int64_t rows = tensors_.find(first)->rows();
    const auto n_mapped = std::ssize(token_map_);
    if (rows != spec().vocabulary && (token_map_.empty() || rows != n_mapped))
      throw Error(
          "{}: tensor {} has {} rows, but the target's vocabulary has {}{}: the head is for "
          "another model",
          origin(), first, rows, spec().vocabulary,
          token_map_.empty() ? "" : fmt::format(" and token_map {}", n_mapped));
    if (rows == n_mapped)
      head_.output_tokens = token_map_;
    else if (!token_map_.empty())
      head_.output_rows = token_map_, std::ranges::sort(head_.output_rows);
    tensors_.take(Role::output, 0, first, {width, rows});
    // A single one serves all heads.
    if (medusa().n_heads == 1 || !has(layout_.output, 1, last)) return;
    for (int head = 1; head < medusa().n_heads; ++head)
      tensors_.take(Role::medusa_output, head * medusa().n_blocks,
                    name_of(layout_.output, head, last), {width, rows});
  }

  Head head_;
  const Checkpoint& file_;
  const Layout& layout_;
  const Model& target_;
  const HeadConfig config_;
  HeadTensors tensors_;
  std::vector<Token> token_map_;
};

}  // namespace

bool is_medusa(const Checkpoint& checkpoint) {
  return layout_of(checkpoint) != nullptr;
}

Head interpret_medusa(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target) {
  return MedusaReader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider
