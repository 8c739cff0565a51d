// The entries of a vocabulary that are found in text literally: user_defined ones everywhere,
// control tokens where the program wrote the text.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/vocabulary.h"

namespace outrider {

class SpecialTokens {
 public:
  // Longer ones are never searched for, which bounds the work at each place of a text.
  static constexpr std::size_t kBytesMax = 512;

  // Texts are compared in the form that `normalize` gives both them and the text that is searched.
  SpecialTokens(const Vocabulary& vocabulary, std::string (*normalize)(std::string_view));

  struct Match {
    Token token;
    std::size_t n_bytes;
  };
  // The longest that begins at text[begin]; control tokens only if they end at or before
  // `control_end`.
  std::optional<Match> longest_at(std::string_view text, std::size_t begin,
                                  std::size_t control_end) const;

 private:
  struct Entry {
    std::string text;  // not empty
    Token token;
    bool is_control;
  };
  std::vector<Entry> entries_;                   // by text, each once
  std::array<std::uint32_t, 257> first_byte_{};  // entries that begin with byte b: [b] to [b + 1]
};

}  // namespace outrider
