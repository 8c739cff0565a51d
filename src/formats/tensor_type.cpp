#include "formats/tensor_type.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace outrider {
namespace {

// Those that are not GGUF's come last.
constexpr std::size_t kOnlyInMemory = 2;
constexpr TensorTypeTraits kTypes[] = {
    {TensorType::f32, "F32", 1, 4},
    {TensorType::f16, "F16", 1, 2},
    {TensorType::bf16, "BF16", 1, 2},
    {TensorType::q4_0, "Q4_0", 32, 18},
    {TensorType::q4_1, "Q4_1", 32, 20},
    {TensorType::q5_0, "Q5_0", 32, 22},
    {TensorType::q5_1, "Q5_1", 32, 24},
    {TensorType::q8_0, "Q8_0", 32, 34},
    {TensorType::q2_k, "Q2_K", 256, 84},
    {TensorType::q3_k, "Q3_K", 256, 110},
    {TensorType::q4_k, "Q4_K", 256, 144},
    {TensorType::q5_k, "Q5_K", 256, 176},
    {TensorType::q6_k, "Q6_K", 256, 210},
    {TensorType::iq1_s, "IQ1_S", 256, 50},
    {TensorType::iq1_m, "IQ1_M", 256, 56},
    {TensorType::iq2_xxs, "IQ2_XXS", 256, 66},
    {TensorType::iq2_xs, "IQ2_XS", 256, 74},
    {TensorType::iq2_s, "IQ2_S", 256, 82},
    {TensorType::iq3_xxs, "IQ3_XXS", 256, 98},
    {TensorType::iq3_s, "IQ3_S", 256, 110},
    {TensorType::iq4_nl, "IQ4_NL", 32, 18},
    {TensorType::iq4_xs, "IQ4_XS", 256, 136},
    {TensorType::q1_0, "Q1_0", 128, 18},
    {TensorType::tq1_0, "TQ1_0", 256, 54},
    {TensorType::tq2_0, "TQ2_0", 256, 66},
    {TensorType::q4_128, "Q4_128", 128, 70},
    {TensorType::q8_256, "Q8_256", 256, 274},
};
constexpr TensorTypeTraits kTableTypes[] = {
    {TensorType::i32, "I32", 1, 4},
    {TensorType::i64, "I64", 1, 8},
    {TensorType::u8, "U8", 1, 1},
    {TensorType::boolean, "BOOL", 1, 1},
};
constexpr std::uint32_t kGgufNumbersEnd = 1000;  // larger numbers are ours

const TensorTypeTraits* find_type(std::span<const TensorTypeTraits> types, TensorType type) {
  const auto found = std::ranges::find(types, type, &TensorTypeTraits::type);
  return found == types.end() ? nullptr : &*found;
}

// All types of GGUF, so that a message can name one that is not read.
struct NumberedName {
  std::uint32_t number;
  std::string_view name;
};
constexpr NumberedName kNames[] = {
    {0, "F32"},     {1, "F16"},         {2, "Q4_0"},        {3, "Q4_1"},        {4, "Q4_2"},
    {5, "Q4_3"},    {6, "Q5_0"},        {7, "Q5_1"},        {8, "Q8_0"},        {9, "Q8_1"},
    {10, "Q2_K"},   {11, "Q3_K"},       {12, "Q4_K"},       {13, "Q5_K"},       {14, "Q6_K"},
    {15, "Q8_K"},   {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"},    {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"},      {22, "IQ2_S"},      {23, "IQ4_XS"},     {24, "I8"},
    {25, "I16"},    {26, "I32"},        {27, "I64"},        {28, "F64"},        {29, "IQ1_M"},
    {30, "BF16"},   {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},
    {35, "TQ2_0"},  {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"},
    {40, "NVFP4"},  {41, "Q1_0"},       {42, "Q2_0"},
};

}  // namespace

std::span<const TensorTypeTraits> all_tensor_types() {
  return kTypes;
}

std::span<const TensorTypeTraits> gguf_tensor_types() {
  return all_tensor_types().first(std::size(kTypes) - kOnlyInMemory);
}

std::span<const TensorTypeTraits> table_types() {
  return kTableTypes;
}

const TensorTypeTraits& traits(TensorType type) {
  const TensorTypeTraits* found = find_type(kTypes, type);
  if (found == nullptr) found = find_type(kTableTypes, type);
  CHECK(found != nullptr);
  return *found;
}

bool is_weight_type(TensorType type) {
  return find_type(kTypes, type) != nullptr;
}

std::optional<TensorType> tensor_type_from_gguf(std::uint32_t number) {
  const auto type = static_cast<TensorType>(number);
  const bool is_read =
      number < kGgufNumbersEnd && (find_type(kTypes, type) || find_type(kTableTypes, type));
  return is_read ? std::optional(type) : std::nullopt;
}

std::string gguf_type_name(std::uint32_t number) {
  for (const NumberedName& n : kNames) {
    if (n.number == number) return std::string(n.name);
  }
  return "number " + std::to_string(number);
}

}  // namespace outrider
