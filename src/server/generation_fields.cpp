#include "server/generation_fields.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "sampling/sampling.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

using Table = FieldTable<GenerationFields>;
using GenerationReader = FieldReader<GenerationFields>;

constexpr std::int64_t kSeedMax = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kSaltBytesMax = 1024;

// -1 asks for one to be drawn, as in llama.cpp.
GenerationReader seed_field() {
  return {integer_text(-1, kSeedMax), [](const FieldValue& value, GenerationFields& fields) {
            const std::int64_t seed = value.integer(-1, kSeedMax);
            if (seed >= 0) fields.seed = static_cast<std::uint64_t>(seed);
          }};
}

GenerationReader logit_bias_field(std::size_t entries_max) {
  return {fmt::format("an object of token ids and numbers from -100 to 100, at most {}, or a list "
                      "without entries",
                      entries_max),
          [=](const FieldValue& value, GenerationFields& fields) {
            const auto add = [&](const std::string& key, const FieldValue& bias) {
              const auto token = parse_number<Token>(key);
              // Not "+5", "05" or "-0": one id has one name, so that none is there twice.
              if (!token || *token < 0 || std::to_string(*token) != key)
                bias.refuse("expected the id of a token as its name, in plain digits");
              fields.logit_bias.push_back({*token, static_cast<float>(bias.number(-100, 100))});
            };
            // llama.cpp's clients send lists.
            const bool is_empty_list = value.json().is_array() && value.json().empty();
            if (!is_empty_list) value.each_member(add, entries_max);
          }};
}

GenerationReader salt_field() {
  return {fmt::format("a string of at most {} bytes", kSaltBytesMax),
          [](const FieldValue& value, GenerationFields& fields) {
            fields.cache_salt = value.text(kSaltBytesMax);
          }};
}

Table stream_options_fields() {
  Table table;
  table.obeyed("include_usage", boolean_field(&GenerationFields::include_usage),
               "a last chunk with the answer's usage");
  table.harmless("include_obfuscation");
  return table;
}

GenerationReader stream_options_field() {
  return {"an object with `include_usage`, a boolean",
          [table = stream_options_fields()](const FieldValue& value, GenerationFields& fields) {
            table.read(value, fields);
          }};
}

Table prediction_fields() {
  Table table;
  table.obeyed("content",
               {"a string, or a list of parts",
                [](const FieldValue& value, GenerationFields& fields) {
                  fields.prediction = text_of_parts(value);
                }},
               "required");
  table.refused("type", {R"("content")"});
  return table;
}

GenerationReader prediction_field() {
  return {R"(an object with `"type": "content"` and `content`, a text)",
          [table = prediction_fields()](const FieldValue& value, GenerationFields& fields) {
            value.at("content");
            table.read(value, fields);
          }};
}

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> result(1);
  for (const char c : text)
    if (c == separator)
      result.emplace_back();
    else
      result.back() += c;
  return result;
}

constexpr int kRowsMax = 64;

struct Speculation {
  std::string draft = "auto";
  std::optional<int> rows;
  std::string verify = {};
};

const std::vector<std::string>& verifier_names() {
  static const std::vector<std::string> names(std::begin(kVerifierNames), std::end(kVerifierNames));
  return names;
}

FieldTable<Speculation> speculation_fields() {
  constexpr std::size_t kDraftBytesMax = 256;
  FieldTable<Speculation> table;
  // Which names there are only the served model knows.
  table.obeyed("draft",
               {fmt::format("a string of at most {} bytes", kDraftBytesMax),
                [](const FieldValue& value, Speculation& fields) {
                  fields.draft = value.text(kDraftBytesMax);
                }},
               R"("auto", "off" or drafters of the server)");
  table.obeyed("rows", integer_field(&Speculation::rows, 0, kRowsMax),
               "the most that a step may draft, within the server's `--draft-rows`");
  table.obeyed("verify", word_field(&Speculation::verify, verifier_names()),
               "which drafted tokens become text; `typical` is lossy (default: as `--verify`)");
  return table;
}

GenerationReader speculation_field() {
  return {fmt::format(R"(an object with `draft`, "auto", "off" or drafters of the server such as )"
                      R"("lookup+model", `rows`, {}, and `verify`, {})",
                      integer_text(0, kRowsMax), words_text(verifier_names())),
          [table = speculation_fields()](const FieldValue& value, GenerationFields& fields) {
            Speculation speculation;
            table.read(value, speculation);
            fields.draft_rows = speculation.draft == "off" ? 0 : speculation.rows;
            if (speculation.draft != "off" && speculation.draft != "auto")
              fields.drafters = parts(speculation.draft, '+');
            fields.verifier = speculation.verify;
          }};
}

struct TextPart {
  std::string text;
};

FieldTable<TextPart> text_part_fields() {
  FieldTable<TextPart> table;
  table.obeyed("text", text_field(&TextPart::text), "required");
  table.obeyed("type", {R"("text")", [](const FieldValue&, TextPart&) {}}, "required");
  table.harmless("cache_control");
  table.harmless("prompt_cache_breakpoint");
  return table;
}

}  // namespace

GenerationReader stop_field(const GenerationLimits& limits) {
  return {fmt::format("a string of at most {} bytes, or a list of at most {}", limits.stop_bytes,
                      limits.stops),
          [limits](const FieldValue& value, GenerationFields& fields) {
            const auto add = [&](const FieldValue& one) {
              fields.stop.push_back(one.text(limits.stop_bytes));
              if (fields.stop.back().empty())
                one.refuse("is empty; expected at least one character");
            };
            value.json().is_string() ? add(value) : value.each_item(add, 0, limits.stops);
          }};
}

