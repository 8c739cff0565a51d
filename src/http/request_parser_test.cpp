#include "http/request_parser_test.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "http/request_error.h"

namespace outrider {
namespace {

using namespace std::string_literals;

std::string chunked(std::string_view body) {
  return "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(body);
}

struct Accepted {
  const char* name;
  std::string bytes;
  const char *method, *path, *query, *body;
  bool keeps_alive = true;
  std::size_t n_left = 0;
};

const std::vector<Accepted>& accepted() {
  static const std::vector<Accepted> cases = {
      {"plain", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a", "", ""},
      {"query", "GET /a?b=%zz&c HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a", "b=%zz&c", ""},
      {"empty query", "GET /a? HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a", "", ""},
      {"percent", "GET /a%20%2fb%C3%A9%25 HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a /b\xc3\xa9%", "",
       ""},
      {"length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "POST", "/a", "",
       "hello"},
      {"length with zeros", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 005\r\n\r\nhello",
       "POST", "/a", "", "hello"},
      {"no length", "POST /a HTTP/1.1\r\nHost: x\r\n\r\n", "POST", "/a", "", ""},
      {"length 0", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "POST", "/a", "",
       ""},
      {"body of any bytes", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\x01\xff"s,
       "POST", "/a", "", "\r\n\x01\xff"},
      {"chunks", chunked("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), "POST", "/a", "",
       "abc0123456789"},
      {"no chunks", chunked("0\r\n\r\n"), "POST", "/a", "", ""},
      {"chunk extensions", chunked("1;a=b;c=\"d;\"\r\nx\r\n0;e\r\n\r\n"), "POST", "/a", "", "x"},
      {"trailer", chunked("1\r\nx\r\n0\r\nHost: y\r\nX: y\r\n\r\n"), "POST", "/a", "", "x"},
      {"coding in capitals",
       "POST /a HTTP/1.1\r\nHost: x\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n", "POST", "/a",
       "", ""},
      {"next request", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b", "GET", "/a", "", "", true, 6},
      {"next request behind chunks", chunked("0\r\n\r\nGET"), "POST", "/a", "", "", true, 3},
      {"empty line first", "\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a", "", ""},
      {"absolute", "GET http://y:1/a?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/a", "b", ""},
      {"absolute without path", "GET HTTPS://y HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/", "", ""},
      {"absolute, only a query", "GET http://y?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/", "b", ""},
      {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "OPTIONS", "*", "", ""},
      {"unknown method", "BREW /a HTTP/1.1\r\nHost: x\r\n\r\n", "BREW", "/a", "", ""},
      {"close", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET", "/a", "", "",
       false},
      {"1.0", "GET /a HTTP/1.0\r\n\r\n", "GET", "/a", "", "", false},
      {"1.0 kept alive", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET", "/a", "", ""},
      {"empty Host", "GET /a HTTP/1.1\r\nHost:\r\n\r\n", "GET", "/a", "", ""},
      {"IPv6 host", "GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "GET", "/a", "", ""},
      {"bytes beyond ASCII in a header", "GET /a HTTP/1.1\r\nHost: x\r\nX: \xc3\xa9\t\r\n\r\n",
       "GET", "/a", "", ""},
  };
  return cases;
}

struct Refused {
  const char* name;
  std::string bytes;
  int status = 400;
};

// What follows a first line and Host.
std::string with(std::string_view headers) {
  return "POST /a HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n\r\nhello";
}

std::string get_text(std::string_view target) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

const std::vector<Refused>& refused_inputs() {
  static const std::vector<Refused> cases = {
      // Two readings of where the body ends.
      {"length and coding", with("Content-Length: 5\r\nTransfer-Encoding: chunked")},
      {"coding and length", with("Transfer-Encoding: chunked\r\nContent-Length: 5")},
      {"unknown coding and length", with("Transfer-Encoding: gzip\r\nContent-Length: 5")},
      {"two lengths", with("Content-Length: 5\r\nContent-Length: 6")},
      {"the same length twice", with("Content-Length: 5\r\nContent-Length: 5")},
      {"a list of lengths", with("Content-Length: 5, 5")},
      {"empty length", with("Content-Length:")},
      {"negative length", with("Content-Length: -5")},
      {"length with a plus", with("Content-Length: +5")},
      {"length with a point", with("Content-Length: 5.0")},
      {"length in hexadecimal", with("Content-Length: 0x5")},
      {"length with a space", with("Content-Length: 5 5")},
      {"length with a suffix", with("Content-Length: 5a")},
      {"length beyond 64 bits", with("Content-Length: 18446744073709551621")},
      {"length far beyond 64 bits", with("Content-Length: 99999999999999999999999999")},
      {"identity", with("Transfer-Encoding: identity"), 501},
      {"identity and chunked", with("Transfer-Encoding: identity, chunked"), 501},
      {"gzip and chunked", with("Transfer-Encoding: gzip, chunked"), 501},
      {"chunked and identity", with("Transfer-Encoding: chunked, identity"), 501},
      {"chunked twice", with("Transfer-Encoding: chunked, chunked")},
      {"two headers chunked", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")},
      {"a header identity before",
       with("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"), 501},
      {"chunked in quotes", with("Transfer-Encoding: \"chunked\""), 501},
      {"chunked with a suffix", with("Transfer-Encoding: chunkedx"), 501},
      {"chunked with a control character", with("Transfer-Encoding: \x0b"
                                                "chunked")},
      {"empty coding", with("Transfer-Encoding:")},
      {"chunked in HTTP/1.0",
       "POST /a HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      // Two readings of where a header ends.
      {"folded", with("X: a\r\n b")},
      {"folded by a tab", with("X: a\r\n\tb")},
      {"folded first header", "GET /a HTTP/1.1\r\n Host: x\r\n\r\n"},
      {"folded coding", with("Transfer-Encoding:\r\n chunked")},
      {"space before the colon", with("Content-Length : 5")},
      {"tab before the colon", with("Content-Length\t: 5")},
      {"space in a name", with("Content Length: 5")},
      {"no colon", with("Content-Length")},
      {"no name", with(": 5")},
      {"name in quotes", with("\"a\": 5")},
      {"name beyond ASCII", with("\xc3\xa9: 5")},
      {"only LF", "GET /a HTTP/1.1\nHost: x\n\n"},
      {"LF in a header", with("X: a\nContent-Length: 5")},
      {"CR in a header", with("X: a\rContent-Length: 5")},
      {"two CR", with("X: a\r\r")},
      {"LF before the end", "GET /a HTTP/1.1\r\nHost: x\r\n\n"},
      {"NUL in a value", with("X: a\0b"s)},
      {"NUL in a name", with("X\0: a"s)},
      {"NUL in the target", get_text("/a\0b"s)},
      {"DEL in a value", with("X: a\x7f")},
      {"backspace in a value", with("X: a\bb")},
      // Whom it is for.
      {"no Host", "GET /a HTTP/1.1\r\n\r\n"},
      {"two Hosts", with("Host: x")},
      {"two Hosts in HTTP/1.0", "GET /a HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n"},
      {"Host with a path", "GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n"},
      {"Host with a user", "GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n"},
      {"Host with a space", "GET /a HTTP/1.1\r\nHost: x y\r\n\r\n"},
      {"absolute without Host", "GET http://x/a HTTP/1.1\r\n\r\n"},
      {"absolute with a user", get_text("http://u:p@x/a")},
      {"absolute without a name", get_text("http:///a")},
      {"another scheme", get_text("ftp://x/a")},
      {"authority", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"asterisk for GET", get_text("*")},
      {"no slash", get_text("a")},
      {"fragment", get_text("/a#b")},
      {"percent at the end", get_text("/a%")},
      {"percent and one digit", get_text("/a%2")},
      {"percent and one digit and a query", get_text("/a%2?0")},
      {"percent and no digits", get_text("/a%zz")},
      {"percent and a sign", get_text("/a%+1")},
      {"NUL, percent-encoded", get_text("/a%00")},
      {"line end, percent-encoded", get_text("/a%0d%0a")},
      {"tab, percent-encoded", get_text("/a%09")},
      {"bytes beyond ASCII", get_text("/\xc3\xa9")},
      // The first line.
      {"no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"no version", "GET /a\r\nHost: x\r\n\r\n"},
      {"two spaces", "GET  /a HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"space at the end", "GET /a HTTP/1.1 \r\nHost: x\r\n\r\n", 505},
      {"space first", " GET /a HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"method in brackets", "(GET) /a HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"version 0.9", "GET /a HTTP/0.9\r\nHost: x\r\n\r\n", 505},
      {"version 1.2", "GET /a HTTP/1.2\r\nHost: x\r\n\r\n", 505},
      {"version 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"another protocol", "GET /a ICY/1.0\r\nHost: x\r\n\r\n", 505},
      {"version in lower case", "GET /a http/1.1\r\nHost: x\r\n\r\n", 505},
      {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s},
      // Chunks.
      {"negative chunk", chunked("-1\r\nx\r\n0\r\n\r\n")},
      {"chunk with a plus", chunked("+1\r\nx\r\n0\r\n\r\n")},
      {"chunk with 0x", chunked("0x1\r\nx\r\n0\r\n\r\n")},
      {"chunk with a space first", chunked(" 1\r\nx\r\n0\r\n\r\n")},
      {"chunk with a space last", chunked("1 \r\nx\r\n0\r\n\r\n")},
      {"chunk without a size", chunked("\r\nx\r\n0\r\n\r\n")},
      {"chunk that is no number", chunked("g\r\nx\r\n0\r\n\r\n")},
      {"chunk with garbage", chunked("1x\r\nx\r\n0\r\n\r\n")},
      {"chunk beyond 64 bits", chunked("10000000000000001\r\nx\r\n0\r\n\r\n")},
      {"chunk with LF", chunked("1\nx\r\n0\r\n\r\n")},
      {"chunk with CR", chunked("1\rx\r\n0\r\n\r\n")},
      {"chunk shorter than said", chunked("2\r\nx\r\n0\r\n\r\n")},
      {"chunk longer than said", chunked("1\r\nxy\r\n0\r\n\r\n")},
      {"chunk's end with LF", chunked("1\r\nx\n0\r\n\r\n")},
      {"extension with LF", chunked("1;a\nb\r\nx\r\n0\r\n\r\n")},
      {"extension with LF in quotes", chunked("1;a=\"\n\"\r\nx\r\n0\r\n\r\n")},
      {"extension with a line end in quotes", chunked("1;a=\"\r\n\"\r\nx\r\n0\r\n\r\n")},
      {"last extension with LF in quotes", chunked("0;a=\"\n\"\r\n\r\n")},
      {"extension without a name", chunked("1;\r\nx\r\n0\r\n\r\n")},
      {"huge extension", chunked("1;a=" + std::string(5000, 'b') + "\r\nx\r\n0\r\n\r\n")},
      {"endless extension", chunked("1;a=" + std::string(5000, 'b'))},
      {"large extension", chunked("1;a=" + std::string(1100, 'b') + "\r\nx\r\n0\r\n\r\n")},
      {"large trailer", chunked("0\r\nX: " + std::string(1100, 'b') + "\r\n\r\n")},
      {"endless trailer", chunked("0\r\nX: " + std::string(5000, 'b'))},
      {"trailer with a length", chunked("0\r\nContent-Length: 5\r\n\r\n")},
      {"trailer that is none", chunked("0\r\nX\r\n\r\n")},
      // Limits.
      {"large target", get_text("/" + std::string(9000, 'a')), 414},
      {"endless first line", "GET /" + std::string(17000, 'a'), 414},
      {"large head", with("X: " + std::string(16000, 'a') + "\r\nY: " + std::string(400, 'a')),
       431},
      {"endless head", "GET /a HTTP/1.1\r\nX: " + std::string(17000, 'a'), 431},
      {"many headers",
       [] {
         std::string headers;
         for (int i = 0; i < 100; ++i) headers += "X: 1\r\n";
         return with(headers + "Y: 1");
       }(),
       431},
      {"large length", with("Content-Length: 33554433"), 413},
      {"length of 64 bits", with("Content-Length: 18446744073709551615"), 413},
      {"large chunk", chunked("2000001\r\n"), 413},
      {"chunk of 64 bits", chunked("ffffffffffffffff\r\n"), 413},
      {"chunks that add up", chunked("1\r\nx\r\n2000000\r\n"), 413},
      {"other expectations", with("Expect: 200-ok"), 417},
      {"another expectation besides", with("Expect: 100-continue\r\nExpect: 200-ok"), 417},
  };
  return cases;
}

TEST(RequestParser, Accepts) {
  for (const Accepted& c : accepted()) {
    SCOPED_TRACE(c.name);
    const ParseOutcome outcome = parse_in_pieces(c.bytes);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(outcome.is_complete);
    EXPECT_EQ(outcome.request.method, c.method);
    EXPECT_EQ(outcome.request.path, c.path);
    EXPECT_EQ(outcome.request.query, c.query);
    EXPECT_EQ(outcome.request.body, c.body);
    EXPECT_EQ(outcome.keeps_alive, c.keeps_alive);
    EXPECT_EQ(outcome.n_left, c.n_left);
  }
}

TEST(RequestParser, Refuses) {
  for (const Refused& c : refused_inputs()) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(parse_in_pieces(c.bytes).status, c.status);
  }
}

// Where the input is cut does not matter: every single cut, and every byte alone.
TEST(RequestParser, PiecesDoNotMatter) {
  std::vector<std::string> inputs;
  for (const Accepted& c : accepted()) inputs.push_back(c.bytes);
  for (const Refused& c : refused_inputs()) inputs.push_back(c.bytes);
  for (const std::string& bytes : inputs) {
    if (bytes.size() > 1000) continue;
    SCOPED_TRACE(bytes);
    const auto whole = parse_in_pieces(bytes).key();
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
      EXPECT_EQ(parse_in_pieces(bytes, {cut}).key(), whole) << "cut at " << cut;
    EXPECT_EQ(parse_in_pieces(bytes, std::vector<std::size_t>(bytes.size(), 1)).key(), whole);
  }
}

// A request that was cut off is never taken for a whole one.
TEST(RequestParser, NeedsEveryByte) {
  for (const Accepted& c : accepted()) {
    SCOPED_TRACE(c.name);
    for (std::size_t size = 0; size + c.n_left < c.bytes.size(); ++size) {
      const ParseOutcome outcome = parse_in_pieces(std::string_view(c.bytes).substr(0, size));
      EXPECT_EQ(outcome.status, 0);
      EXPECT_FALSE(outcome.is_complete) << size << " bytes";
    }
  }
}

// Mistakes at random places: no crash, and pieces do not matter.
TEST(RequestParser, SurvivesChangedBytes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string interesting = "\r\n\t :;,%\"0aF\0\x7f\xff"s;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = random() % 2 == 0
                            ? accepted()[random() % accepted().size()].bytes
                            : refused_inputs()[random() % refused_inputs().size()].bytes;
    if (bytes.size() > 1000) continue;
    for (unsigned n = random() % 4; n > 0 && !bytes.empty(); --n) {
      const std::size_t at = random() % bytes.size();
      const char c = interesting[random() % interesting.size()];
      switch (random() % 3) {
        case 0: bytes[at] = c; break;
        case 1: bytes.insert(at, 1, c); break;
        case 2: bytes.erase(at, 1); break;
      }
    }
    const std::size_t first = random() % (bytes.size() + 1), second = random() % 20;
    ASSERT_EQ(parse_in_pieces(bytes, {first, second}).key(), parse_in_pieces(bytes).key())
        << testing::PrintToString(bytes) << " cut after " << first << " and " << second;
  }
}

TEST(RequestParser, HostOfAbsoluteTargetReplacesHeader) {
  const ParseOutcome outcome = parse_in_pieces("GET http://y:1/a HTTP/1.1\r\nhOST: x\r\n\r\n");
  EXPECT_EQ(outcome.request.header("host"), "y:1");
  EXPECT_EQ(outcome.request.headers.size(), 1u);
  EXPECT_EQ(parse_in_pieces("GET http://y/a HTTP/1.0\r\n\r\n").request.header("host"), "y");
}

// Guards and routes look at headers: what comes after the body is none.
TEST(RequestParser, TrailersAreNoHeaders) {
  const ParseOutcome outcome = parse_in_pieces(chunked("0\r\nAuthorization: Bearer x\r\n\r\n"));
  EXPECT_TRUE(outcome.is_complete);
  EXPECT_EQ(outcome.request.header("authorization"), std::nullopt);
  EXPECT_EQ(outcome.request.header("HOST"), "x");
}

// The error's shape depends on the path.
TEST(RequestParser, PathIsKnownAfterAnError) {
  EXPECT_EQ(parse_in_pieces(with("Content-Length: 99999999999")).request.path, "/a");
}

TEST(RequestParser, LimitsAreExact) {
  const std::string head = "POST /abc HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
  RequestLimits limits{
      .head_bytes = head.size(), .target_bytes = 4, .n_headers = 2, .body_bytes = 5};
  EXPECT_TRUE(parse_in_pieces(head + "hello", {}, limits).is_complete);
  --limits.head_bytes;
  EXPECT_EQ(parse_in_pieces(head + "hello", {}, limits).status, 431);
  ++limits.head_bytes;
  --limits.target_bytes;
  EXPECT_EQ(parse_in_pieces(head + "hello", {}, limits).status, 414);
  ++limits.target_bytes;
  --limits.n_headers;
  EXPECT_EQ(parse_in_pieces(head + "hello", {}, limits).status, 431);
  ++limits.n_headers;
  --limits.body_bytes;
  EXPECT_EQ(parse_in_pieces(head, {}, limits).status, 413);
}

TEST(RequestParser, Expects) {
  const auto expects = [](std::string_view bytes) {
    RequestParser parser({});
    parser.parse(bytes);
    return parser.expects_continue();
  };
  EXPECT_TRUE(expects(with("Expect: 100-Continue")));
  EXPECT_FALSE(expects(with("X: y")));
  EXPECT_FALSE(expects("POST /a HTTP/1.0\r\nExpect: 100-continue\r\n\r\n"));
}

}  // namespace
}  // namespace outrider
