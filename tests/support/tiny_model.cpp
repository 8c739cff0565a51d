#include "support/tiny_model.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "numerics/half.h"
#include "numerics/halves_test.h"

namespace outrider::testing {
namespace {

constexpr int kHeads = 4, kKvHeads = 2;

// What a block's halves must be for weights of variance 1 around 0 when all other bytes are random.
struct Scales {
  double d, m = 0;
};

Scales scales(TensorType type) {
  switch (type) {
    case TensorType::q4_0: return {1 / 4.6};
    case TensorType::q4_1: return {1 / 4.6, -7.5 / 4.6};
    case TensorType::q5_0: return {1 / 9.2};
    case TensorType::q5_1: return {1 / 9.2, -15.5 / 9.2};
    case TensorType::q8_0: return {1 / 74.0};
    case TensorType::q2_k: return {1 / 13.9, 1.5 / 13.9};
    case TensorType::q3_k: return {1 / (18.5 * 2.3)};
    case TensorType::q4_k: return {1 / (36 * 7.5), 7.5 / (36 * 7.5)};
    case TensorType::q5_k: return {1 / (36 * 15.0), 15.5 / (36 * 15.0)};
    case TensorType::q6_k: return {1 / (74 * 18.5)};
    case TensorType::iq4_nl: return {1 / 69.0};
    case TensorType::iq4_xs: return {1 / (69 * 18.5)};
    case TensorType::iq1_m: return {1 / 8.0};
    case TensorType::iq2_s: return {1 / 58.0};
    case TensorType::iq3_xxs: return {1 / 174.0};
    case TensorType::tq1_0: return {1 / 0.8};
    case TensorType::q1_0: return {1};
    default: CHECK(!"a type whose spread is known");
  }
  return {};
}

class Weights {
 public:
  Weights(std::uint64_t seed, double perturbation)
      : random_(seed), noise_(seed + 1), perturbation_(perturbation) {}

  std::vector<std::byte> matrix(TensorType type, std::int64_t columns, std::int64_t rows,
                                double deviation) {
    const TensorTypeTraits& of = traits(type);
    const std::size_t n_blocks = static_cast<std::size_t>(columns * rows) / of.block_elements;
    std::vector<std::byte> bytes(n_blocks * of.block_bytes);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < n_blocks; ++i) {
      std::byte* block = &bytes[i * of.block_bytes];
      const double changed = deviation * (1 + perturbation_ * normal(noise_));
      if (of.block_elements == 1) {
        const float value = static_cast<float>(normal(random_) * changed);
        const std::uint16_t half = float_to_half(value);
        const std::uint16_t bfloat =
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        if (type == TensorType::f32) std::memcpy(block, &value, 4);
        if (type == TensorType::f16) std::memcpy(block, &half, 2);
        if (type == TensorType::bf16) std::memcpy(block, &bfloat, 2);
        continue;
      }
      for (std::size_t at = 0; at < of.block_bytes; ++at)
        block[at] = static_cast<std::byte>(random_());
      const Scales scale = scales(type);
      set_halves(type, float_to_half(static_cast<float>(scale.d * changed)),
                 float_to_half(static_cast<float>(scale.m * changed)), block);
    }
    return bytes;
  }

