#include "text/vocabulary_fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace outrider {
namespace {

class ListedVocabulary final : public Tokenizer {
 public:
  using Entries = std::vector<std::pair<std::string, TokenKind>>;
  explicit ListedVocabulary(Entries entries) : entries_(std::move(entries)) {}
  std::vector<Token> encode(std::span<const TextPiece>) const override { return {}; }
  std::string bytes(Token token, bool) const override { return entries_[token].first; }
  int size() const override { return static_cast<int>(entries_.size()); }
  TokenKind kind(Token token) const override { return entries_[token].second; }
  std::string_view text(Token token) const override { return entries_[token].first; }

 private:
  Entries entries_;
};

std::string fingerprint_of(ListedVocabulary::Entries entries) {
  return hex_of(vocabulary_fingerprint(ListedVocabulary(std::move(entries))));
}

constexpr TokenKind kNormal = TokenKind::normal, kControl = TokenKind::control;

TEST(VocabularyFingerprint, OfTextsKindsAndOrder) {
  std::set<std::string> found;
  for (const ListedVocabulary::Entries& entries : {ListedVocabulary::Entries{},
                                                   {{"a", kNormal}, {"b", kNormal}},
                                                   {{"b", kNormal}, {"a", kNormal}},
                                                   {{"a", kNormal}, {"b", kControl}},
                                                   {{"ab", kNormal}, {"", kNormal}},
                                                   {{"a", kNormal}, {"b", kNormal}, {"", kNormal}}})
    EXPECT_TRUE(found.insert(fingerprint_of(entries)).second);
}

// Heads and datastores keep it: it must not change. What is hashed of an entry is its kind's number
// and its text's length in 64 bits, little-endian, and its text.
TEST(VocabularyFingerprint, Stays) {
  EXPECT_EQ(fingerprint_of({{"a", kNormal}, {"<s>", kControl}}),
            "5d58d7fe0c23cd06d7b2eb7b86bc9c2785a31204243d9741b9d8b69ff94dca70");
}

}  // namespace
}  // namespace outrider
