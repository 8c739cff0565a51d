// The element types that tensors have: those of model files, by GGUF's names and numbers, those of
// tables that lie beside weights, and two that only memory holds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outrider {

enum class TensorType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  q1_0 = 41,
  // Of tables, such as the vocabulary of a draft head: read, but no weights.
  i32 = 26,
  i64 = 27,
  u8 = 1002,       // safetensors files alone
  boolean = 1003,  // these, too: a byte, 0 or 1
  // Not GGUF's, and in no file.
  q4_128 = 1000,  // what a draft model's weights are encoded in (numerics/encode.h)
  q8_256 = 1001,  // what IQ1 to IQ3 are unpacked to (cpu/panel.h)
};

// A tensor's rows are cut into blocks of `block_elements` elements, each stored in `block_bytes`
// bytes.
struct TensorTypeTraits {
  TensorType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  std::size_t block_elements;
  std::size_t block_bytes;
};

const TensorTypeTraits& traits(TensorType type);
bool is_weight_type(TensorType type);  // false: of tables
// Of weights.
std::span<const TensorTypeTraits> all_tensor_types();
std::span<const TensorTypeTraits> gguf_tensor_types();  // those that are read from files
// Of tables.
std::span<const TensorTypeTraits> table_types();

// The type that GGUF numbers `number`, if this program reads it, also of tables.
std::optional<TensorType> tensor_type_from_gguf(std::uint32_t number);

// "MXFP4", for messages: of every type that GGUF has, read or not; "number 99" for others.
std::string gguf_type_name(std::uint32_t number);

}  // namespace outrider
