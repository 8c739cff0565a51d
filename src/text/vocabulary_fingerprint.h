// Tells vocabularies apart.

#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "text/tokenizer.h"

namespace outrider {

// Of the ids' texts and kinds in their order, SHA-256: what makes tokens of one vocabulary mean the
// same. How texts are split into tokens is not part of it. 1 to 10 ms for 150,000 tokens.
using VocabularyFingerprint = std::array<std::byte, 32>;
VocabularyFingerprint vocabulary_fingerprint(const Tokenizer& tokenizer);

// 64 lower-case digits, as features.json and a head's config.json have it.
std::string hex_of(const VocabularyFingerprint& fingerprint);

}  // namespace outrider
