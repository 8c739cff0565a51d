// Writes the tokens of texts: the other side of scripts/agreement_tokens.py.
//
// usage: outrider-dump-tokens MODEL.gguf < texts > tokens
// texts: one after another, each after its length in bytes as decimal text and a line end.
// tokens: a line per text, ids as decimal text, special tokens not parsed, without BOS.

#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

using namespace outrider;

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw Error("usage: outrider-dump-tokens MODEL.gguf < texts > tokens");
    const Checkpoint checkpoint = read_gguf(argv[1]);
    const auto tokenizer = make_tokenizer(checkpoint.metadata);
    for (std::size_t n_bytes; std::cin >> n_bytes && std::cin.get() == '\n';) {
      std::string text(n_bytes, '\0');
      std::cin.read(text.data(), static_cast<std::streamsize>(n_bytes));
      std::string line;
      for (const Token token : tokenizer->encode(text)) line += std::to_string(token) + " ";
      std::cout << line << "\n";
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-dump-tokens: %s\n", error.what());
    return 1;
  }
}
