#include "model/unsupported.h"

#include <algorithm>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/listed_metadata.h"
#include "model/gguf_head.h"

namespace outrider {
namespace {

// GGUF's names of architectures, by what this version lacks.
constexpr std::string_view kRecurrent[] = {
    "mamba",          "mamba2",    "rwkv6",     "rwkv6qwen2", "rwkv7",      "arwkv7",
    "jamba",          "falcon-h1", "qwen3next", "plamo2",     "nemotron_h", "granitehybrid",
    "nemotron_h_moe", "lfm2",      "lfm2moe",   "qwen35",     "kimi-linear"};
constexpr std::string_view kEncoders[] = {
    "bert",         "modern-bert", "nomic-bert", "nomic-bert-moe",  "neo-bert",   "jina-bert-v2",
    "jina-bert-v3", "eurobert",    "t5encoder",  "gemma-embedding", "llama-embed"};
constexpr std::string_view kExperts[] = {
    "qwen2moe",    "qwen3moe",   "qwen3vlmoe",   "qwen35moe",   "deepseek",   "deepseek2",
    "llama4",      "dbrx",       "granitemoe",   "olmoe",       "phimoe",     "gpt-oss",
    "grok",        "arctic",     "glm4moe",      "dots1",       "cohere2moe", "bailingmoe",
    "bailingmoe2", "afmoe",      "ernie4_5-moe", "hunyuan-moe", "exaone-moe", "smallthinker",
    "grovemoe",    "minimax-m2", "mimo2"};
constexpr std::string_view kDiffusion[] = {"dream", "llada", "llada-moe"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::string_view kind_of_architecture(std::string_view architecture) {
  if (contains(kRecurrent, architecture)) return "recurrent layers";
  if (contains(kEncoders, architecture)) return "an encoder for embeddings";
  if (contains(kExperts, architecture)) return "a mixture of experts";
  if (contains(kDiffusion, architecture)) return "diffusion of text";
  if (architecture == "t5") return "an encoder and a decoder";
  return {};
}

void check_kind(const Metadata& metadata) {
  const std::string& origin = metadata.origin();
  const std::string type = metadata.string("general.type").value_or("model");
  const std::string architecture = metadata.string("general.architecture").value_or("");
  if (type == "adapter" || metadata.find("adapter.type") != nullptr) {
    throw Error(
        "{}: is an adapter (LoRA), not a model; merge it into its model with llama.cpp's "
        "llama-export-lora and use that",
        origin);
  }
  if (type == "mmproj" || architecture == "clip") {
    throw Error(
        "{}: is the part of a model that sees images or hears sound (mmproj), which are not "
        "supported; use the model of text that it comes with",
        origin);
  }
  if (architecture == kEagle3Architecture || architecture == kBlockArchitecture) {
    throw Error(
        "{}: is a draft head ({}), no model; give the model that it was trained for, and the "
        "head as its draft model (-md)",
        origin, architecture == kEagle3Architecture ? "EAGLE-3" : "DFlash");
  }
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  const std::int64_t n_experts = metadata.integer(key("expert_count")).value_or(0);
  if (n_experts != 0) {
    throw Error(
        "{}: is a mixture of {} experts ({}), which this version does not support; choose a dense "
        "model",
        origin, n_experts, printable(key("expert_count")));
  }
  if (metadata.integer(key("pooling_type")).value_or(0) != 0) {
    throw Error("{}: is a model of embeddings ({}), not of text; choose a model that generates",
                origin, printable(key("pooling_type")));
  }
  if (!metadata.boolean(key("attention.causal")).value_or(true)) {
    throw Error(
        "{}: its tokens also attend to later ones ({} is false), so it does not generate text; "
        "choose another model",
        origin, printable(key("attention.causal")));
  }
  for (const char* name :
       {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    const MetadataValue* value = metadata.find(key(name));
    const auto* by_layer = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
    if (by_layer && !same_for_all_layers(*value)) {
      throw Error(
          "{}: key {} holds {} numbers, one per layer, expected one for all; layers of several "
          "sizes are not supported in this version, choose another model",
          origin, printable(key(name)), by_layer->size());
    }
  }
}

}  // namespace outrider
