#include "formats/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/gguf_writer.h"

namespace outrider {
namespace {

std::vector<std::byte> zeros(std::size_t n) {
  return std::vector<std::byte>(n);
}

// A small, sound file with a value of every type.
GgufWriter sound_file(std::uint32_t version = 3, std::uint32_t alignment = 32) {
  GgufWriter out(version, alignment);
  out.add("general.architecture", "llama");
  out.add("i8", std::int8_t{-8});
  out.add("u8", std::uint8_t{200});
  out.add("i16", std::int16_t{-3000});
  out.add("u16", std::uint16_t{60000});
  out.add("i32", std::int32_t{-2000000000});
  out.add("u32", std::uint32_t{4000000000});
  out.add("i64", std::int64_t{-1} << 40);
  out.add("u64", std::uint64_t{1} << 40);
  out.add("u64.large", ~std::uint64_t{0});
  out.add("f32", 0.5f);
  out.add("f64", 0.1);
  out.add("bool", true);
  out.add("integers", std::vector<std::uint16_t>{1, 65535});
  out.add("numbers", std::vector<float>{1.5f, -2.0f});
  out.add("booleans", std::vector<bool>{true, false, true});
  out.add("strings", std::vector<std::string>{"a", "", "\xc3\xa9"});
  out.add("nothing", std::vector<std::string>{});
  std::vector<std::byte> values(12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i);
  out.add_tensor("first", TensorType::f32, std::vector<std::int64_t>{3, 1}, values);
  out.add_tensor("second", TensorType::q4_k, std::vector<std::int64_t>{256, 2, 1, 1}, zeros(288));
  return out;
}

TEST(Gguf, ReadsWhatWasWritten) {
  for (const std::uint32_t version : {2u, 3u}) {
    for (const std::uint32_t alignment : {8u, 32u, 4096u}) {
      SCOPED_TRACE(fmt::format("version {}, alignment {}", version, alignment));
      const std::vector<std::byte> bytes = sound_file(version, alignment).bytes();
      const Checkpoint file = read_gguf(bytes, "small.gguf");
      const Metadata& m = file.metadata;
      EXPECT_EQ(m.string("general.architecture"), "llama");
      EXPECT_EQ(m.integer("i8"), -8);
      EXPECT_EQ(m.integer("u8"), 200);
      EXPECT_EQ(m.integer("i16"), -3000);
      EXPECT_EQ(m.integer("u16"), 60000);
      EXPECT_EQ(m.integer("i32"), -2000000000);
      EXPECT_EQ(m.integer("u32"), 4000000000);
      EXPECT_EQ(m.integer("i64"), std::int64_t{-1} << 40);
      EXPECT_EQ(m.integer("u64"), std::int64_t{1} << 40);
      EXPECT_THROW(m.integer("u64.large"), Error);
      EXPECT_EQ(m.number("u64.large"), 0x1p64);
      EXPECT_EQ(m.number("f32"), 0.5);
      EXPECT_EQ(m.number("f64"), 0.1);
      EXPECT_EQ(m.number("i8"), -8.0);
      EXPECT_EQ(m.boolean("bool"), true);
      EXPECT_EQ(*m.integers("integers"), (std::vector<std::int64_t>{1, 65535}));
      EXPECT_EQ(*m.numbers("numbers"), (std::vector<double>{1.5, -2.0}));
      EXPECT_EQ(std::get<std::vector<bool>>(*m.find("booleans")),
                (std::vector<bool>{true, false, true}));
      EXPECT_EQ(*m.strings("strings"), (std::vector<std::string>{"a", "", "\xc3\xa9"}));
      EXPECT_TRUE(m.strings("nothing")->empty());
      EXPECT_EQ(m.integer("absent"), std::nullopt);
      EXPECT_EQ(m.strings("absent"), nullptr);

      ASSERT_EQ(file.tensors.size(), 2u);
      const TensorView* first = file.find("first");
      ASSERT_NE(first, nullptr);
      EXPECT_EQ(first->shape, (std::vector<std::int64_t>{3, 1}));
      ASSERT_EQ(first->bytes.size(), 12u);
      EXPECT_EQ(first->bytes[11], std::byte{11});
      const TensorView* second = file.find("second");
      ASSERT_NE(second, nullptr);
      EXPECT_EQ(second->type, TensorType::q4_k);
      EXPECT_EQ(second->rows(), 2);
      EXPECT_EQ(second->bytes.size(), 288u);
      EXPECT_EQ((second->bytes.data() - bytes.data()) % alignment, 0);
      EXPECT_EQ(file.find("third"), nullptr);
    }
  }
}

TEST(Gguf, MetadataSaysWhatItExpected) {
  const std::vector<std::byte> bytes = sound_file().bytes();
  const Checkpoint file = read_gguf(bytes, "small.gguf");
  const Metadata& m = file.metadata;
  struct Case {
    std::function<void()> ask;
    const char* message;
  };
  const Case cases[] = {
      {[&] { m.integer("f32"); },
       "small.gguf: key f32 holds a float, expected an integer; convert the model again"},
      {[&] { m.number("bool"); },
       "small.gguf: key bool holds a boolean, expected a float; convert the model again"},
      {[&] { m.boolean("i8"); },
       "small.gguf: key i8 holds an integer, expected a boolean; convert the model again"},
      {[&] { m.string("strings"); },
       "small.gguf: key strings holds an array of strings, expected a string; convert the model "
       "again"},
      {[&] { m.strings("integers"); },
       "small.gguf: key integers holds an array of integers, expected an array of strings; convert "
       "the model again"},
      {[&] { m.integers("numbers"); },
       "small.gguf: key numbers holds an array of floats, expected an array of integers; convert "
       "the model again"},
      {[&] { m.numbers("f32"); },
       "small.gguf: key f32 holds a float, expected an array of floats; convert the model again"},
      {[&] { m.integer("u64.large"); },
       "small.gguf: key u64.large is 18446744073709551615, expected at most 9223372036854775807; "
       "convert the model again"},
      {[&] { m.require_integer("absent", 0, 1); },
       "small.gguf: key absent is missing; convert the model again"},
      {[&] { m.require_integer("u8", 0, 199); },
       "small.gguf: key u8 is 200, expected 0 to 199; convert the model again"},
      {[&] { m.require_integer("i8", 0, 199); },
       "small.gguf: key i8 is -8, expected 0 to 199; convert the model again"},
      {[&] { m.require_number("absent"); },
       "small.gguf: key absent is missing; convert the model again"},
      {[&] { m.require_string("absent"); },
       "small.gguf: key absent is missing; convert the model again"},
  };
  for (const Case& c : cases) {
    try {
      c.ask();
      ADD_FAILURE() << "no error, expected: " << c.message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.message);
    }
  }
  EXPECT_EQ(m.require_integer("u8", 0, 200), 200);
}

// Every error is one line that begins with the file's name and ends with what to do.
void expect_one_line(const Error& error) {
  const std::string line = error.what();
  EXPECT_EQ(line.rfind("bad.gguf: ", 0), 0u) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  EXPECT_LT(line.size(), 400u) << line;
}

void expect_error(std::span<const std::byte> bytes, std::string_view message_part) {
  try {
    read_gguf(bytes, "bad.gguf");
    ADD_FAILURE() << "read without an error, expected: " << message_part;
  } catch (const Error& error) {
    expect_one_line(error);
    EXPECT_NE(std::string_view(error.what()).find(message_part), std::string_view::npos)
        << "found:    " << error.what() << "\nexpected: " << message_part;
  }
}

TEST(Gguf, EveryPrefixIsAnError) {
  const std::vector<std::byte> bytes = sound_file().bytes();
  const Checkpoint file = read_gguf(bytes, "whole.gguf");
  const std::size_t end =
      static_cast<std::size_t>(&file.tensors[1].bytes.back() + 1 - bytes.data());
  for (std::size_t length = 0; length < end; ++length) {
    SCOPED_TRACE(length);
    // A copy of exactly this length, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> prefix(bytes.begin(),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(length));
    expect_error(prefix, "");
  }
  EXPECT_NO_THROW(read_gguf(std::span(bytes).first(end), "whole.gguf"));  // only padding is missing
}

// A file written field by field, so that every field can be wrong.
class Raw : public ByteWriter {
 public:
  Raw& u8(std::uint8_t v) { return put(v); }
  Raw& u32(std::uint32_t v) { return put(v); }
  Raw& u64(std::uint64_t v) { return put(v); }
  Raw& text(std::string_view v) {
    u64(v.size());
    return raw(v);
  }
  Raw& raw(std::string_view v) {
    write(v);
    return *this;
  }
  Raw& header(std::uint64_t n_tensors, std::uint64_t n_keys) {
    return raw("GGUF").u32(3).u64(n_tensors).u64(n_keys);
  }
  Raw& tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
              std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t extent : shape) u64(extent);
    return u32(type).u64(offset);
  }
  // What follows the header: padding and n bytes.
  Raw& tensor_bytes(std::size_t n) {
    pad(32);
    write(std::span<const std::byte>(zeros(n)));
    return *this;
  }

 private:
  template <typename T>
  Raw& put(T v) {
    write(v);
    return *this;
  }
};

