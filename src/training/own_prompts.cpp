#include "training/own_prompts.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/utf8.h"
#include "training/batch_answers.h"
#include "training/seeded_random.h"

namespace outrider {
namespace {

constexpr int kTokensMin = 8, kTokensMax = 400;
constexpr std::size_t kBeginning = 16;            // tokens
constexpr int kCandidateRounds = 6;               // of as many candidates as prompts are missing
constexpr std::size_t kCandidatesPerPrompt = 10;  // at most; then the time is lost
constexpr float kTopP = 0.99f;

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

}  // namespace

UserTurn user_turn(const Tokenizer& tokenizer, const ChatTemplate& chat_template) {
  const Message message{.role = "user", .content = "text"};
  const std::vector<TextPiece> pieces = chat_template.render({&message, 1}, true);
  const auto text = std::ranges::find(pieces, false, &TextPiece::parse_special);
  UserTurn turn{.before = tokenizer.encode_whole(std::span(pieces.begin(), text)), .end = {}};
  if (pieces.end() - text < 2) return turn;
  for (const Token token : tokenizer.encode(std::next(text)->text, /*parse_special=*/true)) {
    const std::string bytes = tokenizer.bytes(token, /*show_special=*/true);
    const TokenKind kind = tokenizer.kind(token);
    const bool is_text = kind == TokenKind::normal || kind == TokenKind::byte ||
                         trimmed(bytes).empty();  // such as Gemma's runs of line ends
    if (is_text || trimmed(turn.end).empty()) turn.end += bytes;
    if (!is_text) break;
  }
  turn.end = trimmed(turn.end);
  turn.end = trimmed(turn.end.substr(0, turn.end.find('\n')));
  return turn;
}

OwnPrompts::OwnPrompts(Engine& engine, const Tokenizer& tokenizer,
                       const ChatTemplate& chat_template, std::uint64_t seed, int n_parallel)
    : engine_(engine),
      tokenizer_(tokenizer),
      seed_(seed),
      n_parallel_(n_parallel),
      turn_(user_turn(tokenizer, chat_template)) {}

std::vector<Token> OwnPrompts::beginning_of(const std::string& prompt) const {
  std::vector<Token> tokens = tokenizer_.encode(prompt);
  if (tokens.size() > kBeginning) tokens.resize(kBeginning);
  return tokens;
}

void OwnPrompts::note(const std::string& prompt) {
  beginnings_.insert(beginning_of(prompt));
}

std::vector<std::string> OwnPrompts::make(int n, int first,
                                          const std::function<bool(const std::string&)>& accepts,
                                          const std::function<void(int n_tokens)>& stepped) {
  std::vector<std::string> made;
  if (turn_.before.empty()) return made;
  BatchOptions options{.n_parallel = n_parallel_};
  if (!turn_.end.empty()) options.stop_texts = {turn_.end};
  std::uint64_t candidate = 0;
  for (int round = 0; round < kCandidateRounds && std::ssize(made) < n; ++round) {
    if (kCandidatesPerPrompt * made.size() < candidate) break;
    std::vector<PromptToAnswer> begun;
    for (int i = static_cast<int>(made.size()); i < n; ++i) {
      SamplingParams sampling{.filters = {.top_k = 0, .top_p = kTopP, .min_p = 0, .temperature = 1},
                              .bias = {}};
      sampling.seed = seed_of(seed_, static_cast<std::uint64_t>(first), candidate++);
      begun.push_back({.number = i,
                       .tokens = turn_.before,
                       .sampling = std::move(sampling),
                       .n_predict = kTokensMax + 1});
    }
    std::vector<BatchAnswer> texts;
    answer_batch(
        engine_, tokenizer_, begun, options,
        [&](BatchAnswer answer) { texts.push_back(std::move(answer)); }, stepped);
    std::ranges::sort(texts, {}, &BatchAnswer::number);
    for (const BatchAnswer& text : texts) {
      if (!text.has_ended) continue;
      const auto tokens = std::span(text.tokens).subspan(static_cast<std::size_t>(text.n_prompt));
      std::string said = tokenizer_.decode(tokens);
      if (!turn_.end.empty()) said = said.substr(0, said.find(turn_.end));
      const std::string prompt = trimmed(said);
      const std::vector<Token> beginning = beginning_of(prompt);
      if (std::ssize(beginning) < kTokensMin || !is_well_formed(prompt) || !accepts(prompt))
        continue;
      if (beginnings_.insert(beginning).second) made.push_back(prompt);
    }
  }
  return made;
}

}  // namespace outrider
