#include "server/answer_request.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

GenerationFields fields_with_seed() {
  GenerationFields fields;
  fields.seed = 1;
  return fields;
}

// More than the context could never be used, and each of n answers has a copy.
TEST(AnswerRequest, APredictionIsAsLongAsTheContextAtMost) {
  FakeScheduler served;
  GenerationFields fields = fields_with_seed();
  fields.prediction = std::string(5000, 'a');
  const AnswerRequest request = answer_request(*served.model(), fields, {5}, {});
  EXPECT_EQ(request.request.options.prediction.size(), 1000u);
}

TEST(AnswerRequest, KeysShareOnlyIfAsked) {
  FakeScheduler served;
  GenerationFields fields = fields_with_seed();
  const auto scope = [&](std::optional<std::size_t> key) {
    return answer_request(*served.model(), fields, {5}, key).request.options.scope;
  };
  EXPECT_NE(scope(0), scope(1));
  EXPECT_NE(scope(0), scope({}));
  fields.cache_salt = "salt";
  EXPECT_NE(scope(0), scope(1));
  served.setting().keys_share_cache = true;
  EXPECT_EQ(scope(0), scope(1));
  const CacheScope salted = scope(0);
  fields.cache_salt.clear();
  EXPECT_EQ(scope(0), scope({}));
  EXPECT_NE(scope(0), salted);
}

}  // namespace
}  // namespace outrider
