// Whatever is given as a model is named in one line, with what to do.

#include "formats/foreign_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "formats/gguf.h"

namespace outrider {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;

std::string refusal(const std::string& content, const fs::path& path = {}) {
  return refusal_of_file(std::as_bytes(std::span(content)), path);
}

// A safetensors file whose header is `json`.
std::string safetensors(const std::string& json) {
  const std::uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + json + "weights";
}

std::string tensors(const std::vector<std::string>& names) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  for (const std::string& name : names)
    json += ",\"" + name + R"(":{"dtype":"I32","shape":[1],"data_offsets":[0,4]})";
  return safetensors(json + "}");
}

std::string zip(const std::string& member) {
  return "PK\x03\x04"s + std::string(22, '\0') + static_cast<char>(member.size()) + "\0\0\0"s +
         member;
}

constexpr const char* kConvert =
    "expected a GGUF file; convert the folder of the model with llama.cpp's convert_hf_to_gguf.py";
constexpr const char* kQuantized =
    " weights are not read, choose a GGUF file of the model or convert the one that it was "
    "quantized from";
constexpr const char* kUnpack =
    ", expected a GGUF file; unpack it and give the .gguf file that was in it, if there is one";

TEST(ForeignFile, IsNamedByItsFirstBytes) {
  struct Case {
    std::string name, content, expected;
  };
  const std::string page =
      "is a web page that a server gave in the place of the file, as for a "
      "login; fetch the file itself again";
  const std::string safe = "is a safetensors file";
  const Case cases[] = {
      {"empty", "", "the file is empty; fetch it again"},
      {"cut off at once", "GG", "is cut off after 2 bytes; fetch it again"},
      {"safetensors", tensors({"model.norm.weight"}), safe + ", " + kConvert},
      {"AWQ or GPTQ", tensors({"a.qweight", "a.qzeros", "a.scales"}),
       safe + "; AWQ or GPTQ" + kQuantized},
      {"GPTQ", tensors({"a.g_idx", "a.qweight", "a.qzeros", "a.scales"}),
       safe + "; GPTQ" + kQuantized},
      {"bitsandbytes, 8 bits", tensors({"a.weight", "a.SCB"}),
       safe + "; bitsandbytes" + kQuantized},
      {"bitsandbytes, 4 bits", tensors({"a.weight", "a.weight.quant_state.bitsandbytes__nf4"}),
       safe + "; bitsandbytes" + kQuantized},
      {"compressed-tensors", tensors({"a.weight_packed", "a.weight_scale"}),
       safe + "; compressed-tensors" + kQuantized},
      {"FP8", safetensors(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})"),
       safe + "; FP8" + kQuantized},
      {"a draft head", tensors({"fc.weight", "midlayer.self_attn.q_proj.weight"}),
       "is a draft head, no model; give the model that it was trained for, and the head as its "
       "draft model (-md)"},
      {"a draft head of vLLM", tensors({"layers.0.self_attn.q_proj.weight", "fc.weight"}),
       "is a draft head, no model; give the model that it was trained for, and the head as its "
       "draft model (-md)"},
      {"a header that claims too much", "\xff\xff\xff\xff\xff\xff\xff\x7f{\"a\""s,
       "begins with \"\\xff\\xff\\xff\\xff\", expected \"GGUF\"; give the path of a .gguf file"},
      {"a header that is cut off", tensors({"a.qweight"}).substr(0, 40), safe + ", " + kConvert},
      {"PyTorch", zip("archive/data.pkl"), "is a PyTorch checkpoint, "s + kConvert},
      {"npz", zip("weight.npy"),
       "is a NumPy archive, expected a GGUF file; choose a GGUF file of the model"},
      {"zip", zip("model.gguf"), "is a zip archive"s + kUnpack},
      {"zip, cut off", "PK\x03\x04"s, "is a zip archive"s + kUnpack},
      {"pickle", "\x80\x02\x8a\x0a\x6c\xfc"s,
       "is a PyTorch checkpoint or another Python pickle, "s + kConvert},
      {"ONNX", "\x08\x07\x12\x07pytorch"s,
       "is an ONNX file, expected a GGUF file; choose a GGUF file of the model"},
      {"GGML", "lmgg\0\0"s,
       "is a file of GGML, which came before GGUF, expected a GGUF file; convert the original "
       "model "
       "again"},
      {"GGJT", "tjgg\3\0"s,
       "is a file of GGJT, which came before GGUF, expected a GGUF file; convert the original "
       "model "
       "again"},
      {"GGLA", "algg\1\0"s,
       "is an adapter (LoRA) of GGLA, which came before GGUF, expected a GGUF file; merge it into "
       "its model and convert that"},
      {"big-endian magic", "FUGG\0\0\0\3"s,
       "is a GGUF file in big-endian bytes, expected a GGUF file; convert the model again for "
       "little-endian"},
      {"gzip", "\x1f\x8b\x08"s, "is compressed by gzip"s + kUnpack},
      {"zstd", "\x28\xb5\x2f\xfd"s, "is compressed by zstd"s + kUnpack},
      {"tar", "model.gguf"s + std::string(247, '\0') + "ustar", "is a tar archive"s + kUnpack},
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n",
       "is a pointer of Git LFS, which stands for the file, expected a GGUF file; fetch the file "
       "with git lfs pull"},
      {"HTML", "<!DOCTYPE html><html>", page},
      {"HTML after a mark and white space", "\xef\xbb\xbf\r\n <HTML lang=en>", page},
      {"an error in XML", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", page},
      {"an error in JSON", "{\"error\": \"Not found\"}",
       "is a JSON text, expected a GGUF file; fetch the file itself again"},
      {"an index", R"({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}})",
       "is an index of safetensors files, "s + kConvert},
      {"zeros", std::string(5000, '\0'),
       "begins with zeros; its download has not ended or has failed, fetch it again"},
      {"zeros at first", std::string(100, '\0') + "x",
       "begins with \"\\x00\\x00\\x00\\x00\", expected \"GGUF\"; give the path of a .gguf file"},
      {"text", "This is no model",
       "begins with \"This\", expected \"GGUF\"; give the path of a .gguf file"},
      {"hostile text", "\x1b[31m\n",
       "begins with \"\\x1b[31\", expected \"GGUF\"; give the path of a .gguf file"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(refusal(c.content), c.expected);
  }
}