  std::vector<std::byte> vector(std::int64_t size, double mean, double deviation) {
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    std::vector<float> values(size);
    for (float& value : values) value = normal(random_);
    std::vector<std::byte> bytes(size * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

 private:
  std::mt19937_64 random_, noise_;
  double perturbation_;
};

// GPT-2's way of showing a byte as a printable character: itself, or U+0100 + its rank among the
// others.
std::string byte_character(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::vector<std::byte> tiny_gguf(const TinyOptions& options) {
  const int embedding = options.embedding, width = 2 * embedding;
  const int usual_dim = embedding >= 256 ? embedding / kHeads : 32;
  const int key_dim = options.key_dim.value_or(usual_dim);
  const int value_dim = options.value_dim.value_or(usual_dim);
  const double deviation = 1 / std::sqrt(embedding);
  GgufWriter file;
  const std::string& family = options.family;
  const auto key = [&](const char* name) { return family + "." + name; };
  file.add("general.architecture", family);
  file.add("general.name", std::string("tiny"));
  file.add(key("block_count"), static_cast<std::uint32_t>(options.n_layers));
  file.add(key("context_length"), std::uint32_t{4096});
  file.add(key("embedding_length"), static_cast<std::uint32_t>(embedding));
  file.add(key("feed_forward_length"), static_cast<std::uint32_t>(width));
  file.add(key("attention.head_count"), std::uint32_t{kHeads});
  file.add(key("attention.head_count_kv"), std::uint32_t{kKvHeads});
  file.add(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  // For Gemma 3's layers of global attention; those with a window have 10000.
  file.add(key("rope.freq_base"), family == "gemma3" ? 1e6f : 10000.0f);
  file.add(key("attention.key_length"), static_cast<std::uint32_t>(key_dim));
  file.add(key("attention.value_length"), static_cast<std::uint32_t>(value_dim));
  if (family == "gemma3") file.add(key("attention.sliding_window"), std::uint32_t{24});

  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  for (int id = 0; id < options.vocabulary; ++id) {
    tokens.push_back(id < 256 ? byte_character(id) : "<|" + std::to_string(id) + "|>");
    kinds.push_back(id < 256 ? 1 : 3);
  }
  file.add("tokenizer.ggml.model", std::string("gpt2"));
  file.add("tokenizer.ggml.pre", std::string("qwen2"));
  file.add("tokenizer.ggml.tokens", tokens);
  file.add("tokenizer.ggml.token_type", kinds);
  file.add("tokenizer.ggml.merges", std::vector<std::string>());
  file.add("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(options.vocabulary - 1));
  file.add("tokenizer.ggml.add_bos_token", false);

  Weights weights(options.seed, options.perturbation);
  std::size_t turn = 0;
  const auto matrix = [&](const std::string& name, std::int64_t columns, std::int64_t rows,
                          double spread) {
    const TensorType type = options.types[turn++ % options.types.size()];
    const std::int64_t shape[] = {columns, rows};
    file.add_tensor(name, type, shape, weights.matrix(type, columns, rows, spread));
  };
  const auto vector = [&](const std::string& name, std::int64_t size, double mean, double spread) {
    const std::int64_t shape[] = {size};
    file.add_tensor(name, TensorType::f32, shape, weights.vector(size, mean, spread));
  };
  matrix("token_embd.weight", embedding, options.vocabulary, deviation);
  // Logits of standard deviation 8 or so: one is clearly best, with a second often near.
  vector("output_norm.weight", embedding, 8, 0.5);
  if (!options.tied_output) matrix("output.weight", embedding, options.vocabulary, deviation);
  for (int layer = 0; layer < options.n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    vector(block + "attn_norm.weight", embedding, 1, 0.1);
    matrix(block + "attn_q.weight", embedding, kHeads * key_dim, 1.5 * deviation);
    matrix(block + "attn_k.weight", embedding, kKvHeads * key_dim, 1.5 * deviation);
    matrix(block + "attn_v.weight", embedding, kKvHeads * value_dim, deviation);
    matrix(block + "attn_output.weight", kHeads * value_dim, embedding, deviation);
    if (family == "qwen2") {
      vector(block + "attn_q.bias", kHeads * key_dim, 0, 0.3);
      vector(block + "attn_k.bias", kKvHeads * key_dim, 0, 0.3);
      vector(block + "attn_v.bias", kKvHeads * value_dim, 0, 0.3);
    }
    if (family == "gemma3") {
      vector(block + "attn_q_norm.weight", key_dim, 1, 0.1);
      vector(block + "attn_k_norm.weight", key_dim, 1, 0.1);
      vector(block + "post_attention_norm.weight", embedding, 1, 0.1);
      vector(block + "post_ffw_norm.weight", embedding, 1, 0.1);
    }
    vector(block + "ffn_norm.weight", embedding, 1, 0.1);
    matrix(block + "ffn_gate.weight", embedding, width, deviation);
    matrix(block + "ffn_up.weight", embedding, width, deviation);
    matrix(block + "ffn_down.weight", width, embedding, 0.8 * deviation);
  }
  return file.bytes();
}

namespace {

// The checkpoint points into the bytes: one owner for both.
struct FileInMemory {
  std::vector<std::byte> bytes;
  Checkpoint checkpoint;
};

Model understand_bytes(std::vector<std::byte> bytes, const std::string& origin) {
  auto owner = std::make_shared<FileInMemory>();
  owner->bytes = std::move(bytes);
  owner->checkpoint = read_gguf(owner->bytes, origin);
  return interpret_checkpoint(std::shared_ptr<const Checkpoint>(owner, &owner->checkpoint));
}

}  // namespace

Model tiny_model(const TinyOptions& options) {
  return understand_bytes(tiny_gguf(options), "tiny.gguf");
}

Model perturbed_copy(const std::filesystem::path& path, double relative) {
  const Checkpoint original = read_gguf(path);
  const std::span<const std::byte> file = original.files.front().bytes();
  std::vector<std::byte> bytes(file.begin(), file.end());
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const TensorView& tensor : original.tensors) {
    const TensorTypeTraits& of = traits(tensor.type);
    if (of.block_elements == 1) continue;
    std::byte* const first = bytes.data() + (tensor.bytes.data() - file.data());
    for (std::size_t at = half_places(tensor.type).d; at < tensor.bytes.size();
         at += of.block_bytes) {
      std::uint16_t d;
      std::memcpy(&d, first + at, 2);
      d = float_to_half(static_cast<float>(half_to_float(d) * (1 + relative * normal(random))));
      std::memcpy(first + at, &d, 2);
    }
  }
  return understand_bytes(std::move(bytes), "perturbed copy");
}

std::optional<std::filesystem::path> cached_model(const std::string& file) {
  const char* cache = std::getenv("OUTRIDER_CACHE");
  if (cache == nullptr) return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(cache) / "models" / file;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

}  // namespace outrider::testing
