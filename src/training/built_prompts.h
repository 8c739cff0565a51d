// Prompts that a draft head is trained with when nobody gives any: built from Python's library and
// documentation on this machine, and from phrases of our own. What a head is measured with is much
// like it: code, chat, questions, arithmetic, summaries and translation.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "training/prompt_grammar.h"
#include "training/seeded_random.h"
#include "training/source_texts.h"

namespace outrider {

enum class PromptKind { code, question, chat, summary, math, translation };
inline constexpr std::size_t kPromptKinds = 6;
std::string_view prompt_kind_name(PromptKind kind);

struct BuiltPrompt {
  PromptKind kind;
  std::string text;  // UTF-8; at most about 2500 bytes
};

// What prompts are built from, for the caller to say. A kind whose source is missing is left out,
// but for translation, which then has sentences of the phrases alone.
struct PromptMaterial {
  std::size_t n_functions = 0, n_python_files = 0;  // code
  std::size_t n_paragraphs = 0, n_documents = 0;
  std::size_t n_passages = 0;    // of 60 to 300 words: summary
  std::size_t n_questioned = 0;  // of 30 to 200 words: question
  std::size_t n_sentences = 0;   // one or two: translation
};

// One sequence of prompts, a function of the texts and the seed. The kinds take turns; a kind that
// has run out is left out. Each function and passage is asked for up to three times, each time in
// other words, when all others have been; a sentence about twice.
class BuiltPrompts {
 public:
  BuiltPrompts(SourceTexts texts, std::uint64_t seed);

  const PromptMaterial& material() const { return material_; }

  // An earlier process took this prompt. To be called before next(), which then goes on where that
  // process ended: if the texts are the same, with the prompts that it would have gone on with.
  void note(const std::string& text) { noted_.insert(text); }

  using Accepts = std::function<bool(const std::string& text)>;
  // The next one that `accepts` takes, which no earlier one equals; nothing if the next thousand
  // turns bring none. Chat, arithmetic and translations of our own phrases go on after the texts,
  // for more than 100 000 prompts.
  std::optional<BuiltPrompt> next(const Accepts& accepts = [](const std::string&) { return true; });

 private:
  struct Passage {
    std::string heading, text;
  };

  // What the next turn gives, in words that no earlier prompt has; nothing if its kind has run out.
  std::optional<BuiltPrompt> take_turn();
  // turn: of the kind.
  std::optional<std::string> build(PromptKind kind, std::size_t turn, SeededRandom& random) const;

  std::vector<PythonFunction> functions_;
  std::vector<Passage> passages_, questioned_;
  std::vector<std::string> sentences_;
  PromptMaterial material_;
  const std::uint64_t seed_;
  std::array<std::vector<std::size_t>, kPromptKinds> orders_;  // of each kind's material
  std::size_t n_turns_ = 0;                                    // of all kinds
  std::unordered_set<std::string> given_, noted_;
};

}  // namespace outrider
