#include "speculation/head_agreement.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(HeadAgreement, LowerByTwoStandardErrorsOfTheDifference) {
  struct Case {
    const char* name;
    Agreement found, expected;
    bool is_lower;
  };
  // Of 0.5 in 1,000 places twice the difference's error is 2 sqrt(2 / 4000) = 0.0447.
  const Case cases[] = {
      {"just within", {456, 1000}, {500, 1000}, false},
      {"just beyond", {455, 1000}, {500, 1000}, true},
      {"of one sample's error alone it would be", {460, 1000}, {500, 1000}, false},
      {"higher", {600, 1000}, {500, 1000}, false},
      {"the same share", {50, 100}, {500, 1000}, false},
      {"few places", {4, 10}, {700, 1000}, false},
      {"never right", {0, 1000}, {500, 1000}, true},
      {"both without spread", {0, 10}, {10, 10}, true},
      {"nothing found", {0, 0}, {500, 1000}, false},
      {"nothing expected", {0, 1000}, {0, 0}, false},
  };
  for (const Case& c : cases)
    EXPECT_EQ(is_clearly_lower(c.found, c.expected), c.is_lower) << c.name;
}

}  // namespace
}  // namespace outrider