GenerationReader filter_field(std::optional<float> FilterSettings::*filter, double least,
                              double most) {
  return {number_text(least, most), [=](const FieldValue& value, GenerationFields& fields) {
            fields.filters.*filter = static_cast<float>(value.number(least, most));
          }};
}

GenerationReader temperature_field(double most) {
  GenerationReader reader = filter_field(&FilterSettings::temperature, 0, most);
  return {reader.takes, [read = reader.read](const FieldValue& value, GenerationFields& fields) {
            read(value, fields);
            // Not as a float, which would take a number near 0 for 0.
            const double temperature = value.json().get<double>();
            if (temperature > 0 && !(*fields.filters.temperature > 0 &&
                                     temperature_in_range(*fields.filters.temperature)))
              value.expected(fmt::format("0, or at least {}", kTemperatureMin));
          }};
}

GenerationReader top_k_field() {
  return {integer_text(-1, kIntMax), [](const FieldValue& value, GenerationFields& fields) {
            fields.filters.top_k = static_cast<int>(value.integer(-1, kIntMax));
          }};
}

GenerationReader token_limit_field(int least) {
  return {integer_text(least, kIntMax) + ", or -1: no limit",
          [=](const FieldValue& value, GenerationFields& fields) {
            const bool has_limit = value.json() != -1;
            fields.max_tokens = has_limit ? static_cast<int>(value.integer(least, kIntMax)) : -1;
          }};
}

std::vector<Token> read_tokens(const FieldValue& value, std::size_t most) {
  std::vector<Token> tokens;
  value.each_item(
      [&](const FieldValue& item) {
        tokens.push_back(static_cast<Token>(item.integer(0, kIntMax)));
      },
      0, most);
  return tokens;
}

std::string text_of_parts(const FieldValue& value) {
  static const FieldTable<TextPart> table = text_part_fields();
  if (value.json().is_string()) return value.text();
  if (!value.json().is_array()) value.expected("a string or a list of parts");
  std::string text;
  value.each_item([&](const FieldValue& item) {
    const FieldValue type = item.at("type");
    if (type.text() != "text") type.unsupported("only text is");
    item.at("text");
    TextPart part;
    table.read(item, part);
    text += part.text;
  });
  return text;
}

FieldTable<GenerationFields> served_fields() {
  Table table;
  table.obeyed("model", text_field(&GenerationFields::model),
               "another model than the served one is 404");
  table.obeyed("stream", boolean_field(&GenerationFields::stream), "server-sent events");
  table.obeyed("seed", seed_field(), "-1 or missing: drawn and reported");
  table.obeyed("speculation", speculation_field(), "whether and how much to draft");
  table.obeyed("priority", integer_field(&GenerationFields::priority, -kIntMax, kIntMax),
               "lower goes first; 0 if it is missing");
  table.obeyed("cache_salt", salt_field(), "shares cached prompts only with the same salt and key");
  return table;
}

FieldTable<GenerationFields> openai_fields(const GenerationLimits& limits) {
  Table table;
  table.add(served_fields());
  table.obeyed("stream_options", stream_options_field(), "only with `stream`");
  table.obeyed("n", integer_field(&GenerationFields::n, 1, limits.n), "answers to the same prompt");
  table.obeyed("stop", stop_field(limits),
               "ends the answer; not part of it; may be a special token, whose text is invisible");
  table.obeyed("temperature", temperature_field(2), "0: always the best token");
  table.obeyed("top_p", filter_field(&FilterSettings::top_p, 0, 1));
  table.obeyed("presence_penalty", filter_field(&FilterSettings::presence_penalty, -2, 2));
  table.obeyed("frequency_penalty", filter_field(&FilterSettings::frequency_penalty, -2, 2));
  table.obeyed("logit_bias", logit_bias_field(limits.logit_bias), "added to tokens' logits");
  table.obeyed("prediction", prediction_field(), "how the answer is expected to read mostly");
  // Others than OpenAI's.
  table.obeyed("top_k", top_k_field(), "0 or -1: all");
  table.obeyed("min_p", filter_field(&FilterSettings::min_p, 0, 1));
  table.obeyed("typical_p", filter_field(&FilterSettings::typical_p, 0, 1));
  const GenerationReader repeat =
      filter_field(&FilterSettings::repeat_penalty, kRepeatPenaltyMin, kFilterMax);
  table.obeyed("repeat_penalty", repeat, "llama-server's name");
  table.obeyed("repetition_penalty", repeat, "vLLM's name");
  table.obeyed("repeat_last_n", integer_field(&GenerationFields::repeat_last_n, -1, kIntMax),
               "tokens that penalties look at; -1: all");
  table.obeyed("ignore_eos", boolean_field(&GenerationFields::ignore_eos),
               "goes on where the model ends");
  return table;
}

std::vector<PartRows> generation_part_fields() {
  return {{"Parts of a text", text_part_fields().rows()},
          {"`stream_options`", stream_options_fields().rows()},
          {"`prediction`", prediction_fields().rows()},
          {"`speculation`", speculation_fields().rows()}};
}

void check_generation(const GenerationFields& fields) {
  if (fields.include_usage && !fields.stream)
    refuse_field("stream_options", "only with \"stream\": true");
}

}  // namespace outrider
