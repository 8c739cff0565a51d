// Byte-level BPE (Radford et al. 2019, GPT-2): tokenizer.ggml.model "gpt2".
//
// An entry's text writes each byte as a character of its own (printable Latin-1 as itself, the
// others from U+0100 on). Words (pre_tokenizer.h) are merged by the rank of the merge, then from
// left to right. Control and user_defined entries are plain text. Equal to the Python package
// `tokenizers`:
// - a byte that has no entry (SmolLM2 lacks eight that text can hold) is dropped before merging;
// - where the pre-tokenizer composes, text between special tokens is brought into normal form C, so
//   it comes back in that form;
// - where the pre-tokenizer ignores merges, a word that is an entry is that token.
// A merge whose parts or result are not in the vocabulary is an Error; one that involves an entry
// which is not normal is left out.

#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace outrider {

// pre: instead of the file's pre-tokenizer, unless it is empty.
std::unique_ptr<Tokenizer> make_byte_bpe(const ListedMetadata& file, std::string_view pre);

}  // namespace outrider
