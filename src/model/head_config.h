// Numbers of a head's config.json (or of the keys of a GGUF file), read with checks.

#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

// One object of a config.json. Every getter throws Error, naming the file and the key, if the value
// has another type or lies outside its limits.
class HeadConfig {
 public:
  // What messages call keys, by their path ("rope_scaling.factor"); others by the path.
  using Names = std::map<std::string, std::string, std::less<>>;

  // `path` leads to the object from the document's top: "transformer_layer_config".
  HeadConfig(const nlohmann::json& object, std::string origin, Names names = {},
             std::string path = "");

  const std::string& origin() const { return origin_; }
  bool has(std::string_view key) const;
  std::optional<int> integer(std::string_view key, int least, int most) const;
  int required_integer(std::string_view key, int least, int most) const;
  std::optional<double> number(std::string_view key, double least, double most) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<int>> integers(std::string_view key, int least, int most) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;
  std::optional<std::vector<bool>> booleans(std::string_view key) const;
  // Nothing if the key is absent or null.
  std::optional<HeadConfig> object(std::string_view key) const;
  std::string name(std::string_view key) const;  // as messages call it

 private:
  const nlohmann::json* find(std::string_view key) const;
  std::string path_of(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           std::string_view expected) const;

  nlohmann::json object_;
  std::string origin_;
  Names names_;
  std::string path_;
};

}  // namespace outrider
