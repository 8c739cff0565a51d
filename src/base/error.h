// Two kinds of failure:
// - bad input from outside (a file, a flag, a request, the network) throws Error;
// - a mistake of our own aborts through CHECK, in every build. No input may cause one.

#pragma once

#include <fmt/format.h>

#include <stdexcept>

namespace outrider {

// What the user can set differently to avoid a failure. cli/ and server/ add their own name for it
// to the message: a flag, or a field of a request.
enum class Remedy {
  none,
  context,
  threads,
  logit_bias,
  raw_prompt,
  draft_model,
  reasoning,
  cache_memory,
  tokenizer_pre,
  chat_template
};

// One line for the user: where, what was found, what was expected, what to do. Only cli/ and
// server/ show it: on standard error, or in an HTTP response.
class Error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : Error(Remedy::none, format, std::forward<Args>(args)...) {}
  template <typename... Args>
  Error(Remedy remedy, fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)), remedy_(remedy) {}

  Remedy remedy() const { return remedy_; }

 private:
  Remedy remedy_;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace outrider

#define CHECK(condition)                  \
  (static_cast<bool>(condition) ? void(0) \
                                : ::outrider::check_failed(#condition, __FILE__, __LINE__))
