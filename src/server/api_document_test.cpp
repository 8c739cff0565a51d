// docs/api.md has for each route, and for the objects in its requests, the fields that its table
// has; every header of a request; and the routes that clients look for in vain.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "http/request_headers.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/messages_request.h"
#include "server/missing_routes.h"
#include "server/other_fields.h"
#include "server/token_requests.h"

namespace outrider {
namespace {

// A row of the document for each obeyed field, and one for all others of the same use that take the
// same.
std::string document_table(const std::vector<FieldRow>& rows) {
  std::string table = "| field | takes | |\n|---|---|---|\n";
  std::vector<FieldRow> others;
  for (const FieldRow& row : rows) {
    if (row.use == FieldUse::obeyed) {
      table += fmt::format("| `{}` | {} | {} |\n", row.name, row.takes, row.meaning);
      continue;
    }
    const auto same = std::ranges::find_if(others, [&](const FieldRow& other) {
      return other.use == row.use && other.takes == row.takes && other.meaning == row.meaning;
    });
    if (same == others.end())
      others.push_back(row);
    else
      same->name += "`, `" + row.name;
  }
  std::ranges::stable_sort(others, {}, &FieldRow::use);
  for (const FieldRow& row : others) {
    const std::string use = row.use == FieldUse::harmless ? "no effect" : "others are refused";
    const std::string takes = row.use == FieldUse::harmless ? row.takes : '`' + row.takes + '`';
    table += fmt::format("| `{}` | {} | {}{}{} |\n", row.name, takes, use,
                         row.meaning.empty() ? "" : ": ", row.meaning);
  }
  return table;
}

struct Nothing {};

// Those that routes do not share.
std::vector<FieldRow> own_rows(std::vector<FieldRow> rows) {
  const std::vector<FieldRow> others = other_fields<Nothing>().rows();
  std::erase_if(rows, [&](const FieldRow& row) {
    return row.use != FieldUse::obeyed &&
           std::ranges::find(others, row.name, &FieldRow::name) != others.end();
  });
  return rows;
}

std::string document() {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/docs/api.md");
  std::stringstream text;
  text << file.rdbuf() << "\n";
  return text.str();
}

void expect_section(const std::string& heading, const std::string& table) {
  const std::string expected = fmt::format("{}\n\n{}", heading, table);
  EXPECT_NE(document().find(expected + "\n"), std::string::npos) << "docs/api.md lacks:\n"
                                                                 << expected;
}

TEST(ApiDocument, HasEveryHeader) {
  std::string table = "| header | | |\n|---|---|---|\n";
  for (const HeaderRow& row : header_rows()) {
    const char* const use = row.use == HeaderRow::Use::obeyed    ? "obeyed"
                            : row.use == HeaderRow::Use::refused ? "refused"
                                                                 : "no effect";
    table += fmt::format("| `{}` | {} | {} |\n", fmt::join(row.names, "`, `"), use, row.meaning);
  }
  expect_section("### Headers of requests", table);
}

TEST(ApiDocument, HasTheRoutesThatAreMissing) {
  std::string table = "| path | |\n|---|---|\n";
  std::vector<MissingRoute> rows;  // of those with the same words one
  for (const MissingRoute& route : missing_routes()) {
    const auto same = std::ranges::find(rows, route.instead, &MissingRoute::instead);
    if (same == rows.end())
      rows.push_back(route);
    else
      same->path += "`, `" + route.path;
  }
  for (const MissingRoute& row : rows)
    table += fmt::format("| `{}` | {} |\n", row.path, row.instead);
  expect_section("### Routes of other servers", table);
}

TEST(ApiDocument, HasTheFieldsOfEveryRoute) {
  std::vector<PartRows> tables = {
      {"`/v1/chat/completions`", own_rows(chat_request_fields())},
      {"`/v1/completions`", own_rows(completion_request_fields())},
      {"`/v1/messages`", own_rows(messages_request_fields())},
      {"Known and not obeyed", other_fields<Nothing>().rows()},
      {"`/tokenize`", tokenize_request_fields()},
      {"`/detokenize`", detokenize_request_fields()},
      {"`/apply-template`", template_request_fields()},
  };
  for (const auto& parts :
       {generation_part_fields(), conversation_part_fields({}), messages_part_fields()})
    tables.insert(tables.end(), parts.begin(), parts.end());
  for (const auto& [title, rows] : tables)
    expect_section("### Fields: " + title, document_table(rows));
}

}  // namespace
}  // namespace outrider
