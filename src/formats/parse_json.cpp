#include "formats/parse_json.h"

#include "base/error.h"

namespace outrider {
namespace {

template <typename Json>
Json parse(std::string_view text, std::string_view where) {
  // Far more than prompts and conversations need. The parser would take any depth, but its tree
  // then takes a hundred times the text's memory, and code that walks it overruns the stack.
  constexpr int kMaxDepth = 64;
  const auto shallow = [&](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kMaxDepth)
      throw Error("{}: JSON nested more than {} levels deep", where, kMaxDepth);
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const typename Json::parse_error& error) {
    throw Error("{}: not valid JSON at byte {}", where, error.byte);
  } catch (const typename Json::out_of_range&) {
    throw Error("{}: JSON with a number that is too large", where);
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  return parse<nlohmann::json>(text, where);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where) {
  return parse<nlohmann::ordered_json>(text, where);
}

}  // namespace outrider