constexpr std::uint64_t kNegative = ~std::uint64_t{0};
constexpr std::uint32_t kF32 = 0, kQ4K = 12;

TEST(Gguf, MalformedFilesGiveOneClearLine) {
  struct Case {
    const char* name;
    Raw file;
    const char* message;
  };
  const auto one_tensor = [](const std::vector<std::uint64_t>& shape, std::uint32_t type,
                             std::uint64_t offset, std::size_t n_bytes) {
    return Raw().header(1, 0).tensor("t", shape, type, offset).tensor_bytes(n_bytes);
  };
  const auto two_tensors = [](std::uint64_t first, std::uint64_t second) {
    return Raw()
        .header(2, 0)
        .tensor("a", {16}, kF32, first)
        .tensor("b", {16}, kF32, second)
        .tensor_bytes(128);
  };
  const auto with_key = [](const std::function<void(Raw&)>& value) {
    Raw raw;
    value(raw.header(0, 1).text("k"));
    return raw;
  };
  const Case cases[] = {
      {"empty", Raw(), "the file is empty"},
      {"wrong magic", Raw().raw("ggml").u32(3).u64(0).u64(0),
       "begins with \"ggml\", expected \"GGUF\""},
      {"binary magic", Raw().raw("\n\x01\xff\"").u32(3), "begins with \"\\x0a\\x01\\xff\\x22\""},
      {"version 1", Raw().raw("GGUF").u32(1).u32(0).u32(0), "is GGUF version 1, expected 2 or 3"},
      {"version 4", Raw().raw("GGUF").u32(4).u64(0).u64(0), "is GGUF version 4, expected 2 or 3"},
      {"big-endian", Raw().raw("GGUF").u32(0x03000000).u64(0).u64(0),
       "version 3 in big-endian bytes"},
      {"negative tensor count", Raw().header(kNegative, 0), "claims to hold -1 tensors"},
      {"huge tensor count", Raw().header(std::uint64_t{1} << 62, 0),
       "claims to hold 4611686018427387904 tensors"},
      {"tensors that are not there", Raw().header(60000, 0),
       "a tensor's name at byte 24 needs 8 bytes"},
      {"negative key count", Raw().header(0, kNegative), "claims to hold -1 keys"},
      {"huge key count", Raw().header(0, std::uint64_t{1} << 40),
       "claims to hold 1099511627776 keys"},
      {"keys that are not there", Raw().header(0, 60000), "a key at byte 24 needs 8 bytes"},
      {"negative key length", Raw().header(0, 1).u64(kNegative).raw("k"),
       "a key at byte 32 needs 18446744073709551615 bytes"},
      {"key longer than the file", Raw().header(0, 1).u64(100).raw("k"),
       "a key at byte 32 needs 100 bytes, but the file ends after 1 more"},
      {"empty key", Raw().header(0, 1).text("").u32(7).u8(1), "a key at byte 32 is empty"},
      {"duplicate key", Raw().header(0, 2).text("k").u32(7).u8(1).text("k").u32(7).u8(1),
       "key k appears twice"},
      {"unknown value type", with_key([](Raw& r) { r.u32(13).u64(0); }),
       "key k has value type 13, expected 0 to 12"},
      {"invalid bool", with_key([](Raw& r) { r.u32(7).u8(2); }),
       "key k holds 2 as a boolean, expected 0 or 1"},
      {"invalid bool in an array", with_key([](Raw& r) { r.u32(9).u32(7).u64(2).u8(1).u8(255); }),
       "key k holds 255 as a boolean"},
      {"negative string length", with_key([](Raw& r) { r.u32(8).u64(kNegative); }),
       "key k at byte 45 needs 18446744073709551615 bytes"},
      {"nested arrays", with_key([](Raw& r) { r.u32(9).u32(9).u64(1).u32(4).u64(1).u32(0); }),
       "key k is an array of arrays"},
      {"array of an unknown type", with_key([](Raw& r) { r.u32(9).u32(77).u64(0); }),
       "array of value type 77, expected 0 to 12"},
      {"negative array length", with_key([](Raw& r) { r.u32(9).u32(4).u64(kNegative); }),
       "key k claims -1 elements"},
      {"array length that wraps in bytes",
       with_key([](Raw& r) { r.u32(9).u32(11).u64(std::uint64_t{1} << 61).u64(0); }),
       "key k claims 2305843009213693952 elements"},
      {"array longer than the file", with_key([](Raw& r) { r.u32(9).u32(11).u64(1 << 24).u64(0); }),
       "key k at byte 49 needs 134217728 bytes, but the file ends after 8 more"},
      {"string array longer than the file",
       with_key([](Raw& r) { r.u32(9).u32(8).u64(1 << 24).text(""); }),
       "key k at byte 57 needs 8 bytes"},
      {"bool array longer than the file",
       with_key([](Raw& r) { r.u32(9).u32(7).u64(1 << 24).u8(1); }), "key k at byte 50"},
      {"arrays too long together",
       Raw()
           .header(0, 2)
           .text("a")
           .u32(9)
           .u32(0)
           .u64(1 << 24)
           .raw(std::string(1 << 24, 'x'))
           .text("b")
           .u32(9)
           .u32(0)
           .u64(1)
           .u8(0),
       "key b claims 1 elements, expected at most 16777216 in all arrays together"},
      {"uint64 element beyond int64",
       with_key([](Raw& r) { r.u32(9).u32(10).u64(1).u64(kNegative); }),
       "key k has an element 18446744073709551615"},
      {"hostile key in a message", Raw().header(0, 1).text("\x1b[31m\n\xff").u32(99),
       "key \\x1b[31m\\x0a\\xff has value type 99"},
      {"long key in a message", Raw().header(0, 1).text(std::string(60000, 'x')).u32(99),
       "xxx... has value type 99"},
      {"alignment of a wrong type", Raw().header(0, 1).text("general.alignment").u32(8).text("32"),
       "key general.alignment holds a string, expected an integer"},
      {"alignment 0", Raw().header(0, 1).text("general.alignment").u32(4).u32(0),
       "general.alignment is 0, expected a power of two"},
      {"alignment 48", Raw().header(0, 1).text("general.alignment").u32(4).u32(48),
       "general.alignment is 48"},
      {"alignment 4", Raw().header(0, 1).text("general.alignment").u32(4).u32(4),
       "general.alignment is 4"},
      {"alignment negative", Raw().header(0, 1).text("general.alignment").u32(11).u64(kNegative),
       "general.alignment is -1"},
      {"alignment 2^32",
       Raw().header(0, 1).text("general.alignment").u32(11).u64(std::uint64_t{1} << 32),
       "general.alignment is 4294967296"},
      {"empty tensor name", Raw().header(1, 0).tensor("", {1}, kF32, 0).tensor_bytes(4),
       "the name of the tensor at byte 32 is empty"},
      {"duplicate tensor name",
       Raw().header(2, 0).tensor("t", {1}, kF32, 0).tensor("t", {1}, kF32, 32).tensor_bytes(64),
       "tensor t appears twice"},
      {"no dimensions", one_tensor({}, kF32, 0, 4), "tensor t has 0 dimensions, expected 1 to 4"},
      {"too many dimensions", one_tensor({1, 1, 1, 1, 1}, kF32, 0, 4),
       "tensor t has 5 dimensions, expected 1 to 4"},
      {"4 billion dimensions", Raw().header(1, 0).text("t").u32(0xffffffff),
       "tensor t has 4294967295 dimensions"},
      {"dimension of size 0", one_tensor({32, 0}, kF32, 0, 4),
       "tensor t has dimension 1 of size 0, expected at least 1"},
      {"negative dimension", one_tensor({kNegative}, kF32, 0, 4),
       "tensor t has dimension 0 of size -1"},
      {"elements wrap", one_tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, kF32, 0, 4),
       "tensor t has more elements than can be counted"},
      {"elements beyond int64", one_tensor({std::uint64_t{1} << 62, 2}, kQ4K, 0, 144),
       "tensor t has more elements than can be counted"},
      {"bytes wrap", one_tensor({std::uint64_t{1} << 62}, kF32, 0, 4),
       "tensor t has more elements than can be counted"},
      {"rows of broken blocks", one_tensor({255}, kQ4K, 0, 144),
       "tensor t has rows of 255 elements, but Q4_K stores blocks of 256"},
      {"rows of broken blocks in a whole product", one_tensor({128, 2}, kQ4K, 0, 144),
       "rows of 128 elements"},
      {"type that is not read", one_tensor({32}, 39, 0, 64),
       "tensor t has type MXFP4, which is not read; choose a file in F32, F16,"},
      {"type of numbers that are no weights", one_tensor({32}, 28, 0, 256),
       "tensor t has type F64, which is not read; choose a file in F32, F16,"},
      {"type that GGUF dropped", one_tensor({32}, 4, 0, 64),
       "tensor t has type Q4_2, which is not read"},
      {"type that nobody knows", one_tensor({32}, 0xffffffff, 0, 64),
       "tensor t has type number 4294967295, which is not read"},
      {"misaligned", one_tensor({1}, kF32, 4, 64),
       "tensor t begins at 4 of the tensor bytes, expected a multiple of 32"},
      {"ends past the file", one_tensor({32}, kF32, 0, 127),
       "tensor t needs 128 bytes at 0 of the tensor bytes, of which the file has 127"},
      {"begins past the file", one_tensor({32}, kF32, 1024, 128),
       "tensor t needs 128 bytes at 1024 of the tensor bytes"},
      {"offset plus size wraps", one_tensor({32}, kF32, kNegative - 31, 128),
       "tensor t needs 128 bytes at 18446744073709551584"},
      {"size plus offset wraps", one_tensor({(std::uint64_t{1} << 62) - 1}, kF32, 32, 128),
       "tensor t needs 18446744073709551612 bytes at 32 of the tensor bytes"},
      {"no room for padding", Raw().header(1, 0).tensor("t", {1}, kF32, 0),
       "of which the file has 0"},
      {"overlap", two_tensors(0, 32), "tensors a and b overlap"},
      {"overlap in reverse", two_tensors(32, 0), "tensors b and a overlap"},
      {"same place", two_tensors(64, 64), "overlap"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    expect_error(c.file.bytes(), c.message);
  }
  // The same builders make sound files as well.
  EXPECT_NO_THROW(read_gguf(two_tensors(64, 0).bytes(), "good.gguf"));
  EXPECT_NO_THROW(read_gguf(one_tensor({32}, kF32, 0, 128).bytes(), "good.gguf"));
  EXPECT_NO_THROW(read_gguf(Raw().header(0, 0).bytes(), "good.gguf"));
  EXPECT_NO_THROW(read_gguf(with_key([](Raw& r) { r.u32(7).u8(1); }).bytes(), "good.gguf"));
}

