#include <climits>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/model_file.h"
#include "cli/text_input.h"
#include "text/conversation_json.h"

namespace outrider {
namespace {

int tokenize(const Device&, const Settings& settings) {
  if (settings.chat_file && (!settings.arguments.empty() || settings.raw)) {
    throw UsageError("--chat {}: takes neither a text nor --raw beside it", *settings.chat_file);
  }
  Console console(settings);
  const ModelFile file = open_model(settings.model, settings, console);

  std::vector<Token> tokens;
  if (settings.chat_file) {
    if (!file.chat_template) throw Error("{}: has no chat template", settings.model);
    const auto messages =
        parse_conversation(read_text(*settings.chat_file),
                           *settings.chat_file == "-" ? "standard input" : *settings.chat_file);
    tokens = file.tokenizer->encode_whole(file.chat_template->render(messages, true));
  } else {
    const bool from_input = settings.arguments.empty() ||
                            (settings.arguments.size() == 1 && settings.arguments[0] == "-");
    const std::string text =
        from_input ? read_text("-") : fmt::format("{}", fmt::join(settings.arguments, " "));
    tokens = file.tokenizer->encode(text, settings.raw && !settings.no_special);
  }

  if (settings.json) {
    Json pieces = Json::array();
    for (Token token : tokens) pieces.push_back(file.tokenizer->bytes(token, true));
    write_json({{"tokens", tokens}, {"pieces", pieces}});
    return kDone;
  }
  std::string text;
  for (Token token : tokens) {
    text += fmt::format("{:7}  {}\n", token,
                        Json(file.tokenizer->bytes(token, true))
                            .dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  write_output(text);
  return kDone;
}

}  // namespace

Command tokenize_command() {
  return {
      .name = "tokenize",
      .arguments = "[TEXT…]",
      .arguments_max = INT_MAX,
      .summary = "turn text into tokens",
      .description =
          "Prints the tokens of the text, or of a conversation (--chat) as the model's template "
          "writes it. Reads standard input if there is no text or if it is -.",
      .flags = {"--model", "--offline", "--chat", "--raw", "--no-special", "--json"},
      .run = tokenize};
}

}  // namespace outrider
