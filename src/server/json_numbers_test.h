// Numbers of clients and models for tests: no route may change one.

#pragma once

#include <string>
#include <vector>

namespace outrider {

struct TestNumber {
  std::string written;
  std::string in_python = written;  // json.dumps(json.loads(written)): what chat templates write
};

inline const std::vector<TestNumber>& test_numbers() {
  static const std::vector<TestNumber> numbers = {
      {"9007199254740993"},
      {"-9007199254740993"},
      {"9223372036854775807"},
      {"-9223372036854775808"},
      {"9223372036854775808"},
      {"-9223372036854775809"},
      {"18446744073709551615"},
      {"18446744073709551616"},
      {"123456789012345678901234567890"},
      {std::string(4000, '7')},
      {"-0", "0"},
      {"1.0"},
      {"-0.0"},
      {"2.50", "2.5"},
      {"1E2", "100.0"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"1e-7", "1e-07"},
      {"0.00001", "1e-05"},
      {"0.0001"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"1e22", "1e+22"},
      {"5e-324"},
      {"1e-400", "0.0"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"9007199254740992.99999", "9007199254740992.0"},
      {"2.2250738585072011e-308", "2.225073858507201e-308"},
  };
  return numbers;
}

}  // namespace outrider
