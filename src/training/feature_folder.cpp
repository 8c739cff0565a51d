#include "training/feature_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "base/new_file.h"
#include "formats/parse_json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "numerics/dequantize.h"
#include "text/vocabulary_fingerprint.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSecondsFile = "seconds.txt";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("{}: cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, std::string_view text) {
  NewFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.complete();
}

// The matrix's rows one after the other, as bf16.
TensorToWrite dequantized(std::string name, const TensorView& matrix) {
  return {std::move(name),
          TensorType::bf16,
          {matrix.rows(), matrix.columns()},
          [&matrix](const TensorToWrite::Append& append) {
            const auto columns = static_cast<std::size_t>(matrix.columns());
            const auto n_rows = static_cast<std::size_t>(matrix.rows());
            const std::size_t row_bytes = matrix.bytes.size() / n_rows;
            std::vector<float> values(columns);
            std::vector<std::uint16_t> rounded(columns);
            for (std::size_t row = 0; row < n_rows; ++row) {
              dequantize(matrix.type, matrix.bytes.subspan(row * row_bytes, row_bytes), values);
              std::ranges::transform(values, rounded.begin(), float_to_bf16);
              append(std::as_bytes(std::span(rounded)));
            }
          }};
}

nlohmann::json read_about(const fs::path& folder) {
  const fs::path path = folder / "features.json";
  return parse_json(read_file(path), path.string());
}

// The first key of `about` whose value is another one in `found`. A target's name does not matter.
std::optional<std::string> other_key(const nlohmann::json& about, const nlohmann::json& found) {
  const auto without_name = [](nlohmann::json value) {
    if (value.is_object()) value.erase("name");
    return value;
  };
  for (const auto& [key, value] : about.items())
    if (!found.contains(key) || without_name(found[key]) != without_name(value)) return key;
  return {};
}

// Of a process that was killed while it wrote.
void remove_partial_files(const fs::path& folder) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(".partial-") != std::string::npos)
      left.push_back(entry.path());
  std::error_code ignored;
  for (const fs::path& path : left) fs::remove(path, ignored);
}

bool has_output_of_its_own(const Model& model) {
  const TensorView* const output = model.weight(Role::output);
  return output && output != model.weight(Role::token_embedding);
}

}  // namespace

std::string_view name(PromptSource source) {
  switch (source) {
    case PromptSource::own: return "own";
    case PromptSource::built: return "built";
    case PromptSource::data: return "data";
  }
  CHECK(false);
}

std::vector<int> feature_taps(const ModelSpec& target) {
  const int n = target.n_layers();
  const auto layer = [&](int wanted) { return std::clamp(wanted, 0, n - 1); };
  return {layer(1), layer(n / 2 - 1), layer(n - 4)};
}

nlohmann::json describe_target(const OpenedModel& model, const Progress& progress) {
  const ModelSpec& spec = model.model.spec;
  const Checkpoint& checkpoint = *model.model.checkpoint;
  nlohmann::json json{{"name", model.name},
                      {"file", sha256_of_files(checkpoint.files, model.name, progress)},
                      {"vocabulary", hex_of(vocabulary_fingerprint(*model.tokenizer))},
                      {"family", spec.family},
                      {"layers", spec.n_layers()},
                      {"embedding", spec.embedding},
                      {"vocabulary_size", spec.vocabulary},
                      {"rms_epsilon", spec.norm_eps > 0 ? spec.norm_eps : 1e-5f},
                      {"context", spec.context_trained},
                      {"eos", model.tokenizer->end_tokens},
                      {"embedding_scale", spec.embedding_scale},
                      {"logit_scale", spec.logit_scale},
                      {"logit_softcap", spec.logit_softcap.value_or(0)}};
  json["bos"] = model.tokenizer->bos ? nlohmann::json(*model.tokenizer->bos) : nullptr;
  // Of the last layer that has each.
  for (const LayerSpec& layer : spec.layers) {
    for (const Operation& operation : layer.operations) {
      if (const auto* attention = std::get_if<Attention>(&operation.body)) {
        json["heads"] = attention->n_heads;
        json["kv_heads"] = attention->n_kv_heads;
        json["head_dim"] = attention->value_dim;
        double theta = 10000;
        if (attention->rope && attention->rope->frequencies.size() > 1)
          theta = std::pow(attention->rope->frequencies[1],
                           -static_cast<double>(attention->rope->frequencies.size()));
        json["rope_theta"] = theta;
      } else {
        json["feed_forward"] = std::get<Mlp>(operation.body).width;
      }
    }
  }
  return json;
}

