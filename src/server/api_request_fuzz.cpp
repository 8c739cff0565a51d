// Any bytes as the body of a request, the first one choosing the route: a request whose
// conversation becomes a prompt, or a refusal with status 400, nothing else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "sampling/fake_tokenizer.h"
#include "server/chat_prompt.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/messages_request.h"
#include "server/token_requests.h"

namespace {

using namespace outrider;

constexpr std::string_view kTemplate =
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.reasoning_content }}"
    "{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{\"name\": "
    "\"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}"
    "</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is false %}<think></think>"
    "{% endif %}{% endif %}{{ reasoning_effort }}";

ServedModel make_model() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  ServedModel model;
  model.name = "fuzz";
  model.tokenizer = std::make_shared<FakeTokenizer>(std::move(bytes));
  model.chat_template = std::make_shared<ChatTemplate>(kTemplate, "fuzz", "", "");
  model.format = answer_format(*model.chat_template);
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  static const ServedModel model = make_model();
  if (n == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(bytes) + 1, n - 1);
  try {
    switch (bytes[0] % 5) {
      case 0: chat_prompt(model, read_chat_request(body)); break;
      case 1: CHECK(!read_completion_request(body).prompts.empty()); break;
      case 2: chat_prompt(model, read_messages_request(body)); break;
      case 3: read_tokenize_request(body); break;
      case 4: read_detokenize_request(body); break;
    }
  } catch (const RequestError& error) {
    CHECK(error.status == 400);
  }
  return 0;
}
