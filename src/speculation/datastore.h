// Tokens of documents with a suffix array (Manber & Myers 1993), in a file that is mapped: where
// any string of tokens occurs is found in some 60 comparisons. REST drafts from it
// (drafters/rest.h).
//
// The file, numbers little-endian:
//   8 bytes   "outrRest"
//   u32       version, 1
//   u32       width: bytes of a token, 2 to 4
//   u64       tokens, n
//   32 bytes  the vocabulary's fingerprint
//   n width   tokens, big-endian, so that comparing bytes compares tokens; kEnd after each document
//   n u32     the suffix array: places in the order of what follows them
// A damaged suffix array or damaged tokens can only make wrong drafts: every place and
// token is checked.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/progress.h"
#include "base/token.h"
#include "text/tokenizer.h"
#include "text/vocabulary_fingerprint.h"

namespace outrider {

class Datastore {
 public:
  static constexpr Token kEnd = -1;  // of a document; not drafted
  static constexpr std::uint64_t kBytesMax = (std::uint64_t{1} << 31) - 1;  // of tokens

  // Throws Error, naming the file, if it is none, is cut off, or is of another vocabulary.
  // n_vocabulary: tokens that may be drafted; others are as kEnd.
  Datastore(const std::filesystem::path& file, const VocabularyFingerprint& vocabulary,
            int n_vocabulary);
  // The same of a file's bytes, which must outlive it.
  Datastore(std::span<const std::byte> bytes, std::string_view name,
            const VocabularyFingerprint& vocabulary, int n_vocabulary);

  std::uint64_t n_tokens() const { return n_; }

  // Ranks, in the suffix array, of the places where `tokens` occurs.
  struct Range {
    std::uint64_t first = 0, end = 0;
    std::uint64_t size() const { return end - first; }
  };
  Range find(std::span<const Token> tokens) const;
  std::uint64_t place(std::uint64_t rank) const;  // below n_tokens()
  Token token(std::uint64_t place) const;         // kEnd also beyond the last

 private:
  MappedFile file_;
  std::size_t width_ = 0;
  std::uint64_t n_ = 0;
  std::uint32_t n_vocabulary_ = 0;
  std::span<const std::byte> tokens_, ranks_;
};

// Collects documents and writes the file.
class DatastoreBuilder {
 public:
  explicit DatastoreBuilder(const Tokenizer& tokenizer);

  // Throws Error if the file would hold more than kBytesMax.
  void add(std::span<const Token> document);
  std::uint64_t n_tokens() const { return bytes_.size() / width_; }

  // Sorts, which takes memory of 4 bytes for each byte of tokens, and writes; the builder is spent.
  // `interrupted` is asked meanwhile. The file appears whole or not at all. Throws Error if it
  // cannot be written, if memory is short, or if interrupted.
  void write(const std::filesystem::path& file, const Progress& progress);

 private:
  const VocabularyFingerprint vocabulary_;
  const std::size_t width_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace outrider
