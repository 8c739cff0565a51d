#include <climits>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/text_input.h"
#include "runtime/opened_model.h"
#include "text/conversation_json.h"

namespace outrider {
namespace {

std::string text_of(const Settings& settings) {
  if (const auto prompt = single_prompt(settings)) return *prompt;
  const std::string text = fmt::format("{}", fmt::join(settings.arguments, " "));
  return settings.arguments.empty() || text == "-" ? read_prompt("-") : text;
}

int tokenize(const Machine&, const Settings& settings) {
  const bool by_flag = !settings.prompt.empty() || settings.prompt_file;
  if (settings.chat_file && (by_flag || !settings.arguments.empty() || settings.raw)) {
    throw UsageError("--chat {}: takes neither a text nor --raw beside it", *settings.chat_file);
  }
  if (by_flag && !settings.arguments.empty()) {
    throw UsageError("{}: the text is given by {}, too; tokenize takes one", settings.arguments[0],
                     settings.prompt_file ? "--file" : "--prompt");
  }
  Console console(settings);
  // The vocabulary is enough: the model itself may be missing, or of no supported architecture.
  const auto checkpoint =
      open_checkpoint(checked_model_name(settings.model), pull_options(settings, console));
  console.clear();
  const Metadata& metadata = checkpoint->metadata;
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(metadata, settings.tokenizer_pre);
  for (const std::string& line : tokenizer->warnings) console.note(line);

  std::vector<Token> tokens;
  if (settings.chat_file) {
    const auto chat_template = open_chat_template(settings.model, metadata, *tokenizer,
                                                  text_settings(settings).chat_template);
    if (!chat_template) throw Error("{}: has no chat template", settings.model);
    const auto messages =
        parse_conversation(read_text(*settings.chat_file),
                           *settings.chat_file == "-" ? "standard input" : *settings.chat_file);
    tokens = tokenizer->encode_whole(chat_template->render(messages, true));
  } else {
    tokens = tokenizer->encode(text_of(settings), settings.raw && !settings.no_special);
  }

  if (settings.json) {
    Json pieces = Json::array();
    for (Token token : tokens) pieces.push_back(tokenizer->bytes(token, true));
    write_json({{"tokens", tokens}, {"pieces", pieces}});
    return kDone;
  }
  std::string text;
  for (Token token : tokens) {
    text += fmt::format("{:7}  {}\n", token, json_text(tokenizer->bytes(token, true)));
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
      .flags = {"--model", "--offline", "--tokenizer-pre", "--prompt", "--file", "--chat",
                "--chat-template-file", "--chat-template-kwargs", "--reasoning", "--raw",
                "--no-special", "--json"},
      .run = tokenize};
}

}  // namespace outrider
