#include "speculation/draft_vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/error.h"

namespace outrider {

std::vector<Token> frequent_tokens(const Tokenizer& tokenizer, std::span<const Token> corpus,
                                   int size) {
  CHECK(size > 0);
  struct Rank {
    bool is_text;
    long rarity;  // less is more frequent
    auto operator<=>(const Rank&) const = default;
  };
  std::vector<Rank> ranks(tokenizer.size());
  for (Token id = 0; id < tokenizer.size(); ++id)
    ranks[id].is_text = tokenizer.kind(id) != TokenKind::control;
  for (const Token token : corpus) --ranks[token].rarity;

  std::vector<Token> ids(ranks.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, {}, [&](Token id) { return ranks[id]; });
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(size)));
  std::ranges::sort(ids);
  return ids;
}

}  // namespace outrider