void check_features_of(const nlohmann::json& target, const fs::path& folder) {
  if (!fs::exists(folder / "features.json"))
    throw Error("{}: holds no features; outrider features writes them", folder.string());
  if (other_key({{"model", target}}, read_about(folder)))
    throw Error("{}: holds features of another model file than that of {}", folder.string(),
                target["name"].get<std::string>());
}

std::uint64_t feature_bytes(const ModelSpec& target, std::uint64_t n_tokens) {
  const std::size_t n_states = feature_taps(target).size() + 1;
  return n_tokens * n_states * static_cast<std::uint64_t>(target.embedding) * 2;
}

std::uint64_t target_bytes(const Model& model) {
  const TensorView& embedding = *model.weight(Role::token_embedding);
  return static_cast<std::uint64_t>(embedding.elements()) * 2 *
         (has_output_of_its_own(model) ? 2 : 1);
}

std::vector<ShardPrompt> read_shard_prompts(const fs::path& folder) {
  std::vector<ShardPrompt> prompts;
  const fs::path path = folder / "prompts.jsonl";
  std::error_code problem;
  if (!fs::exists(path, problem)) return prompts;
  const std::string text = read_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string where = fmt::format("{}: line {}", path.string(), prompts.size() + 1);
    const nlohmann::json json = parse_json(text.substr(begin, end - begin), where);
    ShardPrompt prompt;
    try {
      json.at("number").get_to(prompt.number);
      json.at("shard").get_to(prompt.shard);
      json.at("prompt").get_to(prompt.text);
      const auto source = json.at("source").get<std::string>();
      for (const PromptSource each : {PromptSource::built, PromptSource::data})
        if (source == name(each)) prompt.source = each;
    } catch (const nlohmann::json::exception&) {
      throw Error("{}: expected number, shard, source and prompt", where);
    }
    const int n_shards = prompts.empty() ? 0 : prompts.back().shard + 1;
    const bool goes_on = prompt.number == std::ssize(prompts) && prompt.shard >= 0 &&
                         (prompt.shard == n_shards || prompt.shard + 1 == n_shards);
    if (!goes_on) throw Error("{}: prompts are not in order", where);
    prompts.push_back(std::move(prompt));
    begin = end + 1;
  }
  return prompts;
}

FeatureFolder::FeatureFolder(fs::path folder, const nlohmann::json& about, const Model& target)
    : folder_(std::move(folder)),
      embedding_(static_cast<std::size_t>(target.spec.embedding)),
      n_taps_(feature_taps(target.spec).size()) {
  std::error_code problem;
  fs::create_directories(folder_, problem);
  if (problem) throw Error("{}: cannot be created: {}", folder_.string(), problem.message());
  lock_ = PartialFile::try_lock(folder_ / "features");
  if (!lock_) throw Error("{}: another process is writing it", folder_.string());
  if (fs::exists(folder_ / "features.json", problem)) {
    if (const auto key = other_key(about, read_about(folder_)))
      throw Error("{}: holds features made with another \"{}\"; give another folder, or delete it",
                  folder_.string(), *key);
  } else {
    if (std::any_of(fs::directory_iterator(folder_), {}, [](const fs::directory_entry& entry) {
          const std::string name = entry.path().filename().string();
          return name != "features.partial" && !name.starts_with("features.json.partial-");
        }))
      throw Error("{}: holds other files; give a folder that is empty or does not exist",
                  folder_.string());
    write_file(folder_ / "features.json", about.dump(2) + "\n");
  }
  remove_partial_files(folder_);
  const fs::path matrices = folder_ / "target.safetensors";
  if (!fs::exists(matrices, problem)) {
    std::vector<TensorToWrite> tensors{
        dequantized("embedding", *target.weight(Role::token_embedding))};
    if (has_output_of_its_own(target))
      tensors.push_back(dequantized("output", *target.weight(Role::output)));
    write_safetensors(matrices, tensors, {{"format", fmt::format("{}", kFeatureFormat)}});
  }
  prompts_ = read_shard_prompts(folder_);
  std::ifstream(folder_ / kSecondsFile) >> seconds_;
}

