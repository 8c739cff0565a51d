// Cuts text into the words that byte-level BPE never merges across, by the regular expressions that
// the model was trained with.

#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string_view>
#include <vector>

namespace outrider {

class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Throws Error, which lists the known ones and begins with
  // `origin`.
  PreTokenizer(std::string_view name, std::string_view origin);

  // Text between special tokens is brought into normal form C first (normal_form.h).
  bool composes() const { return composes_; }
  // A word that is an entry of the vocabulary is one token, whatever the merges say.
  bool ignores_merges() const { return ignores_merges_; }
  // A text begins with BOS unless the file says otherwise.
  bool adds_bos() const { return adds_bos_; }
  // The one that llama.cpp takes for files that name none.
  bool is_default() const { return is_default_; }

  // Splits well-formed text into words, all of it and in order. May be called from several threads
  // at once. Takes time linear in the text; a bound on PCRE2's steps, far above what these
  // expressions need, enforces this.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  // Each cuts the words that the one before it left; what it does not match is a word, too.
  std::vector<std::unique_ptr<pcre2_code, Free>> stages_;
  bool composes_ = false, ignores_merges_ = false, adds_bos_ = false, is_default_ = false;
};

}  // namespace outrider
