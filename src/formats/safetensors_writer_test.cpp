#include "formats/safetensors_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "formats/safetensors.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  SafetensorsWriterTest() { fs::create_directories(folder_); }
  ~SafetensorsWriterTest() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(::testing::TempDir()) / fmt::format("{}_writer", ::getpid());
};

TEST_F(SafetensorsWriterTest, IsReadAsItWasWritten) {
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> tokens{7, 8};
  const std::vector<std::uint16_t> none;
  const TensorToWrite tensors[] = {
      tensor_to_write("weights", TensorType::f32, {3, 2}, std::span(weights)),
      tensor_to_write("none", TensorType::bf16, {0, 4}, std::span(none)),
      tensor_to_write("tokens", TensorType::i32, {2}, std::span(tokens))};
  write_safetensors(folder_ / "out.safetensors", tensors, {{"format", "1"}});

  const Checkpoint file = read_safetensors(folder_ / "out.safetensors");
  EXPECT_EQ(file.metadata.string("format"), "1");
  ASSERT_EQ(file.tensors.size(), 3u);
  const TensorView& read = *file.find("weights");
  EXPECT_EQ(read.shape, (std::vector<std::int64_t>{2, 3}));  // GGUF's order
  ASSERT_EQ(read.bytes.size(), weights.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(read.bytes.data(), weights.data(), read.bytes.size()), 0);
  EXPECT_EQ(file.find("none")->bytes.size(), 0u);
  EXPECT_EQ(std::memcmp(file.find("tokens")->bytes.data(), tokens.data(), 8), 0);
  // The first tensor is aligned as in the file that is mapped.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.bytes.data()) % 64, 0u);
}

TEST_F(SafetensorsWriterTest, NothingIsLeftOfAFileThatFails) {
  const TensorToWrite failing{.name = "x",
                              .type = TensorType::f32,
                              .shape = {1 << 20},
                              .give = [](const TensorToWrite::Append& append) {
                                append(std::vector<std::byte>(100));
                                throw Error("no more");
                              }};
  EXPECT_THROW(write_safetensors(folder_ / "out", {&failing, 1}, {}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(write_safetensors(folder_ / "missing/out", {}, {}), Error);
}

TEST(SafetensorsWriterDeathTest, BytesFitTheShape) {
  const std::vector<float> values{1, 2};
  const TensorToWrite tensor = tensor_to_write("x", TensorType::f32, {3}, std::span(values));
  EXPECT_DEATH(write_safetensors("/tmp/outrider_never", {&tensor, 1}, {}), "n_given");
}

}  // namespace
}  // namespace outrider
