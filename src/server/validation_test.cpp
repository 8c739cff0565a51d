#include "server/validation.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

TEST(Validation, NamesOfDraftersDoNotForgeLines) {
  FakeScheduler served;
  GenerationFields fields;
  fields.drafters = {{"a\nb"}};
  try {
    check_fields(*served.model(), fields);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_EQ(error.param, "speculation.draft");
  }
}

}  // namespace
}  // namespace outrider
