// docs/api.md has for each route, and for the objects in its requests, the fields that its table
// has.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/messages_request.h"
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

// Those that routes do not share.
std::vector<FieldRow> own_rows(std::vector<FieldRow> rows) {
  const std::vector<FieldRow> others = other_field_rows();
  std::erase_if(rows, [&](const FieldRow& row) {
    return row.use != FieldUse::obeyed &&
           std::ranges::find(others, row.name, &FieldRow::name) != others.end();
  });
  return rows;
}

TEST(ApiDocument, HasTheFieldsOfEveryRoute) {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/docs/api.md");
  std::stringstream text;
  text << file.rdbuf() << "\n";
  std::vector<PartRows> tables = {
      {"`/v1/chat/completions`", own_rows(chat_request_fields())},
      {"`/v1/completions`", own_rows(completion_request_fields())},
      {"`/v1/messages`", own_rows(messages_request_fields())},
      {"Known and not obeyed", other_field_rows()},
      {"`/tokenize`", tokenize_request_fields()},
      {"`/detokenize`", detokenize_request_fields()},
      {"`/apply-template`", template_request_fields()},
  };
  for (const auto& parts :
       {generation_part_fields(), conversation_part_fields({}), messages_part_fields()})
    tables.insert(tables.end(), parts.begin(), parts.end());
  for (const auto& [title, rows] : tables) {
    const std::string expected = fmt::format("### Fields: {}\n\n{}", title, document_table(rows));
    EXPECT_NE(text.str().find(expected + "\n"), std::string::npos) << "docs/api.md lacks:\n"
                                                                   << expected;
  }
}

}  // namespace
}  // namespace outrider
