#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace outrider {
namespace {

// Sets OUTRIDER_ISA, or unsets it, for as long as it lives.
class Forced {
 public:
  explicit Forced(const char* value) {
    if (const char* before = std::getenv("OUTRIDER_ISA")) before_ = before;
    if (value)
      setenv("OUTRIDER_ISA", value, 1);
    else
      unsetenv("OUTRIDER_ISA");
  }
  ~Forced() {
    if (before_.empty())
      unsetenv("OUTRIDER_ISA");
    else
      setenv("OUTRIDER_ISA", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

std::string message_of_chosen_isa() {
  try {
    chosen_isa();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Isa, TheReferenceIsAlwaysThereAndTheCompilerAgrees) {
  const auto available = available_isas();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), Isa::reference);
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  EXPECT_EQ(available.size(), std::size_t{1} + avx2 + avx512);
}

TEST(Isa, TheBestIsChosenUnlessOneIsForced) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const Forced forced(nothing);
    EXPECT_EQ(chosen_isa(), available_isas().back());
  }
  for (const Isa isa : available_isas()) {
    const Forced forced(std::string(name(isa)).c_str());
    EXPECT_EQ(chosen_isa(), isa);
  }
}

TEST(Isa, AnUnknownNameIsAnErrorThatListsTheNames) {
  for (const char* unknown : {"avx", "AVX2", "avx512 ", "neon"}) {
    const Forced forced(unknown);
    const std::string message = message_of_chosen_isa();
    EXPECT_NE(message.find(unknown), std::string::npos) << message;
    for (const Isa isa : available_isas()) {
      EXPECT_NE(message.find(name(isa)), std::string::npos) << message;
    }
  }
}

TEST(Isa, ANameThatThisMachineLacksIsAnError) {
  if (available_isas().back() == Isa::avx512) GTEST_SKIP() << "this machine has every set";
  const Forced forced("avx512");
  EXPECT_NE(message_of_chosen_isa(), "");
}

}  // namespace
}  // namespace outrider
