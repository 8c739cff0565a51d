#include "server/answering.h"

#include <gtest/gtest.h>

#include "server/fake_reply.h"
#include "server/fake_served_model.h"

namespace outrider {
namespace {

GenerationFields fields_with_seed() {
  GenerationFields fields;
  fields.seed = 1;
  return fields;
}

// More than the context could never be used, and each of n answers has a copy.
TEST(Answering, APredictionIsAsLongAsTheContextAtMost) {
  FakeScheduler served;
  GenerationFields fields = fields_with_seed();
  fields.prediction = std::string(5000, 'a');
  const AnswerRequest request = answer_request(*served.model(), fields, {5}, {});
  EXPECT_EQ(request.request.options.prediction.size(), 1000u);
}

TEST(Answering, KeysShareOnlyIfAsked) {
  FakeScheduler served;
  GenerationFields fields = fields_with_seed();
  const auto scope = [&](std::optional<std::size_t> key) {
    return answer_request(*served.model(), fields, {5}, key).request.options.scope;
  };
  EXPECT_NE(scope(0), scope(1));
  EXPECT_NE(scope(0), scope({}));
  fields.cache_salt = "salt";
  EXPECT_NE(scope(0), scope(1));
  served.setting().keys_share = true;
  EXPECT_EQ(scope(0), scope(1));
  const CacheScope salted = scope(0);
  fields.cache_salt.clear();
  EXPECT_EQ(scope(0), scope({}));
  EXPECT_NE(scope(0), salted);
}

// Asking again would not help.
TEST(Answering, MoreAnswersThanTheServerTakesAreRefused) {
  FakeScheduler served;
  served.setting().answers_max = 3;
  const auto give = [&](int n) {
    Asked asked;
    add_choices(asked.answers, answer_request(*served.model(), fields_with_seed(), {5}, {}), n);
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

TEST(Answering, NamesOfDraftersDoNotForgeLines) {
  FakeScheduler served;
  GenerationFields fields = fields_with_seed();
  fields.drafters = {{"a\nb"}};
  try {
    answer_request(*served.model(), fields, {5}, {});
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_EQ(error.param, "speculation.draft");
  }
}

}  // namespace
}  // namespace outrider
