#include "formats/foreign_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/config_file.h"

namespace outrider {
namespace {

constexpr std::size_t kLookedAt = 2 << 20;  // headers of safetensors files of 70B have 0.1 MB
constexpr int kEntriesMax = 1000;

constexpr const char* kConvert =
    "convert the folder of the model with llama.cpp's convert_hf_to_gguf.py";
constexpr const char* kFetch = "fetch the file itself again";
constexpr const char* kUnpackIt =
    "unpack it and give the .gguf file that was in it, if there is one";
constexpr const char* kChoose = "choose a GGUF file of the model";

// Formats that are known by some bytes at a place.
struct Magic {
  std::size_t at;
  std::string_view bytes;
  const char* what;
  const char* advice;
};
using namespace std::string_view_literals;
constexpr Magic kMagics[] = {
    {0, "FUGG"sv, "a GGUF file in big-endian bytes", "convert the model again for little-endian"},
    {0, "lmgg"sv, "a file of GGML, which came before GGUF", "convert the original model again"},
    {0, "fmgg"sv, "a file of GGMF, which came before GGUF", "convert the original model again"},
    {0, "tjgg"sv, "a file of GGJT, which came before GGUF", "convert the original model again"},
    {0, "algg"sv, "an adapter (LoRA) of GGLA, which came before GGUF",
     "merge it into its model and convert that"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file", kChoose},
    {4, "TFL3"sv, "a TensorFlow Lite file", kChoose},
    {0, "\x93NUMPY"sv, "a NumPy array", kChoose},
    {0, "\x1f\x8b"sv, "compressed by gzip", kUnpackIt},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed by zstd", kUnpackIt},
    {0, "\xfd\x37zXZ\0"sv, "compressed by xz", kUnpackIt},
    {0, "BZh"sv, "compressed by bzip2", kUnpackIt},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", kUnpackIt},
    {0, "Rar!"sv, "a RAR archive", kUnpackIt},
    {257, "ustar"sv, "a tar archive", kUnpackIt},
    {0, "version https://git-lfs.github.com/spec/"sv,
     "a pointer of Git LFS, which stands for the file", "fetch the file with git lfs pull"},
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLookedAt)};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Whether the text begins with `lower` in any case, after a byte order mark and white space.
bool begins_markup(std::string_view text, std::string_view lower) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

// Null if it is no JSON, or larger or deeper than a config.json is.
nlohmann::json config_beside(const std::filesystem::path& weights) {
  try {
    return read_config(weights).value_or(nlohmann::json());
  } catch (const Error&) {  // then the file itself is all that is known
    return {};
  }
}

// As people write what quantization_config.quant_method says.
std::string written(const std::string& method) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"awq", "AWQ"}, {"gptq", "GPTQ"}, {"fp8", "FP8"}, {"bitsandbytes", "bitsandbytes"}};
  for (const auto& [name, shown] : kNames)
    if (method == name) return shown;
  return printable(method, 40);
}

// How the weights of a checkpoint are quantized, as its config.json says.
std::optional<std::string> quantization_in(const nlohmann::json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return std::nullopt;
  const auto method = found->find("quant_method");
  if (method != found->end() && method->is_string()) return written(method->get<std::string>());
  if (found->contains("load_in_4bit") || found->contains("load_in_8bit")) return "bitsandbytes";
  return std::nullopt;
}

// The same by the names of tensors in the header of a safetensors file.
std::optional<std::string> quantization_of(std::string_view header) {
  if (contains(header, ".quant_state.bitsandbytes") || contains(header, ".SCB\""))
    return "bitsandbytes";
  if (contains(header, ".weight_packed\"")) return "compressed-tensors";
  if (contains(header, ".qweight\""))
    return contains(header, ".g_idx\"") ? "GPTQ" : "AWQ or GPTQ";  // AWQ has no order of its own
  if (contains(header, "\"F8_E4M3\"") || contains(header, "\"F8_E5M2\"")) return "FP8";
  return std::nullopt;
}

