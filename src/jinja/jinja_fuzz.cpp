// Any bytes as a chat template, on a fixed conversation: an Error or a text, nothing else.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"

using namespace outrider;
using namespace outrider::jinja;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  RenderOptions options;
  // Small, so that a run reaches them often.
  options.limits.steps = 20'000;
  options.limits.value_bytes = std::size_t{1} << 20;
  options.limits.output_bytes = std::size_t{1} << 16;
  options.now.tm_mday = 1;
  try {
    const auto tree = parse({reinterpret_cast<const char*>(bytes), size}, "fuzz", options.limits);
    const Text text = render(*tree, options, [](Runtime& runtime) -> Variables {
      const auto message = [&](std::string_view role, std::string_view content) {
        return runtime.mapping({{runtime.text("role"), runtime.text(role)},
                                {runtime.text("content"), runtime.text(content, true)}});
      };
      return {
          {"messages",
           runtime.list({message("system", " be terse\n"), message("user", "naïve <|x|>"),
                         message("assistant", "{{ 1 }}\xff")})},
          {"add_generation_prompt", Value::boolean(true)},
          {"bos_token", runtime.text("<s>")},
          {"tools", Value::none()},
      };
    });
    // The stretches cover the text, alternate, and none is empty.
    std::size_t covered = 0;
    bool previous_user = false;
    text.stretches([&](std::string_view stretch, bool user) {
      CHECK(!stretch.empty());
      CHECK(covered == 0 || user != previous_user);
      covered += stretch.size();
      previous_user = user;
    });
    CHECK(covered == text.size());
  } catch (const Error&) {
  }
  return 0;
}
