// Any bytes are a datastore or an Error, and whatever they hold, what is found lies inside.

#include "base/error.h"
#include "speculation/datastore.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace outrider;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const Datastore datastore(bytes, "fuzz", VocabularyFingerprint{}, 100);
    const std::vector<std::vector<Token>> wanted{{0}, {1, 2}, {65535, 3}, {Datastore::kEnd, 0}};
    for (const std::vector<Token>& tokens : wanted) {
      const Datastore::Range range = datastore.find(tokens);
      CHECK(range.first <= range.end && range.end <= datastore.n_tokens());
      for (std::uint64_t rank = range.first; rank < std::min(range.end, range.first + 16); ++rank) {
        CHECK(datastore.place(rank) < datastore.n_tokens());
        const Token next = datastore.token(datastore.place(rank) + tokens.size());
        CHECK(next == Datastore::kEnd || (next >= 0 && next < 100));
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
