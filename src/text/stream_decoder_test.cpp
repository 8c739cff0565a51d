#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace outrider {
namespace {

// Every token is a string of bytes, given one by one.
class Bytes final : public Tokenizer {
 public:
  Token add(std::string bytes) {
    entries_.push_back(std::move(bytes));
    return size() - 1;
  }
  using Tokenizer::encode;
  std::vector<Token> encode(std::span<const TextPiece>) const override { return {}; }
  std::string bytes(Token token, bool) const override { return entries_[token]; }
  int size() const override { return static_cast<int>(entries_.size()); }
  TokenKind kind(Token) const override { return TokenKind::normal; }
  std::string_view text(Token token) const override { return entries_[token]; }

 private:
  std::vector<std::string> entries_;
};

TEST(StreamDecoder, CharactersComeWhole) {
  Bytes tokens;
  StreamDecoder decoder(tokens);
  EXPECT_EQ(decoder.push(tokens.add("a\xF0\x9F")), "a");
  EXPECT_EQ(decoder.push(tokens.add("")), "");
  EXPECT_EQ(decoder.push(tokens.add("\x98")), "");
  EXPECT_EQ(decoder.push(tokens.add("\x80\xC3")), "😀");
  EXPECT_EQ(decoder.push(tokens.add("\xA9z")), "éz");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, BytesThatCanBecomeNoCharacterComeAtOnce) {
  Bytes tokens;
  StreamDecoder decoder(tokens);
  EXPECT_EQ(decoder.push(tokens.add("\x80")), "\uFFFD");
  EXPECT_EQ(decoder.push(tokens.add("\xE2\x82")), "");
  EXPECT_EQ(decoder.push(tokens.add("x")), "\uFFFDx");
  EXPECT_EQ(decoder.push(tokens.add("\xF0\x9F\x98")), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(tokens.add("\x98")), "\uFFFD");  // nothing is left of the former text
}

// Shows a control token's text only where that is asked for.
TEST(StreamDecoder, ShowsTheControlTokensThatItIsTold) {
  class Hiding final : public Tokenizer {
   public:
    std::vector<Token> encode(std::span<const TextPiece>) const override { return {}; }
    std::string bytes(Token token, bool show_special) const override {
      return show_special || token == 0 ? std::string(text(token)) : "";
    }
    int size() const override { return 4; }
    TokenKind kind(Token token) const override {
      return token == 0 ? TokenKind::normal : TokenKind::control;
    }
    std::string_view text(Token token) const override {
      return std::array{"a\xC3", "<|call|>", "<|pad|>", "<|end|>"}[token];
    }
  };
  const Hiding tokens;
  const auto shown = [&](StreamDecoder decoder) {
    std::string out;
    for (const Token token : {0, 1, 2, 3, 0}) out += decoder.push(token);
    return out + decoder.finish();
  };
  EXPECT_EQ(shown(StreamDecoder(tokens)), "a\uFFFDa\uFFFD");
  EXPECT_EQ(shown(StreamDecoder(tokens, {1, 3})), "a\uFFFD<|call|><|end|>a\uFFFD");
}

TEST(StreamDecoder, SplittingDoesNotMatter) {
  const unsigned seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return random() % n; };
  const std::string atoms[] = {"a",    "é",    "€",    "😀",        "\xE2\x82", "\xF0\x9F\x98",
                               "\xF0", "\x80", "\xC2", "\xED\xA0", "\xFF",     "\xF4\x90"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned n = below(8); n > 0; --n) text += atoms[below(std::size(atoms))];
    Bytes tokens;
    StreamDecoder decoder(tokens);
    std::string shown;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t n = std::min<std::size_t>(below(5), text.size() - i);
      const std::string now = decoder.push(tokens.add(text.substr(i, n)));
      ASSERT_EQ(now, well_formed(now));  // whole characters each time
      shown += now;
      i += n;
      const std::size_t n_waiting = unfinished_suffix(std::string_view(text).substr(0, i));
      ASSERT_EQ(shown, well_formed(text.substr(0, i - n_waiting)));  // and as early as can be
    }
    shown += decoder.finish();
    ASSERT_EQ(shown, well_formed(text));
  }
}

}  // namespace
}  // namespace outrider
