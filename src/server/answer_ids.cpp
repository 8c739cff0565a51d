#include "server/answer_ids.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <random>
#include <span>

#include "base/hash.h"

namespace outrider {

void draw_seed(GenerationFields& fields) {
  // 32 bits are enough to be different and short enough to type.
  if (!fields.seed) fields.seed = std::random_device()();
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLength = 24;
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  std::uniform_int_distribution<std::size_t> pick(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < kLength; ++i) id += kLetters[pick(random)];
  return id;
}

AnswerHead answer_head(const ServedModel& model, const GenerationFields& fields,
                       std::string_view id_prefix) {
  using namespace std::chrono;
  const auto now = system_clock::now().time_since_epoch();
  return {.id = random_id(id_prefix),
          .model = answering_name(model, fields.model),
          .version = model.version,
          .created = duration_cast<seconds>(now).count(),
          .seed = fields.seed.value()};
}

CacheScope cache_scope(std::optional<std::size_t> api_key, std::string_view salt) {
  if (!api_key && salt.empty()) return {};
  Sha256 digest;
  const std::string text =
      fmt::format("{} {}", api_key ? fmt::format("{}", *api_key) : "none", salt);
  digest.update(std::as_bytes(std::span(text)));
  const std::string hex = digest.hex();
  CacheScope scope;
  for (std::size_t i = 0; i < scope.value.size(); ++i)
    std::from_chars(&hex[16 * i], &hex[16 * (i + 1)], scope.value[i], 16);
  return scope;
}

}  // namespace outrider
