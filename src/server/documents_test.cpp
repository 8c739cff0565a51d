// The documents' table of fields is the one that requests are read by.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/messages_request.h"

namespace outrider {
namespace {

struct Route {
  const char* name;
  std::vector<FieldRow> rows;
};

std::string in_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

// A line for each field, in the order of the routes: what it takes, and what each route does with
// it.
std::string table_of(const std::vector<Route>& routes) {
  std::string table = "| field | takes |";
  std::string line = "|---|---|";
  for (const Route& route : routes) {
    table += fmt::format(" {} |", route.name);
    line += "---|";
  }
  table += " |\n" + line + "---|\n";
  std::vector<std::string> order;
  for (const Route& route : routes)
    for (const FieldRow& row : route.rows)
      if (std::ranges::find(order, row.name) == order.end()) order.push_back(row.name);
  for (const std::string& name : order) {
    std::vector<std::string> takes, meanings;
    std::string uses;
    for (const Route& route : routes) {
      const auto row = std::ranges::find(route.rows, name, &FieldRow::name);
      if (row == route.rows.end()) {
        uses += " |";
        continue;
      }
      uses += fmt::format(" {} |", outrider::name(row->use));
      const auto add = [](std::vector<std::string>& texts, const std::string& text) {
        if (!text.empty() && std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
      };
      add(takes, row->takes);
      add(meanings, row->meaning);
    }
    const auto joined = [](const std::vector<std::string>& texts) {
      return in_cell(fmt::format("{}", fmt::join(texts, "; ")));
    };
    table += fmt::format("| `{}` | {} |{} {} |\n", name, joined(takes), uses, joined(meanings));
  }
  return table;
}

TEST(Documents, ListTheFieldsOfRequests) {
  const std::string table = table_of({{"chat", chat_request_fields()},
                                      {"completions", completion_request_fields()},
                                      {"messages", messages_request_fields()}});
  std::ifstream file(OUTRIDER_SOURCE_DIR "/docs/serving.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos) << "docs/serving.md lacks this table:\n"
                                                       << table;
}

}  // namespace
}  // namespace outrider
