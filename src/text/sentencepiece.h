// SentencePiece's BPE (Kudo and Richardson 2018, arXiv:1808.06226): tokenizer.ggml.model "llama".
//
// A space is written U+2581, so U+2581 in a text is read as a space. user_defined entries are found
// first and never merge with their neighbours. The text between them is merged, pairs of neighbours
// whose joined text is a normal entry: the highest score first, then, as in the merges that Hugging
// Face derives from such a vocabulary, the longest left part, the longest right part, the lowest
// id, and the leftmost place. A character that is no normal entry becomes its byte tokens, or, if
// some of them are missing, the unknown token, one for several such characters in a row. Where the
// metadata's add_space_prefix is true or absent, a text that does not begin with a special token
// gets a space in front.

#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace outrider {

// It has no pre-tokenizer: one that is named gives a warning.
std::unique_ptr<Tokenizer> make_sentencepiece(const ListedMetadata& file, std::string_view pre);

}  // namespace outrider
