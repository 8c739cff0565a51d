#include "server/delivery.h"

#include <gtest/gtest.h>

#include "server/fake_reply.h"
#include "server/fake_served_model.h"

namespace outrider {
namespace {

// Asking again would not help.
TEST(Delivery, MoreAnswersThanTheServerTakesAreRefused) {
  FakeScheduler served;
  served.setting().answers_max = 3;
  const auto give = [&](std::size_t n) {
    Asked asked{.answers =
                    std::vector<AnswerRequest>(n, {.request = {.prompt = {5}, .sampling = {}}})};
    give_answers(*served.model(), std::move(asked), std::make_shared<FakeReply>());
  };
  try {
    give(4);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status, 400);
  }
  EXPECT_TRUE(served.submitted.empty());
  give(3);
  EXPECT_EQ(served.submitted.size(), 3u);
}

}  // namespace
}  // namespace outrider
