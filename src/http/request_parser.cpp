#include "http/request_parser.h"

// One of Beast's assertions is wrong: it claims five bytes where "0\r\n\r" arrives in two parts.
#define BOOST_DISABLE_ASSERTS
#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <string>

#include "base/bytes.h"
#include "http/request_error.h"

namespace outrider {
namespace {

namespace http = boost::beast::http;
using BoostError = boost::beast::error_code;
using BoostView = boost::beast::string_view;

// What is not body in a chunked body has no use here, but costs as much to read: extensions of a
// chunk, and the trailer. Beast wants to see each as a whole.
constexpr std::size_t kExtrasBytes = 1024;
constexpr std::size_t kChunkLinesBytes = 4096;  // whole extras are shorter

template <typename... Args>
[[noreturn]] void refuse(int status, fmt::format_string<Args...> format, Args&&... args) {
  throw RequestError(status, "", "", fmt::format(format, std::forward<Args>(args)...));
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && byte != '\t') || byte == 0x7f;
}

std::string_view view(BoostView text) {
  return {text.data(), text.size()};
}

// An authority without a user, or nothing: what Host may hold (RFC 3986, section 3.2).
bool is_host(std::string_view host) {
  const auto is_allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-._~%!$&'()*+,;=:[]").find(c) != std::string_view::npos;
  };
  return std::ranges::all_of(host, is_allowed);
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::string percent_decoded(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      const auto high = i + 2 < path.size() ? hex_digit(path[i + 1]) : std::nullopt;
      const auto low = high ? hex_digit(path[i + 2]) : std::nullopt;
      if (!low) refuse(400, "the path has a % without two hexadecimal digits behind it");
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    }
    if (is_control(c) || c == '\t') refuse(400, "the path has a control character");
    out += c;
  }
  return out;
}

// The elements of a list of codings, but chunked.
std::string without_chunked(std::string_view list) {
  std::string others;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view coding = list.substr(0, comma);
    while (coding.starts_with(' ') || coding.starts_with('\t')) coding.remove_prefix(1);
    while (coding.ends_with(' ') || coding.ends_with('\t')) coding.remove_suffix(1);
    if (!coding.empty() && !equals_ignoring_case(coding, "chunked")) {
      others += others.empty() ? "" : ", ";
      others += coding;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return others;
}

// Where the head ends, looking at each byte once. Refuses at once what no head may hold, so that a
// client that speaks another protocol does not wait for a response.
class HeadScanner {
 public:
  // The size of the head, which begins at the first byte, once it is whole.
  template <typename OnFirstLine>
  std::optional<std::size_t> end(std::string_view bytes, const OnFirstLine& on_first_line) {
    for (; n_scanned_ < bytes.size(); ++n_scanned_) {
      const char c = bytes[n_scanned_];
      if ((c == '\n') != (last_ == '\r'))
        refuse(400, "lines of the head must end with CR and LF, which stand nowhere else");
      if (c == '\n') {
        if (line_bytes_ == 0) return n_scanned_ + 1;
        line_bytes_ = 0;
        if (!std::exchange(has_first_line_, true)) on_first_line(bytes.substr(0, n_scanned_ - 1));
      } else if (c != '\r') {
        if (is_control(c)) refuse(400, "the head has a control character");
        if (line_bytes_ == 0 && (c == ' ' || c == '\t'))
          refuse(400, "a line of the head begins with white space: folded headers are obsolete");
        ++line_bytes_;
      }
      last_ = c;
    }
    return std::nullopt;
  }

  bool has_first_line() const { return has_first_line_; }

 private:
  std::size_t n_scanned_ = 0, line_bytes_ = 0;
  char last_ = 0;
  bool has_first_line_ = false;
};

}  // namespace

// Beast's callbacks may throw: a parser that threw is not used again.
struct RequestParser::State final : http::basic_parser<true> {
  explicit State(const RequestLimits& limits) : limits(limits) {
    header_limit(static_cast<std::uint32_t>(limits.head_bytes));
    body_limit(limits.body_bytes);
    eager(true);
  }

