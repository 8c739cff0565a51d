#include "training/built_prompts.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace outrider {
namespace {

constexpr std::size_t kRounds = 3;  // how often one text is asked for
constexpr int kTries = 40;          // for words that have not been given yet
constexpr int kFailuresMax = 1000;  // turns in a row that bring nothing
constexpr std::uint64_t kTurnSeeds = ~std::uint64_t{1};
constexpr std::size_t kPassageBytesMax = 2200;

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

// Whether one can ask "What does the text say about ...?"
bool is_term(std::string_view heading) {
  static constexpr std::string_view kNoTerms[] = {
      "Introduction", "Overview", "Description", "Scope",    "Background", "Examples", "Example",
      "Notes",        "Summary",  "Usage",       "Synopsis", "General",    "Details",  "Note"};
  if (heading.size() < 5 || n_words(heading) > 7) return false;
  for (const char c : heading) {
    if (!is_word_letter(c) && c != ' ' && !(c >= '0' && c <= '9')) return false;
  }
  return std::find(std::begin(kNoTerms), std::end(kNoTerms), heading) == std::end(kNoTerms);
}

// The longest of the words that the text has most often, at least twice; empty if there is none.
std::string frequent_term(std::string_view text) {
  std::map<std::string, int> counts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word_letter(text[end])) ++end;
    const bool is_part = (at > 0 && text[at - 1] != ' ') ||
                         (end < text.size() &&
                          std::string_view(" .,;:?!").find(text[end]) == std::string_view::npos);
    if (end - at >= 6 && !is_part && text[at] != '-')
      ++counts[std::string(text.substr(at, end - at))];
    at = end + 1;
  }
  static const std::unordered_set<std::string> kNoTerms = {
      "should",      "because",  "without",  "through",   "between",   "another",       "before",
      "different",   "usually",  "possible", "following", "available", "however",       "example",
      "always",      "already",  "either",   "whether",   "specified", "provided",      "present",
      "according",   "needed",   "certain",  "contains",  "require",   "required",      "cannot",
      "itself",      "within",   "instead",  "during",    "several",   "particular",    "described",
      "similar",     "please",   "second",   "number",    "including", "corresponding", "necessary",
      "appropriate", "existing", "current",  "currently", "allows",    "called",        "return",
      "returns",     "useful",   "normally", "simply",    "really",    "likely",        "created",
      "useful",      "though",   "although", "around",    "against",   "allowed",       "common",
      "single",      "various"};
  std::string term;
  int most = 1;
  for (const auto& [word, n] : counts) {
    if (kNoTerms.contains(word)) continue;
    if (n > most || (n == most && n > 1 && word.size() > term.size())) {
      term = word;
      most = n;
    }
  }
  return term;
}

// Whether a sentence reads well alone and can be translated.
bool is_translatable(std::string_view sentence) {
  const std::size_t n = n_words(sentence);
  return n >= 6 && n <= 40 && sentence.find_first_of("`[]{}<>_/\\|=*") == sentence.npos &&
         std::count(sentence.begin(), sentence.end(), '(') ==
             std::count(sentence.begin(), sentence.end(), ')') &&
         std::count(sentence.begin(), sentence.end(), '"') % 2 == 0 && sentence[0] >= 'A' &&
         sentence[0] <= 'Z' && sentence.size() < 300;
}

std::string code_prompt(const PythonFunction& function, SeededRandom& random) {
  const std::size_t opens = function.signature.find('(');
  const std::string_view parameters =
      std::string_view(function.signature).substr(std::min(opens, function.signature.size()));
  const bool is_method = parameters.starts_with("(self") || parameters.starts_with("(cls");
  const bool has_quotes =
      function.docstring.find("\"\"\"") != std::string::npos || function.docstring.ends_with('"');
  const std::string quotes = has_quotes ? "'''" : "\"\"\"";
  const bool is_long = function.docstring.find('\n') != std::string::npos;
  const std::string code = function.signature + "\n    " + quotes + function.docstring +
                           (is_long ? "\n    " : "") + quotes;
  const std::string fenced = "```python\n" + code + "\n```";
  const SlotValue values[] = {{"what", is_method ? "method" : "function"},
                              {"code", code},
                              {"fenced", fenced},
                              {"doc", function.docstring},
                              {"function", function.name}};
  return phrase_of("code", random, values);
}

std::string question_prompt(const std::string& heading, const std::string& text,
                            SeededRandom& random) {
  const bool asks = heading.ends_with('?');
  std::string term;
  if (!asks && random.below(4) != 0) {
    term = is_term(heading) && random.below(3) != 0 ? heading : frequent_term(text);
  }
  const SlotValue values[] = {{"text", text}, {"heading", heading}, {"term", term}};
  return phrase_of(asks ? "ask heading" : term.empty() ? "ask" : "ask about", random, values);
}

}  // namespace

