#include "formats/tensor_type.h"

#include <cstdlib>

#include "base/error.h"

namespace outrider {
namespace {

// The one that is not GGUF's comes last.
constexpr TensorTypeTraits kTypes[] = {
    {TensorType::f32, "F32", 1, 4},       {TensorType::f16, "F16", 1, 2},
    {TensorType::bf16, "BF16", 1, 2},     {TensorType::q4_0, "Q4_0", 32, 18},
    {TensorType::q4_1, "Q4_1", 32, 20},   {TensorType::q5_0, "Q5_0", 32, 22},
    {TensorType::q5_1, "Q5_1", 32, 24},   {TensorType::q8_0, "Q8_0", 32, 34},
    {TensorType::q3_k, "Q3_K", 256, 110}, {TensorType::iq4_nl, "IQ4_NL", 32, 18},
    {TensorType::q4_k, "Q4_K", 256, 144}, {TensorType::q5_k, "Q5_K", 256, 176},
    {TensorType::q6_k, "Q6_K", 256, 210}, {TensorType::q4_128, "Q4_128", 128, 70},
};

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
};

}  // namespace

std::span<const TensorTypeTraits> all_tensor_types() {
  return kTypes;
}

std::span<const TensorTypeTraits> gguf_tensor_types() {
  return all_tensor_types().first(std::size(kTypes) - 1);
}

const TensorTypeTraits& traits(TensorType type) {
  for (const TensorTypeTraits& t : kTypes) {
    if (t.type == type) return t;
  }
  CHECK(!"a tensor type of ours");
  std::abort();
}

std::optional<TensorType> tensor_type_from_gguf(std::uint32_t number) {
  for (const TensorTypeTraits& t : gguf_tensor_types()) {
    if (static_cast<std::uint32_t>(t.type) == number) return t.type;
  }
  return std::nullopt;
}

std::string gguf_type_name(std::uint32_t number) {
  for (const NumberedName& n : kNames) {
    if (n.number == number) return std::string(n.name);
  }
  return "number " + std::to_string(number);
}

}  // namespace outrider
