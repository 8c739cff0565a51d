#include "formats/metadata_key.h"

#include <fmt/format.h>

namespace outrider {

bool stands_for(std::string_view row_name, std::string_view key) {
  return row_name == key || (row_name.ends_with('.') && key.starts_with(row_name));
}

const MetadataKey* find_key(std::span<const MetadataKey> keys, std::string_view name) {
  for (const MetadataKey& key : keys)
    if (stands_for(key.name, name)) return &key;
  return nullptr;
}

std::string text_of(const Default& otherwise) {
  struct Text {
    std::string operator()(const Required&) const { return "required"; }
    std::string operator()(const SameAs& same) const { return fmt::format("as {}", same.name); }
    std::string operator()(const Computed& computed) const { return std::string(computed.how); }
    std::string operator()(const Published& published) const {
      std::string conditions;
      for (const auto& [name, is] : published.where)
        if (!name.empty())
          conditions += fmt::format("{}{} {}", conditions.empty() ? "" : ", ", name, is);
      return fmt::format("{} ({}: {}), else {}", published.then, published.model, conditions,
                         published.elsewhere);
    }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(std::string_view text) const { return std::string(text); }
  };
  return std::visit(Text(), otherwise);
}

}  // namespace outrider