// What to do, in the words for what was asked for.
std::string_view advice_for(Wanted wanted, std::string_view advice) {
  if (wanted == Wanted::model) return advice;
  if (advice == kChoose) return "give the head's .safetensors or .gguf file";
  if (advice == kUnpackIt)
    return "unpack it and give the .safetensors or .gguf file that was in it, if there is one";
  return advice;
}

std::string refusal(std::string_view what, std::string_view advice, Wanted wanted) {
  return fmt::format("is {}, expected {}; {}", what,
                     wanted == Wanted::model ? "a GGUF file" : "a safetensors or GGUF file",
                     advice_for(wanted, advice));
}

// Of a model's weights in a format of Hugging Face's.
std::string refusal_of_weights(const std::string& what,
                               const std::optional<std::string>& quantization) {
  if (!quantization) return refusal(what, kConvert, Wanted::model);
  return fmt::format(
      "is {}; {} weights are not read, choose a GGUF file of the model or convert the one that it "
      "was quantized from",
      what, *quantization);
}

std::string convert_head_command(const std::filesystem::path& path) {
  return fmt::format("convert it: outrider convert-head {}",
                     path.empty() ? "FILE" : printable(path.string(), 200));
}

bool is_safetensors(std::string_view text) {
  if (text.size() < 9 || text[8] != '{') return false;
  std::uint64_t header_bytes;
  std::memcpy(&header_bytes, text.data(), sizeof(header_bytes));
  return header_bytes >= 2 && header_bytes <= 100'000'000;  // the format's own limit
}

// Whether it is one of safetensors with the tensors of a draft head.
bool is_head_file(std::string_view text) {
  if (!is_safetensors(text)) return false;
  const bool is_eagle = contains(text, "\"fc.weight\"") &&
                        (contains(text, "\"midlayer.") || contains(text, "\"layers.0."));
  return is_eagle || contains(text, "\"0.0.linear.weight\"") ||
         contains(text, "blocks.0.layers.0.weight\"");
}

constexpr const char* kHeadForModel =
    "is a draft head, no model; give the model that it was trained for, and the head as its draft "
    "model (-md)";

// Whether a folder's file is such a one.
bool holds_head(const std::filesystem::path& weights) {
  try {
    return is_head_file(text_of(MappedFile(weights).bytes()));
  } catch (const Error&) {
    return false;
  }
}

// The fields of ONNX's model that come first: ir_version, then its producer, its graph or opsets.
bool is_onnx(std::string_view text) {
  return text.size() > 2 && text[0] == 0x08 && text[1] > 0 && text[1] < 20 &&
         contains("\x12\x1a\x22\x3a\x42", text.substr(2, 1));
}

constexpr std::string_view kZip = "PK\x03\x04";

// What the first members of a zip archive are called.
std::string_view member_names(std::string_view text) {
  constexpr std::size_t kName = 30;  // where the name of the first begins
  return text.substr(std::min(kName, text.size()), 4096);
}

bool is_pytorch_archive(std::string_view text) {
  return text.starts_with(kZip) && contains(member_names(text), "data.pkl");
}

bool is_pickle(std::string_view text) {
  return text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
}

// Whether a folder's entry is called as PyTorch's files of weights are.
bool has_pytorch_name(const std::filesystem::path& name) {
  const std::filesystem::path extension = name.extension();
  return extension == ".bin" || extension == ".pt" || extension == ".pth";
}

}  // namespace

bool is_pytorch_file(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  return is_pytorch_archive(text) || is_pickle(text);
}

