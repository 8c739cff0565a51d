// Every key on a family's list does what the list says of it: another value of a used one changes
// logits or is refused, and without it its default holds; harmless ones change nothing; unknown
// ones are named. On small models of every family (scripts/golden/families.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "cpu/backend.h"
#include "model/family.h"
#include "model/family_keys.h"
#include "support/golden_families.h"
#include "text/tokenizer_keys.h"

namespace outrider {
namespace {

using testing::golden_families;
using testing::golden_model;

using Changes = std::map<std::string, std::optional<MetadataValue>>;  // nothing: without the key

// The same file with other metadata.
std::shared_ptr<const Checkpoint> checkpoint_with(const Model& model, const Changes& changes) {
  const Checkpoint& old = *model.checkpoint;
  struct Owner {
    std::shared_ptr<const Checkpoint> mapped;
    Checkpoint checkpoint;
  };
  auto owner = std::make_shared<Owner>();
  owner->mapped = model.checkpoint;
  owner->checkpoint.path = old.path;
  owner->checkpoint.tensors = old.tensors;
  owner->checkpoint.tensor_index = old.tensor_index;
  Metadata metadata(old.metadata.origin());
  for (const auto& [key, value] : old.metadata.entries())
    if (!changes.contains(key)) metadata.insert(key, value);
  for (const auto& [key, value] : changes)
    if (value) metadata.insert(key, *value);
  owner->checkpoint.metadata = std::move(metadata);
  return {owner, &owner->checkpoint};
}

// Throws Error as interpreting the file would.
Model with(const Model& model, const Changes& changes) {
  return interpret_checkpoint(checkpoint_with(model, changes));
}

std::vector<float> logits(const Model& model) {
  constexpr int kLength = 60;
  const std::unique_ptr<Backend> backend =
      load_cpu(model, {.context = kLength, .batch_rows = kLength, .cache_type = CacheType::f32},
               available_isas().back());
  const OwnedSequence sequence(*backend);
  std::vector<Row> rows;
  std::vector<ChoiceRequest> requests;
  for (int position = 0; position < kLength; ++position) {
    rows.push_back({.sequence = sequence.id(),
                    .token = static_cast<Token>(position * 7 % model.spec.vocabulary),
                    .position = position,
                    .wants_logits = true});
    if (position > 0) rows.back().parent = EarlierRow{position - 1};
    requests.push_back({.row = position, .filters = {.temperature = 0}, .wants_logits = true});
  }
  const Pass pass = backend->forward(rows);
  std::vector<float> all;
  for (const Choice& choice : backend->choose(pass, requests))
    all.insert(all.end(), choice.logits.begin(), choice.logits.end());
  return all;
}

double number_of(const MetadataValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  return std::get<double>(value);
}

bool is_integer(std::string_view name) {
  for (const char* end : {"_count", "_length", "_layers", "count_kv", "window", "_swa", "pattern",
                          "type", "sections", "mapping"})
    if (name.ends_with(end) && name != "rope.freq_base_swa" && name != "rope.scaling.type")
      return true;
  return false;
}

MetadataValue value_of(std::string_view name, double number) {
  if (name == "rope.scaling.finetuned" || name == "attention.causal") return number != 0;
  if (is_integer(name)) return static_cast<std::int64_t>(number);
  return number;
}

// Settings in which some keys matter that matter in no other.
std::vector<Changes> settings_of(const std::string& family) {
  const auto key = [&](const char* name) { return fmt::format("{}.{}", family, name); };
  const Changes yarn = {{key("rope.scaling.type"), std::string("yarn")},
                        {key("rope.scaling.factor"), 4.0},
                        {key("rope.scaling.original_context_length"), std::int64_t{240}}};
  const Changes grows = {{key("attention.temperature_scale"), 0.5}};
  const Changes unscaled = {{key("rope.scaling.type"), std::nullopt},
                            {key("rope.scaling.factor"), std::nullopt}};
  return {{}, yarn, grows, unscaled};
}

// What is to be tried instead of a value.
std::vector<MetadataValue> others(std::string_view name, const std::optional<MetadataValue>& now) {
  if (name == "rope.scaling.type") return {std::string("none"), std::string("yarn")};
  if (name == "hidden_activation") return {std::string("relu")};
  if (name == "attention.sliding_window") return {std::int64_t{7}};
  if (name == "attention.sliding_window_pattern") return {std::int64_t{1}, std::int64_t{3}};
  const double number = now ? number_of(*now) : 1;
  if (now && std::holds_alternative<bool>(*now)) return {number == 0};
  return {value_of(name, 2 * number), value_of(name, number + 2), value_of(name, number / 2),
          value_of(name, number / 20)};
}

class MetadataKeys : public ::testing::TestWithParam<std::string> {
 protected:
  const Model model_ = golden_model(GetParam());
  const std::string family_ = model_.spec.family;

