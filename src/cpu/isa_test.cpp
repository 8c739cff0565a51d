#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

// The flags that Linux lists for the first processor.
std::set<std::string> flags_of_linux() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(Isa, TheReferenceIsAlwaysThereAndLinuxAgrees) {
  const std::set<std::string> flags = flags_of_linux();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const auto has_all = [&](std::initializer_list<const char*> wanted) {
    return std::ranges::all_of(wanted, [&](const char* flag) { return flags.contains(flag); });
  };
  std::vector<Isa> expected = {Isa::reference};
  if (has_all({"avx2", "fma", "f16c"})) {
    const bool avx512 = has_all({"avx512f", "avx512bw", "avx512vl", "avx512_vnni"});
    expected.push_back(Isa::avx2);
    if (avx512 || has_all({"avx_vnni"})) expected.push_back(Isa::avxvnni);
    if (avx512) expected.push_back(Isa::avx512);
    if (avx512 && has_all({"amx_tile", "amx_int8"})) expected.push_back(Isa::amx);
  }
  const auto available = available_isas();
  EXPECT_EQ(std::vector(available.begin(), available.end()), expected);
  if (is_available(Isa::avxvnni)) {
    EXPECT_EQ(vnni_encoding() == VnniEncoding::vex, has_all({"avx_vnni"}));
  }
}

TEST(Isa, WhatIsAvailableIsWhatIsListed) {
  for (const Isa isa : {Isa::reference, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::amx}) {
    const auto listed = available_isas();
    EXPECT_EQ(is_available(isa), std::find(listed.begin(), listed.end(), isa) != listed.end());
    EXPECT_FALSE(name(isa).empty());
  }
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
  if (is_available(Isa::amx)) GTEST_SKIP() << "this machine has every set";
  const Forced forced("amx");
  EXPECT_NE(message_of_chosen_isa(), "");
}

}  // namespace
}  // namespace outrider