std::string refusal_of_file(std::span<const std::byte> bytes, const std::filesystem::path& path,
                            Wanted wanted) {
  const std::string_view text = text_of(bytes);
  if (text.empty()) return "the file is empty; fetch it again";
  if ("GGUF"sv.starts_with(text))
    return fmt::format("is cut off after {} bytes; fetch it again", text.size());
  // Of formats that hold a model's weights.
  const auto weights = [&](const std::string& what) {
    if (wanted == Wanted::head) return refusal(what, convert_head_command(path), wanted);
    return refusal_of_weights(what,
                              path.empty() ? std::nullopt : quantization_in(config_beside(path)));
  };
  if (wanted == Wanted::head && text.starts_with("GGUF"))
    return "is a GGUF file, expected a safetensors file";
  if (wanted == Wanted::model && is_head_file(text)) return kHeadForModel;
  if (wanted == Wanted::model && is_safetensors(text)) {
    const auto said = path.empty() ? std::nullopt : quantization_in(config_beside(path));
    return refusal_of_weights("a safetensors file", said ? said : quantization_of(text.substr(8)));
  }
  if (is_pytorch_archive(text)) return weights("a PyTorch checkpoint");
  if (is_pickle(text)) return weights("a PyTorch checkpoint or another Python pickle");
  if (text.starts_with(kZip)) {
    const bool has_arrays = contains(member_names(text).substr(0, 256), ".npy");
    return has_arrays ? refusal("a NumPy archive", kChoose, wanted)
                      : refusal("a zip archive", kUnpackIt, wanted);
  }
  for (const Magic& magic : kMagics)
    if (text.size() > magic.at && text.substr(magic.at).starts_with(magic.bytes))
      return refusal(magic.what, magic.advice, wanted);
  if (is_onnx(text) || path.extension() == ".onnx") return refusal("an ONNX file", kChoose, wanted);
  for (const char* tag : {"<!doctype html", "<html", "<?xml"})
    if (begins_markup(text, tag))
      return fmt::format(
          "is a web page that a server gave in the place of the file, as for a login; {}", kFetch);
  if (begins_markup(text, "{")) {
    if (wanted == Wanted::model && contains(text, "\"weight_map\""))
      return weights("an index of safetensors files");
    return refusal("a JSON text", kFetch, wanted);
  }
  if (text.substr(0, 4096).find_first_not_of('\0') == std::string_view::npos)
    return "begins with zeros; its download has not ended or has failed, fetch it again";
  if (wanted == Wanted::head)
    return refusal(fmt::format("a file that begins with \"{}\"", printable(text.substr(0, 4))),
                   kChoose, wanted);
  return fmt::format("begins with \"{}\", expected \"GGUF\"; give the path of a .gguf file",
                     printable(text.substr(0, 4)));
}

std::string refusal_of_folder(const std::filesystem::path& path, Wanted wanted) {
  bool has_config = false, has_weights = false;
  std::vector<std::string> models, pickles, weights;
  std::error_code problem;
  std::filesystem::directory_iterator entry(path, problem), end;
  for (int n = 0; !problem && entry != end && n < kEntriesMax; ++n, entry.increment(problem)) {
    const std::filesystem::path name = entry->path().filename();
    has_config |= name == "config.json";
    has_weights |= name.extension() == ".safetensors" || name.extension() == ".bin";
    if (name.extension() == ".safetensors") weights.push_back(name.string());
    if (has_pytorch_name(name)) pickles.push_back(name.string());
    if (name.extension() == ".gguf" && !contains(name.native(), "mmproj"))
      models.push_back(name.string());
  }
  if (problem) return fmt::format("cannot be read: {}", problem.message());
  const bool is_head = wanted == Wanted::head;
  if (!models.empty()) {
    std::ranges::sort(models);
    return fmt::format("is a folder, expected a {} file; give one of its files, as {}",
                       is_head ? "safetensors or GGUF" : "GGUF",
                       (path / printable(models.front())).string());
  }
  if (is_head && !pickles.empty()) {
    return refusal("a folder with a PyTorch checkpoint",
                   convert_head_command(path / std::ranges::min(pickles)), wanted);
  }
  if (is_head) return "is a folder, expected a .safetensors file in it; give the path of one";
  if (!weights.empty() && holds_head(path / std::ranges::min(weights))) return kHeadForModel;
  if (has_config && has_weights)
    return refusal_of_weights("a folder with a Hugging Face checkpoint",
                              quantization_in(config_beside(path)));
  return "is a folder, expected a GGUF file; give the path of a .gguf file";
}

}  // namespace outrider