  void on_request_impl(http::verb, BoostView method, BoostView whole_target, int version,
                       BoostError&) override {
    request.method = view(method);
    is_http_1_0 = version == 10;
    read_target(view(whole_target));
  }

  void read_target(std::string_view target) {
    request.path.clear();
    if (target.size() > limits.target_bytes)
      refuse(414, "the target has {} bytes; at most {}", target.size(), limits.target_bytes);
    const auto is_visible_ascii = [](char c) { return c > 0x20 && c < 0x7f && c != '#'; };
    if (!std::ranges::all_of(target, is_visible_ascii))
      refuse(400, "the target has characters that must be percent-encoded");
    if (target == "*" && request.method == "OPTIONS") {
      request.path += '*';
      return;
    }
    if (!target.starts_with('/')) {
      const std::size_t scheme = target.find("://");
      const std::string_view name = target.substr(0, scheme);
      if (!equals_ignoring_case(name, "http") && !equals_ignoring_case(name, "https"))
        refuse(400, "the target must begin with / or http://");
      target.remove_prefix(scheme + 3);
      host = target.substr(0, target.find_first_of("/?"));
      if (host->empty()) refuse(400, "the target has no host");
      target.remove_prefix(host->size());
    }
    const std::size_t question = std::min(target.find('?'), target.size());
    request.path = percent_decoded(target.substr(0, question));
    if (request.path.empty()) request.path += '/';
    if (question < target.size()) request.query = target.substr(question + 1);
  }

  // Also an error before the head's end has the shape of its path.
  void read_path(std::string_view first_line) {
    const std::size_t target = first_line.find(" /");
    if (target == first_line.npos) return;
    request.path = first_line.substr(target + 1);
    request.path.resize(std::min(request.path.find_first_of(" ?"), request.path.size()));
  }

  // Also called for trailers, which nobody here asks for: they must not pass for headers.
  void on_field_impl(http::field, BoostView name, BoostView value, BoostError&) override {
    if (has_head) {
      trailer_bytes += name.size() + value.size();
      if (trailer_bytes > kExtrasBytes)
        refuse(400, "the trailer has more than {} bytes", kExtrasBytes);
      return;
    }
    if (request.headers.size() == limits.n_headers)
      refuse(431, "the request has more than {} headers", limits.n_headers);
    request.headers.emplace_back(view(name), view(value));
  }

  void on_header_impl(BoostError&) override {
    read_host();
    check_framing();
    if (!is_http_1_0) read_expectations();
    has_head = true;
  }

  void read_expectations() {
    for (const auto& [name, value] : request.headers) {
      if (!equals_ignoring_case(name, "expect")) continue;
      if (!equals_ignoring_case(value, "100-continue"))
        refuse(417, "Expect: \"{}\": only 100-continue is known", printable(value));
      expects_continue = true;
    }
  }

  std::ptrdiff_t count(std::string_view header) const {
    return std::ranges::count_if(request.headers, [&](const auto& field) {
      return equals_ignoring_case(field.first, header);
    });
  }

  void read_host() {
    const std::ptrdiff_t n_hosts = count("host");
    if (n_hosts > 1 || (n_hosts == 0 && !is_http_1_0))
      refuse(400, "the request has {} headers Host, expected one", n_hosts);
    if (n_hosts == 0 && host) request.headers.emplace_back("host", *host);
    for (auto& [name, value] : request.headers) {
      if (!equals_ignoring_case(name, "host")) continue;
      if (host) value = *host;
      if (!is_host(value)) refuse(400, "Host is no host: \"{}\"", printable(value));
    }
  }