// The same files where the weights of a draft head were asked for.
TEST(ForeignFile, OfAHeadIsNamedByWhatToDo) {
  struct Case {
    std::string name, content, expected;
  };
  const std::string wanted = ", expected a safetensors or GGUF file; ";
  const std::string give = wanted + "give the head's .safetensors or .gguf file";
  const Case cases[] = {
      {"empty", "", "the file is empty; fetch it again"},
      {"PyTorch", zip("archive/data.pkl"),
       "is a PyTorch checkpoint" + wanted + "convert it: outrider convert-head dir/head.pt"},
      {"pickle", "\x80\x02\x8a\x0a\x6c\xfc"s,
       "is a PyTorch checkpoint or another Python pickle" + wanted +
           "convert it: outrider convert-head dir/head.pt"},
      {"GGUF", "GGUF\3\0\0\0"s, "is a GGUF file, expected a safetensors file"},
      {"npz", zip("weight.npy"), "is a NumPy archive" + give},
      {"zip", zip("head.safetensors"),
       "is a zip archive" + wanted +
           "unpack it and give the .safetensors or .gguf file that was in it, if there is one"},
      {"gzip", "\x1f\x8b\x08"s,
       "is compressed by gzip" + wanted +
           "unpack it and give the .safetensors or .gguf file that was in it, if there is one"},
      {"ONNX", "\x08\x07\x12\x07pytorch"s, "is an ONNX file" + give},
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\n",
       "is a pointer of Git LFS, which stands for the file" + wanted +
           "fetch the file with git lfs pull"},
      {"HTML", "<html>",
       "is a web page that a server gave in the place of the file, as for a login; fetch the file "
       "itself again"},
      {"JSON", "{\"error\": 1}", "is a JSON text" + wanted + "fetch the file itself again"},
      {"zeros", std::string(5000, '\0'),
       "begins with zeros; its download has not ended or has failed, fetch it again"},
      {"text", "\x1b[31m", "is a file that begins with \"\\x1b[31\"" + give},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(refusal_of_file(std::as_bytes(std::span(c.content)), "dir/head.pt", Wanted::head),
              c.expected);
    EXPECT_EQ(is_pytorch_file(std::as_bytes(std::span(c.content))),
              c.name == "PyTorch" || c.name == "pickle");
  }
}

// Only so much of a file is looked at.
TEST(ForeignFile, IsJudgedByItsBeginning) {
  const auto after = [](std::size_t n_bytes) {
    return safetensors(std::string(n_bytes, ' ').replace(0, 1, 1, '{').append("\"a.qweight\"}"));
  };
  EXPECT_EQ(refusal(after(3 << 20)).find("GPTQ"), std::string::npos);
  EXPECT_NE(refusal(after(1 << 20)).find("GPTQ"), std::string::npos);
}

