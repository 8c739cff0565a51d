// Prompts that a model says itself: its chat template as far as the user's text begins, which it
// goes on with as its users would (Magpie, Xu et al. 2024, arXiv:2406.08464).

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace outrider {

// What a chat template writes around the text of a conversation's only message.
struct UserTurn {
  std::vector<Token> before;
  // Right after it, but for spaces: a special token's text or a line. The model says it, too, where
  // the text is complete. Empty: nothing.
  std::string end;
};
UserTurn user_turn(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

class OwnPrompts {
 public:
  // All are borrowed; as many sequences of the engine as n_parallel are free.
  OwnPrompts(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
             std::uint64_t seed, int n_parallel);

  // Prompts that begin like this one are not made again.
  void note(const std::string& prompt);

  // Up to n prompts of 8 to 400 tokens, of those that begin with the same 16 tokens only the first.
  // `first` tells calls apart: what is made depends on it, the seed and what was noted. `accepts`
  // may refuse a prompt. Fewer than n: the model repeats itself, or hardly one of ten texts that it
  // begins becomes a prompt. `stepped` as in answer_batch().
  std::vector<std::string> make(int n, int first,
                                const std::function<bool(const std::string&)>& accepts,
                                const std::function<void(int n_tokens)>& stepped);

 private:
  std::vector<Token> beginning_of(const std::string& prompt) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const std::uint64_t seed_;
  const int n_parallel_;
  const UserTurn turn_;
  std::set<std::vector<Token>> beginnings_;
};

}  // namespace outrider
