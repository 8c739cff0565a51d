#include "training/own_prompts.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "training/batch_answers.h"

namespace outrider {
namespace {

constexpr int kTokensMin = 8, kTokensMax = 400;
constexpr std::size_t kBeginning = 16;  // tokens
constexpr int kCandidateRounds = 6;     // of as many candidates as prompts are missing
constexpr float kTopP = 0.99f;

// What the template writes before the text of a conversation's only message.
std::vector<Token> tokens_before_user(const Tokenizer& tokenizer,
                                      const ChatTemplate& chat_template) {
  const Message message{.role = "user", .content = "text"};
  std::vector<TextPiece> pieces = chat_template.render({&message, 1}, true);
  const auto is_users = [](const TextPiece& piece) { return !piece.parse_special; };
  pieces.erase(std::ranges::find_if(pieces, is_users), pieces.end());
  return tokenizer.encode_whole(pieces);
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

}  // namespace

// SplitMix64 (Steele, Lea, Flood 2014) over the three.
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t use, std::uint64_t number) {
  std::uint64_t state = seed;
  for (const std::uint64_t part : {use, number}) {
    state += 0x9e3779b97f4a7c15 + part;
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    state = (state ^ state >> 27) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

OwnPrompts::OwnPrompts(Engine& engine, const Tokenizer& tokenizer,
                       const ChatTemplate& chat_template, std::uint64_t seed, int n_parallel)
    : engine_(engine),
      tokenizer_(tokenizer),
      seed_(seed),
      n_parallel_(n_parallel),
      before_user_(tokens_before_user(tokenizer, chat_template)) {}

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
  if (before_user_.empty()) return made;
  std::uint64_t candidate = 0;
  for (int round = 0; round < kCandidateRounds && std::ssize(made) < n; ++round) {
    std::vector<PromptToAnswer> begun;
    for (int i = static_cast<int>(made.size()); i < n; ++i) {
      SamplingParams sampling{.filters = {.top_k = 0, .top_p = kTopP, .min_p = 0, .temperature = 1},
                              .bias = {}};
      sampling.seed = seed_of(seed_, static_cast<std::uint64_t>(first), candidate++);
      begun.push_back({.number = i,
                       .tokens = before_user_,
                       .sampling = std::move(sampling),
                       .n_predict = kTokensMax + 1});
    }
    std::vector<BatchAnswer> texts;
    answer_batch(
        engine_, tokenizer_, begun, {.n_parallel = n_parallel_},
        [&](BatchAnswer answer) { texts.push_back(std::move(answer)); }, stepped);
    std::ranges::sort(texts, {}, &BatchAnswer::number);
    for (const BatchAnswer& text : texts) {
      const auto tokens = std::span(text.tokens).subspan(static_cast<std::size_t>(text.n_prompt));
      if (!text.has_ended || std::ssize(tokens) - 1 < kTokensMin) continue;
      const std::string prompt = trimmed(tokenizer_.decode(tokens));
      if (prompt.empty() || !is_well_formed(prompt) || !accepts(prompt)) continue;
      if (beginnings_.insert(beginning_of(prompt)).second) made.push_back(prompt);
    }
  }
  return made;
}

}  // namespace outrider
