#include "formats/convert_head.h"

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"

namespace outrider {
namespace {

int convert(const Machine&, const Settings& settings) {
  Console console(settings);
  const std::filesystem::path from = settings.arguments[0];
  const std::filesystem::path to = settings.out ? *settings.out : converted_path(from).string();
  const ConvertedHead head = convert_head(from, to, {settings.offline, console.progress()});
  console.clear();
  if (!head.left_out.empty()) {
    console.note(fmt::format("{}: {} entries are no tensors and left out, the first is {}",
                             from.string(), head.left_out.size(),
                             printable(head.left_out.front())));
  }
  if (settings.json) {
    write_json({{"file", head.path.string()},
                {"tensors", head.n_tensors},
                {"bytes", head.bytes},
                {"left_out", head.left_out},
                {"config_copied", head.config_was_copied}});
  } else {
    write_output(fmt::format("{}: {} tensors, {}{}\n", head.path.string(), head.n_tensors,
                             human_bytes(head.bytes),
                             head.config_was_copied ? ", config.json beside it" : ""));
  }
  return kDone;
}

}  // namespace

Command convert_head_command() {
  return {
      .name = "convert-head",
      .arguments = "FILE",
      .arguments_min = 1,
      .arguments_max = 1,
      .summary = "make a safetensors file of a draft head",
      .description =
          "Converts a draft head in PyTorch's format (.bin, .pt, .pth) to safetensors, which "
          "--model-draft takes, beside it or as --out says, and copies the config.json beside it. "
          "No code in the file is run. The first time, PyTorch is installed into a Python "
          "environment in the cache, which takes minutes and gigabytes.",
      .flags = {"--out", "--offline", "--json", "--log-file", "--quiet", "--verbose"},
      .run = convert};
}

}  // namespace outrider
