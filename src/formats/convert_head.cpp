#include "formats/convert_head.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/subprocess.h"
#include "formats/foreign_file.h"
#include "formats/parse_json.h"
#include "formats/python_environment.h"
#include "formats/safetensors.h"

namespace outrider {

extern const char kConvertHeadScript[];

namespace {

namespace fs = std::filesystem;

constexpr int kRefused = 2;  // exit status of the script

// What the script prints.
nlohmann::json run_script(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const PythonEnvironment environment(from.string(), options.offline, options.progress);
  std::string output;
  const SubprocessResult result =
      environment.run({.argv = {"-I", "-c", kConvertHeadScript, from.string(), to.string()},
                       .on_output = [&](std::span<const std::byte> bytes) {
                         output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                       }});
  if (result.status == kRefused) throw Error("{}: {}", from.string(), complaint(result.errors));
  if (result.status != 0) environment.fail(result);
  return parse_json(output, "the converter's answer");
}

std::string content_of(const fs::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

fs::path folder_of(const fs::path& path) {
  return fs::absolute(path).lexically_normal().parent_path();
}

void check_input(const fs::path& from) {
  std::error_code problem;
  if (fs::is_directory(from, problem))
    throw Error("{}: {}", from.string(), refusal_of_folder(from, Wanted::head));
  const MappedFile file(from);
  const std::span<const std::byte> bytes = file.bytes();
  if (is_pytorch_file(bytes)) return;
  if (bytes.size() > 8 && bytes[8] == std::byte{'{'}) {
    throw Error("{}: is a safetensors file, expected one of PyTorch's; it needs no conversion",
                from.string());
  }
  throw Error("{}: {}", from.string(), refusal_of_file(bytes, from, Wanted::head));
}

void check_output(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  if (!fs::is_directory(folder_of(to), problem))
    throw Error("{}: cannot be written: there is no such folder", to.string());
  if (!fs::exists(to, problem)) return;
  if (!fs::is_regular_file(to, problem))
    throw Error("{}: cannot be written: is no regular file", to.string());
  if (fs::equivalent(from, to, problem))
    throw Error("{}: is the file to convert, expected another one to write", to.string());
}

// Whether the configuration must be copied. Throws Error if another one is there.
bool needs_config(const fs::path& source, const fs::path& target) {
  std::error_code problem;
  if (!fs::exists(source, problem)) return false;
  if (!fs::exists(target, problem)) return true;
  if (fs::equivalent(source, target, problem) || content_of(source) == content_of(target))
    return false;
  throw Error("{}: is another configuration than {}; write into another folder", target.string(),
              source.string());
}

}  // namespace

fs::path converted_path(const fs::path& from) {
  return fs::path(from).replace_extension(".safetensors");
}

ConvertedHead convert_head(const fs::path& from, const fs::path& to,
                           const ConvertOptions& options) {
  check_input(from);
  check_output(from, to);
  const fs::path config = folder_of(from) / "config.json";
  const fs::path config_copy = folder_of(to) / "config.json";
  ConvertedHead head;
  head.path = to;
  const bool copies_config = needs_config(config, config_copy);

  const nlohmann::json answer = run_script(from, to, options);
  if (!answer.is_object())
    throw Error("{}: the converter gave no answer, expected an object", from.string());
  for (const auto& name : answer.value("left_out", nlohmann::json::array()))
    if (name.is_string()) head.left_out.push_back(name.get<std::string>());
  const Checkpoint written = read_safetensors(to);
  head.n_tensors = written.tensors.size();
  head.bytes = written.file_bytes();
  if (copies_config) {
    std::error_code problem;
    fs::copy_file(config, config_copy, problem);
    if (problem) throw Error("{}: cannot be written: {}", config_copy.string(), problem.message());
    head.config_was_copied = true;
  }
  return head;
}

}  // namespace outrider