TEST(ForeignFile, AnyBytesGiveOneLine) {
  std::mt19937 random(7);
  const std::string beginnings[] = {"",      "PK\x03\x04"s, tensors({"a"}), "{",
                                    "<html", "\x80\x02"s,   "\x08\x07"s};
  for (const std::string& beginning : beginnings) {
    for (std::size_t size = 0; size < 300; ++size) {
      std::string content = beginning.substr(0, size);
      while (content.size() < size) content += static_cast<char>(random());
      // A copy of exactly this length, so that a sanitizer sees a read beyond it.
      const std::vector<char> bytes(content.begin(), content.end());
      for (const Wanted wanted : {Wanted::model, Wanted::head}) {
        const std::string line = refusal_of_file(std::as_bytes(std::span(bytes)), {}, wanted);
        EXPECT_LT(line.size(), 300u);
        for (const unsigned char c : line) EXPECT_TRUE(c >= ' ' && c != 127) << line;
      }
    }
  }
}

// Files in a folder of their own.
class ForeignFolder : public ::testing::Test {
 protected:
  ForeignFolder() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ForeignFolder() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string problem(const fs::path& path) const {
    try {
      read_gguf(path);
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_TRUE(line.starts_with(path.string() + ": ")) << line;
      return line.substr(std::min(line.size(), path.string().size() + 2));
    }
    return "";
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / fmt::format("foreign{}", ::getpid());
};

TEST_F(ForeignFolder, ItsConfigSaysHowWeightsAreQuantized) {
  write("model.safetensors", tensors({"a.qweight", "a.qzeros"}));
  write("model.bin", zip("archive/data.pkl"));
  const std::string plain = "{\"model_type\": \"llama\"}";
  struct Case {
    std::string config, found_of_safetensors, found_of_the_others;
  };
  const auto method = [](const std::string& name) {
    return R"({"quantization_config": {"bits": 4, "quant_method": ")" + name + "\"}}";
  };
  // A config.json that is deeper or longer than any is not believed.
  const std::string deep = R"({"quantization_config": {"quant_method": "awq"}, "a": )" +
                           std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const std::string long_one = R"({"a": ")" + std::string(2 << 20, ' ') +
                               R"(", "quantization_config": {"quant_method": "awq"}})";
  const Case cases[] = {
      {plain, "; AWQ or GPTQ weights are not read", ", expected a GGUF file"},
      {method("awq"), "; AWQ weights are not read", "; AWQ weights are not read"},
      {method("gptq"), "; GPTQ weights are not read", "; GPTQ weights are not read"},
      {method("bitsandbytes"), "; bitsandbytes weights", "; bitsandbytes weights"},
      {method("compressed-tensors"), "; compressed-tensors weights",
       "; compressed-tensors weights"},
      {method("fp8"), "; FP8 weights", "; FP8 weights"},
      {method("\\u001b[31m\\n"), "; \\x1b[31m\\x0a weights", "; \\x1b[31m\\x0a weights"},
      {R"({"quantization_config": {"load_in_4bit": true}})", "; bitsandbytes", "; bitsandbytes"},
      {R"({"quantization_config": {"quant_method": 5}})", "; AWQ or GPTQ", ", expected a GGUF"},
      {R"({"quantization_config": [1]})", "; AWQ or GPTQ", ", expected a GGUF file"},
      {"[1]", "; AWQ or GPTQ", ", expected a GGUF file"},
      {"no JSON", "; AWQ or GPTQ", ", expected a GGUF file"},
      {deep, "; AWQ or GPTQ", ", expected a GGUF file"},
      {long_one, "; AWQ or GPTQ", ", expected a GGUF file"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.config.substr(0, 100));
    write("config.json", c.config);
    const auto expect = [](const std::string& said, const std::string& found) {
      EXPECT_TRUE(said.starts_with(found)) << said << "\n" << found;
    };
    expect(problem(folder_ / "model.safetensors"),
           "is a safetensors file" + c.found_of_safetensors);
    expect(problem(folder_ / "model.bin"), "is a PyTorch checkpoint" + c.found_of_the_others);
    expect(problem(folder_), "is a folder with a Hugging Face checkpoint" + c.found_of_the_others);
  }
}

TEST_F(ForeignFolder, IsNamedByWhatIsInIt) {
  EXPECT_EQ(problem(folder_), "is a folder, expected a GGUF file; give the path of a .gguf file");
  write("config.json", "{}");
  EXPECT_EQ(problem(folder_), "is a folder, expected a GGUF file; give the path of a .gguf file");
  write("model.safetensors", tensors({"a"}));
  EXPECT_EQ(problem(folder_), "is a folder with a Hugging Face checkpoint, "s + kConvert);
  for (const char* name :
       {"b.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "0-mmproj.gguf"})
    write(name, "GGUF");
  EXPECT_EQ(problem(folder_), "is a folder, expected a GGUF file; give one of its files, as " +
                                  (folder_ / "a-00001-of-00002.gguf").string());
}

}  // namespace
}  // namespace outrider