std::string_view prompt_kind_name(PromptKind kind) {
  switch (kind) {
    case PromptKind::code: return "code";
    case PromptKind::question: return "question";
    case PromptKind::chat: return "chat";
    case PromptKind::summary: return "summary";
    case PromptKind::math: return "math";
    case PromptKind::translation: return "translation";
  }
  CHECK(false);
}

BuiltPrompts::BuiltPrompts(SourceTexts texts, std::uint64_t seed)
    : functions_(std::move(texts.functions)), seed_(seed) {
  SeededRandom random(seed);
  // Neighbouring paragraphs are joined until a passage is as long as chance wants it.
  const auto joined = [&](int words_min, int words_want_max, std::size_t words_max) {
    std::vector<Passage> passages;
    const std::vector<Paragraph>& all = texts.paragraphs;
    for (std::size_t at = 0; at < all.size();) {
      const auto want = static_cast<std::size_t>(random.between(words_min, words_want_max));
      Passage passage = {all[at].heading, all[at].text};
      std::size_t n = n_words(passage.text);
      for (++at; at < all.size() && all[at].follows && n < want; ++at) {
        n += n_words(all[at].text);
        passage.text += "\n\n" + all[at].text;
      }
      if (n >= static_cast<std::size_t>(words_min) && n <= words_max &&
          passage.text.size() <= kPassageBytesMax) {
        passages.push_back(std::move(passage));
      }
    }
    return passages;
  };
  passages_ = joined(60, 240, 300);
  questioned_ = joined(30, 140, 200);
  for (const Paragraph& paragraph : texts.paragraphs) {
    const std::vector<std::string> all = sentences(paragraph.text);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_translatable(all[i])) continue;
      std::string text = all[i];
      if (i + 1 < all.size() && is_translatable(all[i + 1]) && random.below(2) == 0) {
        text += " " + all[++i];
      }
      if (n_words(text) <= 55) sentences_.push_back(std::move(text));
    }
  }
  material_ = {functions_.size(), texts.n_python_files, texts.paragraphs.size(), texts.n_documents,
               passages_.size(),  questioned_.size(),   sentences_.size()};

  const auto arrange = [&](PromptKind kind, std::size_t n) {
    std::vector<std::size_t>& order = orders_[static_cast<std::size_t>(kind)];
    order.resize(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    random.shuffle(order);
  };
  arrange(PromptKind::code, functions_.size());
  arrange(PromptKind::question, questioned_.size());
  arrange(PromptKind::summary, passages_.size());
  arrange(PromptKind::translation, sentences_.size());
}

std::optional<std::string> BuiltPrompts::build(PromptKind kind, std::size_t turn,
                                               SeededRandom& random) const {
  if (kind == PromptKind::chat) return phrase_of("chat", random);
  if (kind == PromptKind::math) return phrase_of("math", random);
  const std::vector<std::size_t>& order = orders_[static_cast<std::size_t>(kind)];
  // A third of the translations is into English or between others: texts of our own.
  const bool has_texts = turn < kRounds * order.size();
  if (kind == PromptKind::translation && (!has_texts || random.below(3) == 0)) {
    return phrase_of("translate back", random);
  }
  if (!has_texts) return {};
  const std::size_t at = order[turn % order.size()];
  if (kind == PromptKind::code) return code_prompt(functions_[at], random);
  if (kind == PromptKind::question)
    return question_prompt(questioned_[at].heading, questioned_[at].text, random);
  const bool is_summary = kind == PromptKind::summary;
  const SlotValue values[] = {{"text", is_summary ? passages_[at].text : sentences_[at]}};
  return phrase_of(is_summary ? "summarize" : "translate", random, values);
}

std::optional<BuiltPrompt> BuiltPrompts::take_turn() {
  const std::size_t turn = n_turns_++;
  const auto kind = static_cast<PromptKind>(turn % kPromptKinds);
  // Numbers of its own: a turn does not depend on what the turns before it were built from.
  SeededRandom random(seed_of(seed_, kTurnSeeds, turn));
  for (int tries = 0; tries < kTries; ++tries) {
    std::optional<std::string> text = build(kind, turn / kPromptKinds, random);
    if (!text) break;
    if (given_.insert(*text).second) return BuiltPrompt{kind, std::move(*text)};
  }
  return {};
}

std::optional<BuiltPrompt> BuiltPrompts::next(const Accepts& accepts) {
  for (int n_failures = 0; n_failures < kFailuresMax; ++n_failures) {
    std::optional<BuiltPrompt> prompt = take_turn();
    if (!prompt) continue;
    if (noted_.erase(prompt->text) > 0)
      n_failures = -1;  // the process that took it counted anew after it
    else if (accepts(prompt->text))
      return prompt;
  }
  return {};
}

}  // namespace outrider
