// Writes the tokens of texts: the other side of scripts/agreement_tokens.py.
//
// usage: outrider-dump-tokens MODEL.gguf [special] < texts > tokens
// texts: one after another, each after its length in bytes as decimal text and a line end.
// tokens: a line per text, ids as decimal text, without BOS. Control tokens are parsed only with
// `special`.

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

using namespace outrider;

int main(int argc, char** argv) {
  try {
    const bool special = argc == 3 && std::string_view(argv[2]) == "special";
    if (argc != 2 && !special)
      throw Error("usage: outrider-dump-tokens MODEL.gguf [special] < texts > tokens");
    const Checkpoint checkpoint = read_gguf(argv[1]);
    const auto tokenizer = make_tokenizer(checkpoint.metadata);
    for (std::size_t n_bytes; std::cin >> n_bytes && std::cin.get() == '\n';) {
      std::string text(n_bytes, '\0');
      std::cin.read(text.data(), static_cast<std::streamsize>(n_bytes));
      std::string line;
      for (const Token token : tokenizer->encode(text, special))
        line += std::to_string(token) + " ";
      std::cout << line << "\n";
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-dump-tokens: %s\n", error.what());
    return 1;
  }
}
