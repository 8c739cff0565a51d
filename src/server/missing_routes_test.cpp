#include "server/missing_routes.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(MissingRoutes, AreFoundByPath) {
  for (const MissingRoute& route : missing_routes()) {
    std::string path = route.path;
    if (path.ends_with('*')) path.back() = 'x';
    EXPECT_EQ(instead_of(path), route.instead) << path;
  }
  EXPECT_EQ(instead_of("/nowhere"), "");
}

}  // namespace
}  // namespace outrider