  // Where the body ends. Beast refuses a second coding or a length beside chunked, but takes
  // "Content-Length: 5, 5", and other codings, which it does not decode.
  void check_framing() {
    const auto length = request.header("content-length");
    const auto coding = request.header("transfer-encoding");
    if (count("content-length") > 1 ||
        (length && !std::ranges::all_of(*length, [](char c) { return c >= '0' && c <= '9'; })))
      refuse(400, "Content-Length must be one number");
    if (!coding) return;
    if (is_http_1_0) refuse(400, "HTTP/1.0 has no Transfer-Encoding");
    if (length) refuse(400, "the request has Content-Length and Transfer-Encoding");
    if (equals_ignoring_case(*coding, "chunked") && count("transfer-encoding") == 1) return;
    // Of these it is known that they are wrong; another coding is not understood.
    std::string all;
    for (const auto& [name, value] : request.headers)
      if (equals_ignoring_case(name, "transfer-encoding")) all += value + ",";
    const std::string others = without_chunked(all);
    if (others.empty()) refuse(400, "Transfer-Encoding must be chunked, once");
    refuse(501, "Transfer-Encoding: \"{}\": only chunked is known", printable(others));
  }

  std::size_t on_body_impl(BoostView bytes, BoostError&) override {
    request.body += view(bytes);
    return bytes.size();
  }

  // Beast accepts any byte in an extension's quotes, a lone LF as well.
  void on_chunk_header_impl(std::uint64_t, BoostView extensions, BoostError&) override {
    if (extensions.size() > kExtrasBytes || std::ranges::any_of(extensions, is_control))
      refuse(400, "a chunk has extensions of control characters or more than {} bytes",
             kExtrasBytes);
  }

  std::size_t on_chunk_body_impl(std::uint64_t, BoostView bytes, BoostError& error) override {
    return on_body_impl(bytes, error);
  }

  void on_response_impl(int, BoostView, int, BoostError&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, BoostError&) override {}
  void on_finish_impl(BoostError&) override {}

  // Beast's put(), with its errors thrown.
  std::size_t take(std::string_view bytes) {
    BoostError error;
    const std::size_t taken = put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (error == http::error::body_limit)
      refuse(413, "the body has more than {} bytes", limits.body_bytes);
    if (error == http::error::bad_version) refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    if (error && error != http::error::need_more)
      refuse(400, "the request is not HTTP: {}", error.message());
    return taken;
  }

  std::size_t take_head(std::string_view bytes) {
    // Some old clients send an empty line behind a body.
    if (bytes.starts_with("\r\n")) return 2;
    if (bytes == "\r") return 0;
    const auto end = scanner.end(bytes, [&](std::string_view line) { read_path(line); });
    if (end.value_or(bytes.size()) > limits.head_bytes) {
      if (!scanner.has_first_line())
        refuse(414, "the first line has more than {} bytes", limits.head_bytes);
      refuse(431, "the head has more than {} bytes", limits.head_bytes);
    }
    if (!end) return 0;
    take(bytes.substr(0, *end));
    return *end;
  }

  const RequestLimits limits;
  HeadScanner scanner;
  HttpRequest request;
  std::optional<std::string> host;  // of a target in absolute form
  std::size_t trailer_bytes = 0;
  bool has_head = false, is_http_1_0 = false, expects_continue = false;
};

RequestParser::RequestParser(const RequestLimits& limits)
    : state_(std::make_unique<State>(limits)) {}
RequestParser::~RequestParser() = default;

std::size_t RequestParser::parse(std::string_view bytes) {
  if (!has_head()) return state_->take_head(bytes);
  if (is_complete() || bytes.empty()) return 0;
  const std::size_t taken = state_->take(bytes);
  if (!is_complete() && bytes.size() - taken > kChunkLinesBytes)
    refuse(400, "a chunk's head, or what follows the last chunk, has more than {} bytes",
           kChunkLinesBytes);
  return taken;
}

bool RequestParser::has_head() const {
  return state_->has_head;
}
bool RequestParser::is_complete() const {
  return has_head() && state_->is_done();
}
HttpRequest& RequestParser::request() {
  return state_->request;
}
bool RequestParser::is_http_1_0() const {
  return state_->is_http_1_0;
}
bool RequestParser::keeps_alive() const {
  return has_head() && state_->keep_alive();
}
bool RequestParser::expects_continue() const {
  return state_->expects_continue;
}

}  // namespace outrider