// Any one byte of the header changed: an error or a file, nothing else. The sanitizers check more
// here.
TEST(Gguf, EveryByteMayChange) {
  const std::vector<std::byte> sound = sound_file().bytes();
  std::size_t n_errors = 0;
  for (std::size_t i = 0; i < sound.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::vector<std::byte> bytes = sound;
      bytes[i] ^= static_cast<std::byte>(change);
      try {
        const Checkpoint file = read_gguf(bytes, "bad.gguf");
        for (const TensorView& tensor : file.tensors) {
          EXPECT_GE(tensor.bytes.data(), bytes.data());
          EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size());
        }
      } catch (const Error& error) {
        expect_one_line(error);
        ++n_errors;
      }
    }
  }
  EXPECT_GT(n_errors, 100u);
}

class TemporaryFile {
 public:
  explicit TemporaryFile(std::span<const std::byte> bytes) {
    std::string path = std::filesystem::temp_directory_path() / "outrider_gguf_XXXXXX";
    const int file = ::mkstemp(path.data());
    EXPECT_EQ(::write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(file);
    path_ = path;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Gguf, ReadsAFile) {
  const TemporaryFile on_disk(sound_file().bytes());
  Checkpoint moved = read_gguf(on_disk.path());
  const Checkpoint file = std::move(moved);
  EXPECT_EQ(file.path, on_disk.path().string());
  EXPECT_EQ(file.find("first")->bytes[5], std::byte{5});
  file.release(file.files.front().bytes());
  EXPECT_EQ(file.find("first")->bytes[7], std::byte{7});  // read again from the file
}

TEST(Gguf, FilesThatCannotBeRead) {
  struct Case {
    std::filesystem::path path;
    const char* message;
  };
  const TemporaryFile empty({});
  const Case cases[] = {
      {"/nonexistent/x.gguf", "/nonexistent/x.gguf: cannot be opened: No such file or directory"},
      {"/", "/: is a folder, expected a GGUF file; give the path of a .gguf file"},
      {"/dev/zero", "/dev/zero: is no regular file"},
      {empty.path(), ": the file is empty"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    try {
      read_gguf(c.path);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    }
  }
}

TEST(GgufWriter, CopiesWhatWasRead) {
  const std::vector<std::byte> bytes = sound_file().bytes();
  const Checkpoint file = read_gguf(bytes, "small.gguf");
  GgufWriter copy;
  for (const auto& [key, value] : file.metadata.entries()) copy.add(key, value);
  for (const TensorView& t : file.tensors) copy.add_tensor(t.name, t.type, t.shape, t.bytes);
  const std::vector<std::byte> copied_bytes = copy.bytes();
  const Checkpoint again = read_gguf(copied_bytes, "copy.gguf");
  EXPECT_EQ(again.metadata.entries(), file.metadata.entries());
  ASSERT_EQ(again.tensors.size(), file.tensors.size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    EXPECT_EQ(again.tensors[i].name, file.tensors[i].name);
    EXPECT_EQ(again.tensors[i].shape, file.tensors[i].shape);
    EXPECT_TRUE(std::equal(again.tensors[i].bytes.begin(), again.tensors[i].bytes.end(),
                           file.tensors[i].bytes.begin(), file.tensors[i].bytes.end()));
  }
}

TEST(TensorType, TraitsAgreeWithTheNumbering) {
  EXPECT_EQ(gguf_tensor_types().size(), 25u);
  for (const TensorTypeTraits& t : gguf_tensor_types()) {
    const auto number = static_cast<std::uint32_t>(t.type);
    EXPECT_EQ(tensor_type_from_gguf(number), t.type);
    EXPECT_EQ(gguf_type_name(number), t.name);
    EXPECT_EQ(&traits(t.type), &t);
  }
  EXPECT_EQ(tensor_type_from_gguf(39), std::nullopt);
  EXPECT_EQ(gguf_type_name(39), "MXFP4");
  for (const TensorType type :
       {TensorType::q4_128, TensorType::q8_256, TensorType::u8, TensorType::boolean})
    EXPECT_EQ(tensor_type_from_gguf(static_cast<std::uint32_t>(type)), std::nullopt);
}

// Tables are read, and nothing that goes through the types of weights meets them.
TEST(TensorType, TablesAreNoWeights) {
  EXPECT_EQ(tensor_type_from_gguf(26), TensorType::i32);
  EXPECT_EQ(tensor_type_from_gguf(27), TensorType::i64);
  EXPECT_EQ(gguf_type_name(26), traits(TensorType::i32).name);
  EXPECT_EQ(gguf_type_name(27), traits(TensorType::i64).name);
  EXPECT_EQ(table_types().size(), 4u);
  for (const TensorTypeTraits& table : table_types()) {
    SCOPED_TRACE(table.name);
    EXPECT_EQ(&traits(table.type), &table);
    EXPECT_FALSE(is_weight_type(table.type));
    EXPECT_EQ(table.block_elements, 1u);
  }
  for (const TensorTypeTraits& weights : all_tensor_types())
    EXPECT_TRUE(is_weight_type(weights.type)) << weights.name;

  GgufWriter out;
  const std::vector<std::int64_t> ids = {7, -1, std::int64_t{1} << 40};
  out.add_tensor("d2t", TensorType::i64, std::vector<std::int64_t>{3},
                 std::as_bytes(std::span(ids)));
  const std::vector<std::byte> bytes = out.bytes();
  const Checkpoint file = read_gguf(bytes, "head.gguf");
  const TensorView* table = file.find("d2t");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->type, TensorType::i64);
  EXPECT_EQ(table->shape, (std::vector<std::int64_t>{3}));
  EXPECT_TRUE(std::ranges::equal(table->bytes, std::as_bytes(std::span(ids))));
}

// A real file of every vocabulary and family that the catalogue has.
TEST(Gguf, RealModels) {
  const char* cache = std::getenv("OUTRIDER_CACHE");
  if (cache == nullptr) GTEST_SKIP() << "OUTRIDER_CACHE is not set";
  struct Case {
    const char* file;
    const char* architecture;
    std::size_t n_tensors, vocabulary;
  };
  const Case cases[] = {
      {"smollm2-135m.gguf", "llama", 272, 49152},
      {"qwen2.5-coder-0.5b.gguf", "qwen2", 291, 151936},
      {"qwen2.5-coder-1.5b.gguf", "qwen2", 339, 151936},
      {"gemma3-270m.gguf", "gemma3", 236, 262144},
  };
  int n_read = 0;
  for (const Case& c : cases) {
    const std::filesystem::path path = std::filesystem::path(cache) / "models" / c.file;
    if (!std::filesystem::exists(path)) continue;
    SCOPED_TRACE(c.file);
    const Checkpoint file = read_gguf(path);
    EXPECT_EQ(file.metadata.string("general.architecture"), c.architecture);
    EXPECT_EQ(file.tensors.size(), c.n_tensors);
    EXPECT_EQ(file.metadata.strings("tokenizer.ggml.tokens")->size(), c.vocabulary);
    ++n_read;
  }
  if (n_read == 0) GTEST_SKIP() << "no model in " << cache;
}

// A model in three files in a folder of its own.
class Parts : public ::testing::Test {
 protected:
  Parts() {
    std::filesystem::create_directories(folder_);
    for (int number = 1; number <= 3; ++number) write(number, part(number));
  }
  ~Parts() override { std::filesystem::remove_all(folder_); }

  static GgufWriter part(int number, int count = 3, int n_tensors = 3) {
    GgufWriter out;
    if (number == 1) out.add("general.architecture", "llama");
    out.add("split.no", static_cast<std::uint16_t>(number - 1));
    out.add("split.count", static_cast<std::uint16_t>(count));
    out.add("split.tensors.count", std::int32_t{n_tensors});
    const std::vector<std::byte> values(4, static_cast<std::byte>(number));
    out.add_tensor(fmt::format("tensor{}", number), TensorType::f32, std::vector<std::int64_t>{1},
                   values);
    return out;
  }
  std::filesystem::path path(int number) const {
    return folder_ / fmt::format("m-{:05}-of-00003.gguf", number);
  }
  void write(int number, const GgufWriter& out) const { out.save(path(number)); }
  std::string problem(const std::filesystem::path& first) const {
    try {
      read_gguf(first);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("parts{}", ::getpid());
};

TEST_F(Parts, AreOneModel) {
  const Checkpoint whole = read_gguf(path(1));
  EXPECT_EQ(whole.files.size(), 3u);
  EXPECT_EQ(whole.metadata.string("general.architecture"), "llama");
  ASSERT_EQ(whole.tensors.size(), 3u);
  for (int number = 1; number <= 3; ++number) {
    const TensorView* tensor = whole.find(fmt::format("tensor{}", number));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->bytes[0], static_cast<std::byte>(number));
    whole.release(tensor->bytes);
    EXPECT_EQ(tensor->bytes[0], static_cast<std::byte>(number));
  }
  EXPECT_EQ(whole.file_bytes(),
            3 * whole.files[2].bytes().size() +
                (whole.files[0].bytes().size() - whole.files[2].bytes().size()));
  // A later part alone can be read, to be shown.
  EXPECT_EQ(read_gguf(path(2)).tensors.size(), 1u);
}

TEST_F(Parts, ThatAreMissingOrForeignAreNamed) {
  const auto expect = [&](const std::string& found) {
    const std::string said = problem(path(1));
    EXPECT_NE(said.find(found), said.npos) << said;
    EXPECT_EQ(said.find('\n'), said.npos);
  };
  std::filesystem::rename(path(3), folder_ / "away");
  expect("m-00001-of-00003.gguf: part 3 of 3 of this model is missing: ");
  std::filesystem::copy(path(2), path(3));
  expect("m-00003-of-00003.gguf: is no part 3 of 3 of the model that begins with m-00001-of");
  write(3, part(3, 4));
  expect("is no part 3 of 3");
  write(3, part(3, 3, 5));
  expect("is no part 3 of 3");
  GgufWriter twice = part(3);
  twice.add_tensor("tensor1", TensorType::f32, std::vector<std::int64_t>{1}, zeros(4));
  write(3, twice);
  expect("m-00003-of-00003.gguf: tensor tensor1 is in an earlier part, too");
  GgufWriter more = part(3);
  more.add_tensor("more", TensorType::f32, std::vector<std::int64_t>{1}, zeros(4));
  write(3, more);
  expect("its 3 parts hold 4 tensors, expected 3");
  std::filesystem::resize_file(path(3), 20);
  expect("m-00003-of-00003.gguf: ");
  std::filesystem::rename(path(1), folder_ / "model.gguf");
  const std::string said = problem(folder_ / "model.gguf");
  EXPECT_NE(said.find("must be called NAME-00001-of-00003.gguf"), said.npos) << said;
}

}  // namespace
}  // namespace outrider
