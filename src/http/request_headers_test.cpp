#include "http/request_headers.h"

#include <nlohmann/json.hpp>
#include <set>

#include "http/server_test.h"

namespace outrider {
namespace {

using RequestHeaders = HttpServerTest;

// Section 18.4 of RFC 9110 and section 10.1 of RFC 9112, and what stands in requests of old.
const std::set<std::string>& known_headers() {
  static const std::set<std::string> names = {"Accept",
                                              "Accept-Charset",
                                              "Accept-Encoding",
                                              "Accept-Language",
                                              "Accept-Ranges",
                                              "Allow",
                                              "Authentication-Info",
                                              "Authorization",
                                              "Close",
                                              "Connection",
                                              "Content-Encoding",
                                              "Content-Language",
                                              "Content-Length",
                                              "Content-Location",
                                              "Content-Range",
                                              "Content-Type",
                                              "Date",
                                              "ETag",
                                              "Expect",
                                              "From",
                                              "Host",
                                              "If-Match",
                                              "If-Modified-Since",
                                              "If-None-Match",
                                              "If-Range",
                                              "If-Unmodified-Since",
                                              "Keep-Alive",
                                              "Last-Modified",
                                              "Location",
                                              "MIME-Version",
                                              "Max-Forwards",
                                              "Proxy-Authenticate",
                                              "Proxy-Authentication-Info",
                                              "Proxy-Authorization",
                                              "Proxy-Connection",
                                              "Range",
                                              "Referer",
                                              "Retry-After",
                                              "Server",
                                              "TE",
                                              "Trailer",
                                              "Transfer-Encoding",
                                              "Upgrade",
                                              "User-Agent",
                                              "Vary",
                                              "Via",
                                              "WWW-Authenticate"};
  return names;
}

TEST(RequestHeaderRows, HoldEveryHeaderOfBothDocumentsOnce) {
  std::set<std::string> names;
  for (const HeaderRow& row : header_rows())
    for (const std::string& name : row.names) EXPECT_TRUE(names.insert(name).second) << name;
  EXPECT_EQ(names, known_headers());
}

struct HeaderCase {
  std::string header;  // of which row this is a case
  std::string request;
  int status;
};

std::string with_body(const std::string& headers, const std::string& type = "application/json",
                      const std::string& body = "{}") {
  return "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" +
         (type.empty() ? "" : "Content-Type: " + type + "\r\n") + headers + "\r\n" + body;
}

std::string chunked_by(const std::string& coding, const std::string& version = "1.1") {
  return "POST /echo HTTP/" + version +
         "\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: " + coding +
         "\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
}

std::vector<HeaderCase> header_cases() {
  std::vector<HeaderCase> cases = {
      {"Content-Length", with_body(""), 200},
      {"Content-Length", with_body("Content-Length: 2\r\n"), 400},
      {"Content-Length", with_body("Transfer-Encoding: chunked\r\n"), 400},
      {"Content-Encoding", with_body("Content-Encoding: identity\r\n"), 200},
      {"Content-Encoding", with_body("Content-Encoding: Identity, identity\r\n"), 200},
      {"Content-Encoding", with_body("Content-Encoding: \r\n"), 200},
      {"Content-Encoding", with_body("Content-Encoding: identity, gzip\r\n"), 415},
      {"Content-Encoding", with_body("Content-Encoding: identity\r\nContent-Encoding: br\r\n"),
       415},
      {"Content-Encoding", get("/health", "Content-Encoding: gzip\r\n"), 415},
      {"Content-Range", with_body("Content-Range: bytes 0-1/2\r\n"), 400},
      {"Content-Range", get("/health", "Content-Range: bytes 0-1/2\r\n"), 400},
      {"Content-Type", with_body("Content-Type: application/json\r\n"), 400},
      {"Content-Type", with_body("Content-Type: text/plain\r\n"), 400},
      {"Content-Type", with_body("", ""), 415},
      {"Expect", with_body("Expect: 100-continue\r\n"), 200},
      {"Expect", with_body("Expect: 200-ok\r\n"), 417},
      {"Expect", with_body("Expect: 100-continue, 200-ok\r\n"), 417},
      {"Expect", with_body("Expect: 100-continue\r\nExpect: 200-ok\r\n"), 417},
      {"Expect", "GET /health HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", 200},
      {"If-Match", with_body("If-Match: *\r\n"), 200},
      {"If-Match", with_body("If-Match: \"a\"\r\n"), 412},
      {"If-Match", get("/health", "If-Match: \"a\", \"b\"\r\n"), 412},
      {"If-None-Match", with_body("If-None-Match: \"a\"\r\n"), 200},
      {"If-None-Match", with_body("If-None-Match: *\r\n"), 412},
      {"If-None-Match", get("/health", "If-None-Match: *\r\n"), 304},
      {"If-None-Match", get("/health", "If-None-Match: W/\"a\"\r\n"), 200},
      {"If-None-Match", get("/nowhere", "If-None-Match: *\r\n"), 404},
      {"Host", "GET /health HTTP/1.1\r\n\r\n", 400},
      {"Host", get("/health", "Host: localhost\r\n"), 400},
      {"Host", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
      {"Authorization", get("/health", "Authorization: Bearer a\r\n"), 200},
      {"Authorization", get("/health", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"),
       400},
      {"Connection", get("/health", "Connection: close\r\n"), 200},
      {"Close", get("/health", "Close: x\r\n"), 200},
      {"Keep-Alive", get("/health", "Keep-Alive: timeout=5\r\n"), 200},
      {"Proxy-Connection", get("/health", "Proxy-Connection: close\r\n"), 200},
      {"Transfer-Encoding", chunked_by("chunked"), 200},
      {"Transfer-Encoding", chunked_by("chunked", "1.0"), 400},
      {"Transfer-Encoding", chunked_by("chunked, chunked"), 400},
      {"Transfer-Encoding", chunked_by(""), 400},
      {"Transfer-Encoding", with_body("Transfer-Encoding: gzip\r\n"), 400},
  };
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "compress", "x-gzip", "no-such"})
    cases.push_back(
        {"Content-Encoding", with_body("Content-Encoding: " + std::string(coding) + "\r\n"), 415});
  for (const char* coding : {"gzip, chunked", "gzip", "identity", "chunked, gzip", "no-such"})
    cases.push_back({"Transfer-Encoding", chunked_by(coding), 501});
  for (const char* type :
       {"application/json; charset=utf-8", "application/json;charset=UTF8",
        "application/json; charset=\"UTF-8\"", "Application/JSON ; x=y; charset=us-ascii",
        "application/json;", "application/json; ; charset=utf-8 ;",
        "application/json; x=\"; charset=utf-16\""})
    cases.push_back({"Content-Type", with_body("", type), 200});
  for (const char* type :
       {"application/json; charset=utf-16", "application/json; charset=\"utf-16le\"",
        "application/json; charset=iso-8859-1", "application/json; charset=latin1",
        "application/json; charset=utf-8; charset=utf-16", "application/json; CHARSET=utf-7",
        "application/json; charset=\"ut\\f-32\"",
        "application/json; charset=", "application/json; charset",
        "application/json; charset=\"utf-8", "text/json", "application/json, text/plain"})
    cases.push_back({"Content-Type", with_body("", type), 415});
  return cases;
}

TEST_F(RequestHeaders, ObeyedAndRefusedOnesDoWhatTheirRowsSay) {
  start();
  std::set<std::string> tested;
  for (const HeaderCase& c : header_cases()) {
    SCOPED_TRACE(c.request);
    tested.insert(c.header);
    Client client = connect();
    client.send(c.request);
    Response response = client.receive_head();
    if (response.status == 100) response = client.receive_head();
    EXPECT_EQ(response.status, c.status);
    if (c.request.find("onnection: close") != std::string::npos) {
      EXPECT_EQ(response.header("connection"), "close");
    }
    if (c.status == 415 && c.header == "Content-Encoding") {
      EXPECT_EQ(response.header("accept-encoding"), "identity");
    }
    if (c.status == 200 || c.status == 304) continue;
    const std::string body =
        client.receive_bytes(std::stoul("0" + response.header("content-length")));
    EXPECT_FALSE(nlohmann::json::parse(body)["error"]["message"].empty()) << body;
  }
  for (const HeaderRow& row : header_rows()) {
    if (row.use == HeaderRow::Use::without_effect) continue;
    for (const std::string& name : row.names) EXPECT_TRUE(tested.contains(name)) << name;
  }
}

TEST_F(RequestHeaders, OthersHaveNoEffect) {
  start();
  const Response posted = ask(with_body("")), got = ask(get("/health"));
  EXPECT_EQ(posted.body, "/echo? {}");
  for (const HeaderRow& row : header_rows()) {
    if (row.use != HeaderRow::Use::without_effect) continue;
    EXPECT_FALSE(row.meaning.empty());
    for (const std::string& name : row.names)
      for (const char* value : {"", "*", "0", "bytes=0-0", "\"a\"", "identity;q=0", "websocket",
                                "Sat, 29 Oct 1994 19:43:31 GMT", "trailers, gzip"}) {
        SCOPED_TRACE(name + ": " + value);
        const std::string line = name + ": " + value + "\r\n";
        const Response post_response = ask(with_body(line)),
                       get_response = ask(get("/health", line));
        EXPECT_EQ(post_response.status, 200);
        EXPECT_EQ(post_response.body, posted.body);
        EXPECT_EQ(get_response.status, 200);
        EXPECT_EQ(get_response.body, got.body);
      }
  }
}

// Its body would be read as something else, so nothing is read of it.
TEST_F(RequestHeaders, ARefusedBodyIsNotRead) {
  start();
  Client client = connect();
  const Response response = client.ask(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Encoding: gzip\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(response.status, 415);
  EXPECT_EQ(response.header("connection"), "close");
}

}  // namespace
}  // namespace outrider