  std::string key(std::string_view name) const { return fmt::format("{}.{}", family_, name); }
  std::optional<MetadataValue> value(const std::string& key, const Changes& changes) const {
    if (const auto changed = changes.find(key); changed != changes.end()) return changed->second;
    const MetadataValue* found = model_.checkpoint->metadata.find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  static Changes merged(Changes a, const Changes& b) {
    for (const auto& [key, value] : b) a[key] = value;
    return a;
  }
  std::optional<ModelSpec> spec(const Changes& changes) const {
    try {
      return with(model_, changes).spec;
    } catch (const Error& error) {
      problem_ = error.what();
      return std::nullopt;
    }
  }

  mutable std::string problem_;
};

// A default as a value; nothing for those that are required or computed.
std::optional<MetadataValue> default_value(const MetadataKey& row, const auto& value_of_key) {
  if (const auto* number = std::get_if<double>(&row.otherwise)) return value_of(row.name, *number);
  if (const auto* text = std::get_if<std::string_view>(&row.otherwise)) return std::string(*text);
  if (const auto* published = std::get_if<Published>(&row.otherwise))
    return value_of(row.name, published->elsewhere);
  if (const auto* same = std::get_if<SameAs>(&row.otherwise)) return value_of_key(same->name);
  return std::nullopt;
}

TEST_P(MetadataKeys, WithoutAKeyItsDefaultHolds) {
  for (const Changes& setting : settings_of(family_)) {
    for (const TakenKey& taken : taken_keys(model_)) {
      if (taken.row.use != KeyUse::computes && taken.row.use != KeyUse::limits) continue;
      SCOPED_TRACE(taken.name);
      const Changes without = merged(setting, {{taken.name, std::nullopt}});
      const std::optional<ModelSpec> found = spec(without);
      if (std::holds_alternative<Required>(taken.row.otherwise)) {
        EXPECT_FALSE(found);
        EXPECT_NE(problem_.find(taken.name + " is missing"), problem_.npos) << problem_;
        continue;
      }
      const auto value_of_key = [&](std::string_view name) -> std::optional<MetadataValue> {
        std::optional<MetadataValue> other = value(key(name), without);
        if (!other && name == "rope.scale_linear") other = 1.0;
        return other;
      };
      if (const auto otherwise = default_value(taken.row, value_of_key)) {
        const std::optional<ModelSpec> with_default =
            spec(merged(without, {{taken.name, *otherwise}}));
        ASSERT_EQ(found.has_value(), with_default.has_value()) << problem_;
        EXPECT_TRUE(found == with_default);
      }
    }
  }
}

TEST_P(MetadataKeys, HarmlessOnesChangeNothingAndOthersAreRefusedOrNamed) {
  for (const TakenKey& taken : taken_keys(model_)) {
    SCOPED_TRACE(taken.name);
    if (taken.row.use == KeyUse::harmless) {
      const std::string name = taken.name + (taken.name.ends_with('.') ? "anything" : "");
      for (const MetadataValue& any :
           {MetadataValue(std::int64_t{7}), MetadataValue(0.5), MetadataValue(std::string("x"))}) {
        const Model changed = with(model_, {{name, any}});
        EXPECT_TRUE(changed.spec == model_.spec);
        EXPECT_TRUE(changed.warnings.empty());
      }
    }
    if (taken.row.use != KeyUse::unsupported) continue;
    const auto* neutral = std::get_if<double>(&taken.row.otherwise);
    const double other = neutral && *neutral == 1 ? 0 : 3;
    EXPECT_FALSE(spec({{taken.name, value_of(taken.row.name, other)}}));
    EXPECT_NE(problem_.find(taken.name), problem_.npos) << problem_;
    if (neutral) {
      EXPECT_TRUE(spec({{taken.name, value_of(taken.row.name, *neutral)}}) == model_.spec);
    }
  }
  const Model changed = with(model_, {{key("attention.no_such_key"), std::int64_t{1}}});
  ASSERT_EQ(changed.warnings.size(), 1u);
  EXPECT_NE(changed.warnings[0].find(key("attention.no_such_key")), std::string::npos);
  EXPECT_TRUE(model_.warnings.empty()) << model_.warnings[0];
}

INSTANTIATE_TEST_SUITE_P(, MetadataKeys, ::testing::ValuesIn(golden_families()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Another value of each used key changes the logits of one of the family's models, or is refused.
TEST(MetadataKeysOfAFamily, OtherValuesChangeLogitsOrAreRefused) {
  std::set<std::string> all, matter;
  for (const std::string& name : golden_families()) {
    const Model model = golden_model(name);
    for (const Changes& setting : settings_of(model.spec.family)) {
      std::optional<Model> base;
      std::vector<float> before;
      try {
        base = with(model, setting);
      } catch (const Error&) {
        continue;
      }
      for (const TakenKey& taken : taken_keys(*base)) {
        if (taken.row.use != KeyUse::computes) continue;
        all.insert(taken.name);
        if (matter.contains(taken.name)) continue;
        std::optional<MetadataValue> now;
        if (const auto* found = base->checkpoint->metadata.find(taken.name)) now = *found;
        if (!now)
          now = default_value(taken.row, [&](std::string_view) { return MetadataValue(1.0); });
        for (const MetadataValue& other : others(taken.row.name, now)) {
          Changes changes = setting;
          changes[taken.name] = other;
          try {
            const Model changed = with(model, changes);
            if (before.empty()) before = logits(*base);
            if (logits(changed) == before) continue;
          } catch (const Error&) {
          }
          matter.insert(taken.name);
        }
      }
    }
  }
  std::vector<std::string> idle;
  std::set_difference(all.begin(), all.end(), matter.begin(), matter.end(),
                      std::back_inserter(idle));
  EXPECT_TRUE(idle.empty()) << fmt::format("{}", fmt::join(idle, "\n"));
  EXPECT_GE(all.size(), 300u);
}

// Numbers that publishers' configurations have and their files lack.
TEST(MetadataKeysOfAFamily, HaveTheirPublishersNumbers) {
  const auto window = [](const Model& model, const Changes& changes) {
    return attention_of(with(model, changes).spec.layers[0])->window;
  };
  const auto whole = [](std::int64_t number) { return MetadataValue(number); };
  const Model phi3 = golden_model("phi3"), llama = golden_model("llama"),
              gemma2 = golden_model("gemma2"), starcoder2 = golden_model("starcoder2");
  const Changes lacks = {{"phi3.attention.sliding_window", std::nullopt}};
  Changes of_4k = lacks, written = {{"phi3.context_length", whole(4096)},
                                    {"phi3.attention.sliding_window", whole(0)}};
  of_4k["phi3.context_length"] = whole(4096);
  EXPECT_EQ(window(phi3, lacks), std::nullopt);
  EXPECT_EQ(window(phi3, of_4k), 2047);
  EXPECT_EQ(window(phi3, written), std::nullopt);
  EXPECT_EQ(window(starcoder2, {}), 4096);
  EXPECT_EQ(window(llama, {}), std::nullopt);

  Changes mistral = {{"llama.context_length", whole(32768)},
                     {"llama.feed_forward_length", whole(14336)},
                     {"llama.rope.freq_base", std::nullopt}};
  const auto window_of_llama = [&] {
    const auto checkpoint = checkpoint_with(llama, mistral);
    const auto family = std::ranges::find(families(), "llama", &Family::architecture);
    return sliding_window(FamilyFile(*checkpoint, "llama", family->own_keys));
  };
  EXPECT_EQ(window_of_llama(), 4096);
  mistral["llama.rope.freq_base"] = 1e6;  // 0.2 and later
  EXPECT_EQ(window_of_llama(), std::nullopt);

  const ModelSpec gemma = with(gemma2, {{"gemma2.attention.sliding_window", std::nullopt},
                                        {"gemma2.attn_logit_softcapping", std::nullopt},
                                        {"gemma2.final_logit_softcapping", std::nullopt}})
                              .spec;
  EXPECT_EQ(attention_of(gemma.layers[0])->window, 4096);
  EXPECT_EQ(attention_of(gemma.layers[0])->softcap, 50);
  EXPECT_EQ(gemma.logit_softcap, 30);
}

// Old files name a linear factor by another key, and some name no kind of scaling.
TEST(MetadataKeysOfAFamily, LinearScalingNeedsNoType) {
  const Model llama = golden_model("llama");
  const auto frequency = [&](const Changes& changes) {
    return attention_of(with(llama, changes).spec.layers[0])->rope->frequencies[0];
  };
  const double plain = frequency({});
  EXPECT_EQ(frequency({{"llama.rope.scale_linear", 4.0}}), plain / 4);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 4.0}}), plain / 4);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 2.0}, {"llama.rope.scale_linear", 4.0}}),
            plain / 2);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 0.0}}), plain);
  EXPECT_EQ(frequency({{"llama.rope.scaling.factor", 4.0},
                       {"llama.rope.scaling.type", std::string("none")}}),
            plain);
}

