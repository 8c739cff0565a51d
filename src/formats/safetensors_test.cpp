// Files of draft heads: what is read is where the file says it is, and anything malformed is one
// line that names the file.

#include "formats/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"
#include "formats/config_file.h"

namespace outrider {
namespace {

using namespace std::string_literals;
namespace fs = std::filesystem;

// A file whose header is `header`, with `n_bytes` bytes 0, 1, ... after it.
std::string file_of(const std::string& header, std::size_t n_bytes) {
  const std::uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  file += header;
  for (std::size_t i = 0; i < n_bytes; ++i) file += static_cast<char>(i);
  return file;
}

// `"name":{...}` of a header.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

std::string one_tensor(const std::string& dtype, const std::string& shape,
                       const std::string& offsets, std::size_t n_bytes) {
  return file_of("{" + entry("t", dtype, shape, offsets) + "}", n_bytes);
}

Checkpoint read(const std::string& content) {
  return read_safetensors(std::as_bytes(std::span(content)), "x.safetensors");
}

void expect_one_line(const std::string& message) {
  EXPECT_LT(message.size(), 400u);
  for (const unsigned char c : message) EXPECT_TRUE(c >= ' ' && c != 127) << message;
}

// What follows the name in the message; empty if there is no error.
std::string problem(const std::string& content) {
  // A copy of exactly this length, so that a sanitizer sees a read beyond it.
  const std::vector<char> bytes(content.begin(), content.end());
  try {
    read_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
    return "";
  } catch (const Error& error) {
    const std::string line = error.what();
    expect_one_line(line);
    EXPECT_TRUE(line.starts_with("x.safetensors: ")) << line;
    return line.substr(std::min<std::size_t>(line.size(), 15));
  }
}

TEST(Safetensors, ReadsTensorsWhereTheyLie) {
  // Neither in the order of their bytes nor aligned.
  const std::string content = file_of(
      R"({"__metadata__":{"format":"pt","made by":"a test"},)" + entry("d2t", "I64", "2", "9,25") +
          "," + entry("t2d", "BOOL", "3", "0,3") + "," +
          entry("fc.weight", "F16", "2, 3, 1", "25,37") + "," +
          entry("norm.weight", "BF16", "3", "3,9") + "," + entry("bias", "F32", "1,1", "37,41") +
          "," + entry("ids", "I32", "1", "41,45") + "," + entry("raw", "U8", "2", "45,47") + "}  ",
      47);
  const Checkpoint file = read(content);
  EXPECT_EQ(file.path, "x.safetensors");
  EXPECT_EQ(file.metadata.origin(), "x.safetensors");
  EXPECT_EQ(file.metadata.string("format"), "pt");
  EXPECT_EQ(file.metadata.string("made by"), "a test");
  EXPECT_EQ(file.metadata.entries().size(), 2u);
  struct Case {
    const char* name;
    TensorType type;
    std::vector<std::int64_t> shape;
    int first_byte;
    std::size_t n_bytes;
  };
  const Case cases[] = {
      {"d2t", TensorType::i64, {2}, 9, 16},
      {"t2d", TensorType::boolean, {3}, 0, 3},
      {"fc.weight", TensorType::f16, {1, 3, 2}, 25, 12},
      {"norm.weight", TensorType::bf16, {3}, 3, 6},
      {"bias", TensorType::f32, {1, 1}, 37, 4},
      {"ids", TensorType::i32, {1}, 41, 4},
      {"raw", TensorType::u8, {2}, 45, 2},
  };
  ASSERT_EQ(file.tensors.size(), std::size(cases));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(c.name);
    const TensorView* tensor = file.find(c.name);
    ASSERT_EQ(tensor, &file.tensors[i]);
    EXPECT_EQ(tensor->type, c.type);
    EXPECT_EQ(tensor->shape, c.shape);
    ASSERT_EQ(tensor->bytes.size(), c.n_bytes);
    EXPECT_EQ(tensor->bytes.front(), static_cast<std::byte>(c.first_byte));
    EXPECT_EQ(tensor->bytes.back(), static_cast<std::byte>(c.first_byte + c.n_bytes - 1));
  }
  EXPECT_EQ(file.find("fc.weight")->columns(), 1);
  EXPECT_EQ(file.find("fc.weight")->rows(), 6);
}

TEST(Safetensors, ReadsScalarsAndTensorsWithoutElements) {
  const std::string content =
      file_of("{" + entry("none", "F16", "0,7", "4,4") + "," + entry("scalar", "F32", "", "0,4") +
                  "," + entry("first", "I64", "3,0", "0,0") + "}",
              4);
  const Checkpoint file = read(content);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("scalar")->elements(), 1);
  EXPECT_EQ(file.find("scalar")->bytes.size(), 4u);
  EXPECT_EQ(file.find("none")->shape, (std::vector<std::int64_t>{7, 0}));
  EXPECT_EQ(file.find("none")->elements(), 0);
  EXPECT_TRUE(file.find("none")->bytes.empty());
  EXPECT_EQ(file.find("first")->elements(), 0);

