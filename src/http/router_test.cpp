#include "http/router.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(Router, FindsTheClosestRoute) {
  std::string called;
  const auto route = [&](const char* method, const char* path, const char* name) {
    return HttpRoute{method, path, [&called, name](const HttpRequest&, std::shared_ptr<HttpReply>) {
                       called = name;
                     }};
  };
  const Router router({route("GET", "/a/*", "below a"), route("GET", "/a/b/*", "below b"),
                       route("GET", "/a/b/c", "c"), route("POST", "/a/b/c", "post c"),
                       route("GET", "/a", "a"), route("POST", "/only", "only")});
  struct Case {
    const char *method, *path, *name, *allowed;
  };
  const Case cases[] = {
      {"GET", "/a", "a", "GET, HEAD"},
      {"HEAD", "/a", "a", "GET, HEAD"},
      {"GET", "/a/", "", ""},
      {"GET", "/a/x", "below a", "GET, HEAD"},
      {"GET", "/a/b", "below a", "GET, HEAD"},
      {"GET", "/a/b/x/y", "below b", "GET, HEAD"},
      {"GET", "/a/b/c", "c", "GET, HEAD, POST"},
      {"POST", "/a/b/c", "post c", "GET, HEAD, POST"},
      {"PUT", "/a/b/c", "", "GET, HEAD, POST"},
      {"POST", "/a/x", "", "GET, HEAD"},
      {"GET", "/only", "", "POST"},
      {"HEAD", "/only", "", "POST"},
      {"get", "/a", "", "GET, HEAD"},
      {"GET", "/A", "", ""},
      {"GET", "/ab", "", ""},
      {"GET", "", "", ""},
      {"OPTIONS", "*", "", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.method) + " " + c.path);
    called.clear();
    if (const HttpHandler* found = router.find(c.method, c.path)) (*found)({}, nullptr);
    EXPECT_EQ(called, c.name);
    EXPECT_EQ(router.allowed(c.path), c.allowed);
  }
}

}  // namespace
}  // namespace outrider