// What has to be as another key may be written though that one is not.
TEST(MetadataKeysOfAFamily, MayRepeatWhatHolds) {
  const Model llama = golden_model("llama");
  const Attention& attention = *attention_of(llama.spec.layers[0]);
  const Changes repeated = {
      {"llama.attention.key_length", std::nullopt},
      {"llama.attention.key_length_swa", std::int64_t{attention.key_dim}},
      {"llama.attention.value_length_swa", std::int64_t{attention.value_dim}},
      {"llama.rope.dimension_count_swa", std::int64_t{attention.rope->dims()}}};
  EXPECT_TRUE(with(llama, repeated).spec == llama.spec);
}

// An array of equal numbers, one for each layer, is as good as one number.
TEST(MetadataKeysOfAFamily, MayBeWrittenByLayer) {
  const Model llama = golden_model("llama");
  const auto n_layers = static_cast<std::size_t>(llama.spec.n_layers());
  for (const char* name :
       {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    const std::string key = fmt::format("llama.{}", name);
    const std::int64_t number = *llama.checkpoint->metadata.integer(key);
    const MetadataValue by_layer = std::vector<std::int64_t>(n_layers, number);
    EXPECT_TRUE(with(llama, {{key, by_layer}}).spec == llama.spec);
    // A context for which another key's default asks for this one.
    const Changes longer = {{"llama.context_length", std::int64_t{32768}}};
    Changes longer_by_layer = longer;
    longer_by_layer[key] = by_layer;
    EXPECT_TRUE(with(llama, longer_by_layer).spec == with(llama, longer).spec);
    EXPECT_THROW(with(llama, {{key, std::vector<std::int64_t>{number, 1}}}), Error);
  }
}

// docs/metadata.md has the lists.
std::string cells(const MetadataKey& key) {
  const std::string name =
      key.name.ends_with('.') ? fmt::format("{}*", key.name) : std::string(key.name);
  switch (key.use) {
    case KeyUse::computes:
      return fmt::format("| `{}` | used | {} |\n", name, text_of(key.otherwise));
    case KeyUse::limits:
      return fmt::format("| `{}` | used, for lengths | {} |\n", name, text_of(key.otherwise));
    case KeyUse::unsupported:
      return fmt::format("| `{}` | other values are refused | {} |\n", name,
                         text_of(key.otherwise));
    case KeyUse::harmless: return fmt::format("| `{}` | not used: {} | |\n", name, key.why);
  }
  return {};
}
std::string table(std::span<const MetadataKey> keys) {
  std::string text = "| key | | without it |\n|---|---|---|\n";
  for (const MetadataKey& key : keys) text += cells(key);
  return text;
}

TEST(MetadataDocument, HasEveryList) {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/docs/metadata.md");
  std::stringstream document;
  document << file.rdbuf() << "\n";
  std::vector<std::pair<std::string, std::string>> tables = {
      {"All families", table(common_keys())},
      {"Byte-level BPE (`gpt2`)", table(byte_bpe_keys())},
      {"SentencePiece (`llama`)", table(sentencepiece_keys())},
  };
  for (const Family& family : families())
    if (!family.own_keys.empty())
      tables.emplace_back(fmt::format("`{}`", family.architecture), table(family.own_keys));
  for (const auto& [title, rows] : tables) {
    const std::string expected = fmt::format("### {}\n\n{}\n", title, rows);
    EXPECT_NE(document.str().find(expected), std::string::npos) << "docs/metadata.md lacks:\n"
                                                                << expected;
  }
}

}  // namespace
}  // namespace outrider