  EXPECT_TRUE(read(file_of("{}", 0)).tensors.empty());
  EXPECT_TRUE(read(file_of(R"({"__metadata__":{}})", 0)).metadata.entries().empty());
}

TEST(Safetensors, NamesAreTextOfAnyLanguage) {
  const std::string content = file_of(
      R"({"__metadata__":{"é":"\u00e9\ud83d\ude00"},"t\"\u0065":{"shape":[1],"data_offsets":[0,2],)"
      R"("dtype":"F16"}})",
      2);
  const Checkpoint file = read(content);
  EXPECT_EQ(file.metadata.string("é"), "é😀");
  EXPECT_NE(file.find("t\"e"), nullptr);
}

TEST(Safetensors, MalformedFilesAreNamed) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t n_bytes) {
    return file_of("{" + entry("a", "F32", "1", a) + "," + entry("b", "F32", "1", b) + "}",
                   n_bytes);
  };
  const auto header = [](const std::string& json) { return file_of(json, 4); };
  const auto tensor = [&](const std::string& fields) { return header("{\"t\":{" + fields + "}}"); };
  const std::string sound = one_tensor("F32", "1", "0,4", 4);
  struct Case {
    const char* name;
    std::string content, expected;
  };
  const Case cases[] = {
      {"empty", "", "the file is empty; fetch it again"},
      {"seven bytes", sound.substr(0, 7), "is a file that begins with \"6\\x00\\x00\\x00\""},
      {"no header", sound.substr(0, 8), "is a file that begins with"},
      {"a cut header", sound.substr(0, 30),
       "its header has 54 bytes, of which the file has 22; it is cut off or damaged, fetch it "
       "again"},
      {"a cut tensor", sound.substr(0, sound.size() - 1),
       "tensor t is at 0 to 4 of the bytes after the header, of which there are 3; it is cut off "
       "or damaged, fetch it again"},
      {"a header above the limit", "\x01\xe1\xf5\x05\0\0\0\0{\"a\""s,
       "claims a header of 100000001 bytes, expected at most 100000000"},
      {"a header at the limit", "\x00\xe1\xf5\x05\0\0\0\0{\"a\""s,
       "its header has 100000000 bytes, of which the file has 4"},
      {"a header of all bytes", "\xff\xff\xff\xff\xff\xff\xff\xff{\"a\""s,
       "claims a header of 18446744073709551615 bytes, expected at most 100000000"},
      {"a header without bytes", "\0\0\0\0\0\0\0\0{"s, "its header is no valid JSON at byte "},
      {"an array", header("[]"), "is a file that begins with"},
      {"white space first", header(" {}"), "is a file that begins with"},
      {"a mark first", header("\xef\xbb\xbf{}"), "is a file that begins with"},
      {"text after it", file_of("{} x", 0), "its header is no valid JSON at byte 4"},
      {"a second object", file_of("{}{}", 0), "its header is no valid JSON at byte 3"},
      {"a NUL after it", file_of("{}\0"s, 0), "its header is no valid JSON at byte 3"},
      {"a NUL and text", file_of("{}\0x"s, 0), "its header is no valid JSON at byte 3"},
      {"broken JSON", header("{\"a\":"), "its header is no valid JSON at byte 6"},
      {"a comment", header("{/* */}"), "its header is no valid JSON at byte 2"},
      {"a trailing comma", header("{\"__metadata__\":{},}"), "its header is no valid JSON"},
      {"broken UTF-8", header("{\"\xff\":1}"), "its header is no valid JSON at byte 3"},
      {"UTF-8 of a surrogate", header("{\"\xed\xa0\x80\":1}"), "its header is no valid JSON"},
      {"half a surrogate pair", header(R"({"\ud800":1})"), "its header is no valid JSON"},
      {"a control character", header("{\"\n\":1}"), "its header is no valid JSON"},
      {"a number of any size", tensor(R"("shape":[1e999])"), "its header is no valid JSON"},

      {"a tensor that is a number", header(R"({"t":1})"),
       "key t of its header holds a number, expected an object"},
      {"a tensor that is null", header(R"({"t":null})"), "key t of its header holds null"},
      {"a tensor that is a list", header(R"({"t":[]})"), "key t of its header holds an array"},
      {"metadata that is a string", header(R"({"__metadata__":"x"})"),
       "key __metadata__ of its header holds a string, expected an object"},
      {"metadata of numbers", header(R"({"__metadata__":{"a":1}})"),
       "key a of __metadata__ holds a number, expected a string"},
      {"metadata of objects", header(R"({"__metadata__":{"a":{"b":{}}}})"),
       "key a of __metadata__ holds an object, expected a string"},
      {"metadata of truth", header(R"({"__metadata__":{"a":true}})"),
       "key a of __metadata__ holds a boolean, expected a string"},
      {"metadata twice", header(R"({"__metadata__":{},"__metadata__":{}})"),
       "its header has __metadata__ twice; convert it again"},
      {"a key of metadata twice", header(R"({"__metadata__":{"a":"b","a":"b"}})"),
       "key a appears twice"},
      {"a tensor twice",
       file_of("{" + entry("t", "F32", "1", "0,4") + "," + entry("t", "F32", "1", "4,8") + "}", 8),
       "its header has t twice; convert it again"},
      {"a tensor twice, written otherwise",
       file_of(
           "{" + entry("t", "F32", "1", "0,4") + "," + entry("\\u0074", "F32", "1", "4,8") + "}",
           8),
       "its header has t twice; convert it again"},
      {"a tensor without a name", file_of("{" + entry("", "F32", "1", "0,4") + "}", 4),
       "a tensor's name is empty"},
      {"a hostile name", file_of("{" + entry("\\u001b[31m\\n", "F32", "1", "0,4") + "}", 5),
       "bytes 4 to 5 of the 5 after the header belong to no tensor"},
      {"a hostile name that is shown", file_of(R"({"\u001b[31m\n":1})", 5),
       "key \\x1b[31m\\x0a of its header holds a number"},
      {"a long name", file_of("{\"" + std::string(100'000, 'a') + "\":1}", 5), "key aaaaaaaaaa"},

      {"no dtype", tensor(R"("shape":[1],"data_offsets":[0,4])"), "tensor t has no dtype"},
      {"no shape", tensor(R"("dtype":"F32","data_offsets":[0,4])"), "tensor t has no shape"},
      {"no offsets", tensor(R"("dtype":"F32","shape":[1])"), "tensor t has no data_offsets"},
      {"nothing", tensor(""), "tensor t has no dtype"},
      {"another field", tensor(R"("dtype":"F32","strides":[1])"),
       "tensor t has a field strides, expected dtype, shape and data_offsets"},
      {"dtype twice", tensor(R"("dtype":"F32","dtype":"F32")"), "tensor t has dtype twice"},
      {"shape twice", tensor(R"("shape":[1],"shape":[1])"), "tensor t has shape twice"},
      {"offsets twice", tensor(R"("data_offsets":[0,4],"data_offsets":[0,4])"),
       "tensor t has data_offsets twice"},
      {"a dtype that is a number", tensor(R"("dtype":1)"),
       "dtype of tensor t holds a number, expected a string"},
      {"a dtype that is a list", tensor(R"("dtype":["F32"])"),
       "dtype of tensor t holds an array, expected a string"},
      {"a shape that is a number", tensor(R"("shape":1)"),
       "shape of tensor t holds a number, expected an array"},
      {"a shape that is an object", tensor(R"("shape":{})"), "shape of tensor t holds an object"},
      {"a shape that is a string", tensor(R"("shape":"1")"), "shape of tensor t holds a string"},
      {"a negative extent", tensor(R"("shape":[-1])"),
       "shape of tensor t holds a negative number, expected whole numbers from 0"},
      {"an extent with a fraction", tensor(R"("shape":[1.0])"),
       "shape of tensor t holds a number with a fraction or beyond 64 bits"},
      {"an extent beyond 64 bits", tensor(R"("shape":[18446744073709551616])"),
       "shape of tensor t holds a number with a fraction or beyond 64 bits"},
      {"an extent in an array", tensor(R"("shape":[[1]])"), "shape of tensor t holds an array"},
      {"an extent that is null", tensor(R"("shape":[null])"), "shape of tensor t holds null"},
      {"offsets that are strings", tensor(R"("data_offsets":["0","4"])"),
       "data_offsets of tensor t holds a string, expected whole numbers from 0"},
      {"negative offsets", tensor(R"("data_offsets":[-4,0])"),
       "data_offsets of tensor t holds a negative number"},
      {"one offset", one_tensor("F32", "1", "0", 4),
       "tensor t has 1 data_offsets, expected where it begins and ends"},
      {"three offsets", one_tensor("F32", "1", "0,4,8", 4),
       "tensor t has more than two data_offsets"},

      {"F64", one_tensor("F64", "1", "0,8", 8),
       "tensor t has type F64, which is not read; expected weights in F32, F16 or BF16, or a table "
       "in I64, I32, U8 or BOOL"},
      {"F8_E4M3", one_tensor("F8_E4M3", "1", "0,1", 1), "tensor t has type F8_E4M3, which is not"},
      {"I8", one_tensor("I8", "1", "0,1", 1), "tensor t has type I8, which is not read"},
      {"small letters", one_tensor("f32", "1", "0,4", 4), "tensor t has type f32, which is not"},
      {"GGUF's names", one_tensor("Q4_K", "256", "0,144", 144), "tensor t has type Q4_K"},
      {"a hostile type", one_tensor("\\n", "1", "0,4", 4), "tensor t has type \\x0a"},

      {"too few bytes", one_tensor("F32", "2", "0,4", 4),
       "tensor t is F32 [2], which takes 8 bytes, but has 4; convert it again"},
      {"too many bytes", one_tensor("F16", "1", "0,4", 4),
       "tensor t is F16 [1], which takes 2 bytes, but has 4"},
      {"bytes without elements", one_tensor("F16", "0", "0,4", 4),
       "tensor t is F16 [0], which takes 0 bytes, but has 4"},
      {"a scalar with the bytes of two", one_tensor("F16", "", "0,4", 4),
       "tensor t is F16 [], which takes 2 bytes, but has 4"},
      {"elements without bytes", one_tensor("F32", "1", "4,4", 4),
       "tensor t is F32 [1], which takes 4 bytes, but has 0"},
      {"elements that wrap to 0", one_tensor("F32", "4294967296,4294967296", "0,0", 0),
       "tensor t has more elements than can be counted"},
      {"elements that wrap to 4 bytes", one_tensor("F32", "9223372036854775807,3", "0,4", 4),
       "tensor t has more elements than can be counted"},
      {"bytes that wrap", one_tensor("F32", "4611686018427387905", "0,4", 4),
       "tensor t has more elements than can be counted"},
      {"an extent beyond int64", one_tensor("U8", "9223372036854775808", "0,4", 4),
       "tensor t has more elements than can be counted"},
      {"none, with factors that wrap", one_tensor("F32", "0,4294967296,4294967296", "0,0", 0),
       "tensor t has more elements than can be counted"},
      {"nine dimensions", one_tensor("F32", "1,1,1,1,1,1,1,1,1", "0,4", 4),
       "tensor t has more than 8 dimensions"},

      {"the end before the begin", one_tensor("F32", "1", "4,0", 4),
       "tensor t is at 4 to 0 of the bytes after the header, of which there are 4"},
      {"past the end", one_tensor("F32", "1", "4,8", 4),
       "tensor t is at 4 to 8 of the bytes after the header, of which there are 4"},
      {"far past the end", one_tensor("F32", "1", "18446744073709551612,18446744073709551615", 4),
       "tensor t is at 18446744073709551612 to 18446744073709551615"},
      {"a hole first", one_tensor("F32", "1", "4,8", 8),
       "bytes 0 to 4 of the 8 after the header belong to no tensor"},
      {"a hole", two("0,4", "8,12", 12),
       "bytes 4 to 8 of the 12 after the header belong to no tensor"},
      {"a hole at the end", two("4,8", "0,4", 9),
       "bytes 8 to 9 of the 9 after the header belong to no tensor; it is cut off or damaged, "
       "fetch it again"},
      {"bytes and no tensor", file_of("{}", 1), "bytes 0 to 1 of the 1 after the header"},
      {"overlap", two("0,4", "2,6", 6), "tensors a and b overlap; convert it again"},
      {"the same place", two("0,4", "0,4", 4), "tensors a and b overlap; convert it again"},
      {"nothing inside another",
       file_of("{" + entry("a", "F32", "1", "0,4") + "," + entry("b", "F32", "0", "2,2") + "}", 4),
       "tensors a and b overlap"},

      {"GGUF", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0"s, "is a GGUF file, expected a safetensors file"},
      {"PyTorch", "PK\x03\x04"s + std::string(26, '\0') + "archive/data.pkl",
       "is a PyTorch checkpoint, expected a safetensors or GGUF file; convert it: outrider "
       "convert-head FILE"},
      {"PyTorch before 1.6", "\x80\x02\x8a\x0a\x6c\xfc"s,
       "is a PyTorch checkpoint or another Python pickle, expected a safetensors or GGUF file; "
       "convert it: outrider convert-head FILE"},
      {"a page", "<!DOCTYPE html><html>", "is a web page that a server gave in the place"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string found = problem(c.content);
    EXPECT_TRUE(found.starts_with(c.expected)) << found << "\n" << c.expected;
  }
  EXPECT_EQ(problem(sound), "");
}

TEST(Safetensors, TooManyTensorsAreRefused) {
  std::string header = "{";
  for (int i = 0; i <= 1 << 18; ++i)
    header += (i > 0 ? "," : "") + entry(std::to_string(i), "F32", "0", "0,0");
  EXPECT_EQ(problem(file_of(header + "}", 0)), "has more than 262144 tensors, expected fewer");
}

// A file with any byte changed or cut off is an error or tensors inside it.
TEST(Safetensors, ChangedFiles) {
  const std::string sound =
      file_of(R"({"__metadata__":{"format":"pt"},)" + entry("fc", "F16", "2,3", "0,12") + "," +
                  entry("d2t", "I64", "1", "12,20") + "}",
              20);
  EXPECT_EQ(problem(sound), "");
  for (std::size_t size = 0; size < sound.size(); ++size)
    EXPECT_NE(problem(sound.substr(0, size)), "");
  EXPECT_NE(problem(sound + '\0'), "");
  std::mt19937 random(3);
  int n_errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = sound;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n)
      changed[random() % (sound.size() - 20)] = static_cast<char>(random());
    if (!problem(changed).empty()) {
      ++n_errors;
      continue;
    }
    const Checkpoint file = read(changed);
    for (const TensorView& tensor : file.tensors) {
      const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
      EXPECT_GE(begin, changed.data());
      EXPECT_LE(begin + tensor.bytes.size(), changed.data() + changed.size());
    }
  }
  EXPECT_GT(n_errors, 10'000);
}

// Files in a folder of their own.
class SafetensorsFolder : public ::testing::Test {
 protected:
  SafetensorsFolder() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~SafetensorsFolder() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  fs::path write_index(const std::string& map) const {
    return write("model.safetensors.index.json",
                 R"({"metadata":{"total_size":8},"weight_map":)" + map + "}");
  }
  // Two shards with a tensor each.
  void write_shards() const {
    write("b.safetensors",
          file_of(R"({"__metadata__":{"format":"pt"},)" + entry("first", "F32", "1", "0,4") + "}",
                  4));
    write("a.safetensors", file_of("{" + entry("second", "F16", "2", "0,4") + "}", 4));
  }
  std::string problem_of(const std::function<void()>& read) const {
    try {
      read();
    } catch (const Error& error) {
      expect_one_line(error.what());
      const std::string line = error.what(), folder = folder_.string();
      EXPECT_TRUE(line.starts_with(folder)) << line;
      return line.substr(std::min(line.size(), folder.size() + 1));
    }
    return "";
  }
  std::string problem_of(const fs::path& path) const {
    return problem_of([&] { read_safetensors(path); });
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / fmt::format("safetensors{}", ::getpid());
  const std::string sound_ = one_tensor("F32", "1", "0,4", 4);
};

TEST_F(SafetensorsFolder, AFileIsFoundInItsFolder) {
  const fs::path head = write("head.safetensors", sound_);
  for (const fs::path& path : {head, folder_}) {
    Checkpoint moved = read_safetensors(path);
    const Checkpoint file = std::move(moved);
    EXPECT_EQ(file.path, head.string());
    ASSERT_EQ(file.files.size(), 1u);
    EXPECT_EQ(file.file_bytes(), sound_.size());
    EXPECT_TRUE(file.files[0].holds(file.find("t")->bytes));
  }
  write("other.safetensors", one_tensor("F16", "2", "0,4", 4));
  EXPECT_NE(problem_of(folder_).find("holds 2 .safetensors files, expected model.safetensors, its "
                                     "index or one; give the path of one, as " +
                                     (folder_ / "head.safetensors").string()),
            std::string::npos);
  write_index(R"({"t":"head.safetensors"})");
  EXPECT_EQ(read_safetensors(folder_).path, (folder_ / "model.safetensors.index.json").string());
  write("model.safetensors", one_tensor("BF16", "2", "0,4", 4));
  EXPECT_EQ(read_safetensors(folder_).find("t")->type, TensorType::bf16);
}

TEST_F(SafetensorsFolder, AnIndexJoinsItsFiles) {
  write_shards();
  const fs::path index = write_index(R"({"second":"a.safetensors","first":"b.safetensors"})");
  Checkpoint moved = read_safetensors(index);
  const Checkpoint file = std::move(moved);
  EXPECT_EQ(file.path, index.string());
  EXPECT_EQ(file.metadata.string("format"), "pt");
  ASSERT_EQ(file.tensors.size(), 2u);
  ASSERT_EQ(file.files.size(), 2u);
  EXPECT_TRUE(file.files[0].holds(file.find("second")->bytes));
  EXPECT_TRUE(file.files[1].holds(file.find("first")->bytes));
  EXPECT_EQ(file.find("first")->bytes[3], std::byte{3});
}

TEST_F(SafetensorsFolder, AnIndexThatDoesNotFitItsFilesIsNamed) {
  write_shards();
  write("pytorch.bin", "PK\x03\x04"s + std::string(26, '\0') + "archive/data.pkl");
  const std::string in_index = "model.safetensors.index.json: ";
  struct Case {
    const char* name;
    std::string map, expected;
  };
  const Case cases[] = {
      {"a missing file", R"({"first":"b.safetensors","third":"c.safetensors"})",
       in_index +
           "file 2 of 2 of this checkpoint is missing: " + (folder_ / "c.safetensors").string()},
      {"a missing tensor",
       R"({"first":"b.safetensors","second":"a.safetensors","third":"a.safetensors"})",
       "a.safetensors: has no tensor third, which model.safetensors.index.json says is there"},
      {"a tensor that is not named", R"({"first":"b.safetensors","x":"b.safetensors"})",
       "b.safetensors: has no tensor x"},
      {"an unnamed tensor", R"({"second":"b.safetensors"})", "b.safetensors: has no tensor second"},
      {"files exchanged", R"({"first":"a.safetensors","second":"b.safetensors"})",
       "a.safetensors: has no tensor first"},
      {"a tensor twice", R"({"first":"a.safetensors","first":"b.safetensors"})",
       in_index + "JSON object with the key 'first' twice"},
      {"a path", R"({"first":"sub/b.safetensors"})",
       in_index + "tensor first is in sub/b.safetensors, expected the name of a file in the same"},
      {"an absolute path", R"({"first":"/b.safetensors"})",
       in_index + "tensor first is in /b.safe"},
      {"the folder above", R"({"first":".."})", in_index + "tensor first is in .., expected"},
      {"the folder", R"({"first":"."})", in_index + "tensor first is in ., expected"},
      {"no name", R"({"first":""})", in_index + "tensor first is in , expected"},
      {"another system's path", R"({"first":"..\\b.safetensors"})",
       in_index + "tensor first is in"},
      {"an end in the name", R"({"first":"b.safetensors\u0000x"})",
       in_index + "tensor first is in b.safetensors\\x00x, expected"},
      {"a number", R"({"first":1})", in_index + "tensor first is in a number, expected"},
      {"an array", R"([])", in_index + "has no object weight_map, expected an index"},
      {"nothing", R"({})", in_index + "names no tensor"},
      {"no JSON", R"({)", in_index + "not valid JSON"},
      {"PyTorch", R"({"first":"pytorch.bin"})",
       "pytorch.bin: is a PyTorch checkpoint, expected a safetensors or GGUF file; convert it: "
       "outrider convert-head " +
           (folder_ / "pytorch.bin").string()},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    write_index(c.map);
    const std::string found = problem_of(folder_);
    EXPECT_EQ(problem_of(folder_ / "model.safetensors.index.json"),
              found.empty() ? "an error" : found);
    EXPECT_TRUE(found.starts_with(c.expected)) << found << "\n" << c.expected;
  }
  write("more.safetensors", file_of("{" + entry("first", "F16", "2", "0,4") + "," +
                                        entry("second", "F16", "2", "4,8") + "}",
                                    8));
  write_index(R"({"first":"b.safetensors","second":"more.safetensors"})");
  EXPECT_EQ(problem_of(folder_),
            "more.safetensors: has a tensor first, which model.safetensors.index.json does not say "
            "is there; fetch the files again");
  const fs::path list = write("config.json", "[1]");
  EXPECT_EQ(problem_of(list).substr(0, 38), "config.json: has no object weight_map,");
  const fs::path large = write("large.json", std::string((16 << 20) + 1, ' '));
  EXPECT_EQ(problem_of(large),
            "large.json: has 16777217 bytes, expected an index of at most 16777216");
}

TEST_F(SafetensorsFolder, WhatHoldsNoHeadIsNamed) {
  EXPECT_NE(problem_of([&] {
              read_safetensors(folder_ / "no.safetensors");
            }).find("no.safetensors: cannot be opened: No such file or directory"),
            std::string::npos);
  const auto said = [&] {
    try {
      read_safetensors(folder_);
    } catch (const Error& error) {
      return std::string(error.what()).substr(folder_.string().size());
    }
    return ""s;
  };
  EXPECT_EQ(said(), ": is a folder, expected a .safetensors file in it; give the path of one");
  const fs::path pickle = write("medusa_lm_head.pt", "\x80\x02\x8a\x0a\x6c\xfc"s);
  EXPECT_EQ(said(),
            ": is a folder with a PyTorch checkpoint, expected a safetensors or GGUF file; convert "
            "it: outrider convert-head " +
                pickle.string());
  EXPECT_EQ(problem_of(pickle),
            "medusa_lm_head.pt: is a PyTorch checkpoint or another Python pickle, expected a "
            "safetensors or GGUF file; convert it: outrider convert-head " +
                pickle.string());
  const fs::path gguf = write("head.gguf", "GGUF");
  EXPECT_EQ(said(),
            ": is a folder, expected a safetensors or GGUF file; give one of its files, as " +
                gguf.string());
}

TEST_F(SafetensorsFolder, TheConfigurationLiesBeside) {
  const fs::path head = write("head.safetensors", sound_);
  EXPECT_EQ(read_config(head), std::nullopt);
  EXPECT_EQ(read_config(folder_), std::nullopt);
  write("config.json", R"({"medusa_num_heads": 2})");
  for (const fs::path& path : {head, folder_, folder_ / "no file"})
    EXPECT_EQ(read_config(path)->at("medusa_num_heads"), 2);
  struct Case {
    std::string content, expected;
  };
  const Case cases[] = {
      {"", "config.json: not valid JSON at byte 1"},
      {"{", "config.json: not valid JSON at byte 2"},
      {"{\"a\": \"\xff\"}", "config.json: not valid JSON at byte 8"},
      {"[]", "config.json: holds JSON of type array, expected an object"},
      {std::string(100, '['), "config.json: JSON nested more than 64 levels deep"},
      {std::string((1 << 20) + 1, ' '), "config.json: has 1048577 bytes, expected at most 1048576"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.expected);
    write("config.json", c.content);
    EXPECT_EQ(problem_of([&] { read_config(head); }), c.expected);
  }
  fs::remove(folder_ / "config.json");
  fs::create_directory(folder_ / "config.json");
  EXPECT_TRUE(
      problem_of([&] { read_config(head); }).starts_with("config.json: is no regular file"));
}

}  // namespace
}  // namespace outrider