void FeatureFolder::note_seconds(double seconds) {
  seconds_ = seconds;
  write_file(folder_ / kSecondsFile, fmt::format("{:.1f}\n", seconds));
}

void FeatureFolder::add_prompts(const std::vector<ShardPrompt>& prompts) {
  std::vector<ShardPrompt> all = prompts_;
  all.insert(all.end(), prompts.begin(), prompts.end());
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].number == static_cast<int>(i));
    const nlohmann::ordered_json line{{"number", all[i].number},
                                      {"shard", all[i].shard},
                                      {"source", name(all[i].source)},
                                      {"prompt", all[i].text}};
    text += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  write_file(folder_ / "prompts.jsonl", text);
  prompts_ = std::move(all);
}

fs::path FeatureFolder::shard_path(int shard) const {
  return folder_ / fmt::format("shard-{:05}.safetensors", shard);
}

bool FeatureFolder::has_shard(int shard) const {
  std::error_code problem;
  return fs::exists(shard_path(shard), problem);
}

std::uint64_t FeatureFolder::answer_tokens(int shard) const {
  const Checkpoint file = read_safetensors(shard_path(shard));
  const auto sum = [&](const char* name) {
    const TensorView* const tensor = file.find(name);
    if (!tensor || tensor->type != TensorType::i32)
      throw Error("{}: has no \"{}\"; delete it, and it is made again", file.path, name);
    std::uint64_t total = 0;
    for (std::size_t at = 0; at < tensor->bytes.size(); at += sizeof(std::int32_t)) {
      std::int32_t value;
      std::memcpy(&value, &tensor->bytes[at], sizeof value);
      total += static_cast<std::uint64_t>(value);
    }
    return total;
  };
  return sum("lengths") - sum("prompt_lengths");
}

void FeatureFolder::write_shard(int shard, std::vector<BatchAnswer> answers) {
  constexpr std::size_t kTokensMin = 3;  // the first that has a row
  std::erase_if(answers, [](const BatchAnswer& answer) {
    return answer.tokens.size() < kTokensMin ||
           answer.tokens.size() == static_cast<std::size_t>(answer.n_prompt);
  });
  std::ranges::sort(answers, {}, &BatchAnswer::number);
  std::vector<std::int32_t> tokens, lengths, prompt_lengths, prompts;
  std::vector<float> temperatures;
  std::size_t n_rows = 0;
  for (const BatchAnswer& answer : answers) {
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    lengths.push_back(static_cast<std::int32_t>(answer.tokens.size()));
    prompt_lengths.push_back(answer.n_prompt);
    prompts.push_back(answer.number);
    temperatures.push_back(answer.temperature);
    n_rows += answer.tokens.size() - 2;
  }
  // A row of an answer holds the taps and then the final state.
  const std::size_t width = (n_taps_ + 1) * embedding_;
  const auto columns = [&](std::string name, std::size_t first, std::size_t count) {
    return TensorToWrite{std::move(name),
                         TensorType::bf16,
                         {static_cast<std::int64_t>(n_rows), static_cast<std::int64_t>(count)},
                         [&answers, width, first, count](const TensorToWrite::Append& append) {
                           std::vector<std::uint16_t> part;
                           for (const BatchAnswer& answer : answers) {
                             part.clear();
                             for (std::size_t row = 0; row < answer.features.size(); row += width)
                               part.insert(part.end(), answer.features.begin() + row + first,
                                           answer.features.begin() + row + first + count);
                             append(std::as_bytes(std::span(part)));
                           }
                         }};
  };
  const auto vector = [&](std::string name, const auto& values, TensorType type) {
    return tensor_to_write(std::move(name), type, {std::ssize(values)},
                           std::span(std::as_const(values)));
  };
  const TensorToWrite tensors[] = {
      vector("tokens", tokens, TensorType::i32),
      vector("lengths", lengths, TensorType::i32),
      vector("prompt_lengths", prompt_lengths, TensorType::i32),
      vector("prompts", prompts, TensorType::i32),
      vector("temperatures", temperatures, TensorType::f32),
      columns("features", 0, n_taps_ * embedding_),
      columns("final", n_taps_ * embedding_, embedding_),
  };
  write_safetensors(shard_path(shard), tensors, {{"format", fmt::format("{}", kFeatureFormat)}});
}

}  // namespace outrider
