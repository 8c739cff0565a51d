#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "runtime/head_choice.h"
#include "runtime/profile.h"
#include "runtime/profile_store.h"
#include "speculation/drafters/self.h"

namespace outrider {
namespace {

Json json_of_entry(const ProfileStore::Entry& entry) {
  Json json(json_of(entry.key));
  json["schema"] = entry.schema;
  json["used"] = fmt::format("{:%FT%TZ}", entry.used);
  json["bytes"] = entry.bytes;
  json["document"] = entry.document;
  return json;
}

std::string models_text(const ProfileKey& key) {
  std::vector<std::string> names;
  for (const ModelFile& file : key.files) names.push_back(printable(file.name));
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " + "));
}

// The other kind of document: which layers tune self found.
std::optional<std::string> tuned_text(const Json& document) {
  const auto found = document.find("left_out");
  if (found == document.end()) return std::nullopt;
  try {
    return "tuned self: without " + layers_text(found->get<std::vector<int>>());
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// A further kind: the hash of a model's file, to compare with the one that a head was made for.
std::optional<std::string> hash_text(const Json& document) {
  const auto found = document.find("sha256");
  if (found == document.end() || !found->is_string()) return std::nullopt;
  return "file " + printable(found->get<std::string>().substr(0, 12));
}

std::string drafters_text(const ProfileStore::Entry& entry) {
  const ProfileKey& key = entry.key;
  if (const auto hash = hash_text(entry.document)) return *hash;
  if (const auto tuned = tuned_text(entry.document)) return *tuned;
  if (const auto head = head_choice_from(entry.document))
    return printable(fmt::format("head right at {:.0f}% of {} places, {}{}{}",
                                 100 * head->agreement, head->places,
                                 head->type.empty() ? "type of its file" : head->type,
                                 head->reading.empty() ? "" : ", ", head->reading));
  return key.drafters.empty() ? "off" : printable(fmt::format("{}", fmt::join(key.drafters, "+")));
}

std::string machine_text(const ProfileKey& key) {
  return printable(
      fmt::format("{} x {}, {}", key.n_processors, key.processor, key.instruction_set));
}

// What a profile says of answers and drafts; "-" for what it does not know, or cannot be read.
struct LearnedText {
  std::string answers = "-";  // tokens, in the mean
  std::string shifts = "-";   // of drafters' acceptance in recent answers, in log odds
  std::string bank = "-";     // passes that drafts may lose
};

LearnedText learned_text(const ProfileStore::Entry& entry) {
  const std::optional<Profile> profile =
      entry.schema == kProfileSchema ? profile_from(entry.document) : std::nullopt;
  if (!profile || profile->learned.drafters.empty()) return {};
  const Learned& learned = profile->learned;
  std::vector<std::string> shifts;
  for (const Learned::OfDrafter& drafter : learned.drafters)
    shifts.push_back(fmt::format("{:+.1f}", drafter.acceptance.recent.best_guess));
  return {.answers = fmt::format("{:.0f}", learned.answer_tokens),
          .shifts = fmt::format("{}", fmt::join(shifts, " ")),
          .bank = fmt::format("{:.1f}", learned.bank)};
}

// A table for each machine, the one used last first.
std::string tables_text(std::span<const ProfileStore::Entry> entries) {
  std::vector<std::pair<std::string, Table>> machines;
  for (const ProfileStore::Entry& entry : entries) {
    const ProfileKey& key = entry.key;
    const std::string machine = machine_text(key);
    auto found = std::ranges::find(machines, machine, &std::pair<std::string, Table>::first);
    if (found == machines.end()) {
      const Table table(
          {"model", "threads", "drafters", "last used", "size", "tokens", "shifts", "bank"},
          "lrllrrrr");
      found = machines.insert(found, {machine, table});
    }
    const LearnedText learned = learned_text(entry);
    found->second.add({models_text(key),
                       key.n_threads == 0 ? "-" : fmt::format("{}", key.n_threads),
                       drafters_text(entry), local_time(entry.used), human_bytes(entry.bytes),
                       learned.answers, learned.shifts, learned.bank});
  }
  std::string text;
  for (const auto& [machine, table] : machines) {
    text += fmt::format("{}{}\n\n{}", text.empty() ? "" : "\n", wrap(machine, output_width()),
                        table.text(output_width()));
  }
  return text;
}

int profile_show(const Machine&, const Settings& settings) {
  Console console(settings);
  const std::vector<ProfileStore::Entry> entries =
      ProfileStore(profile_file(), console.progress()).entries();
  if (settings.json) {
    Json list = Json::array();
    for (const ProfileStore::Entry& entry : entries) list.push_back(json_of_entry(entry));
    write_json(list);
  } else if (entries.empty()) {
    write_output("no profiles\n");
  } else {
    write_output(tables_text(entries));
  }
  return kDone;
}

}  // namespace

Command profile_show_command() {
  return {.name = "profile show",
          .summary = "show what was measured and kept",
          .description =
              "Shows the profiles in the cache, those used last first: what was measured with a "
              "model on a machine, so that the next start need not measure it. Beside that what "
              "answers were like: their tokens, by how much drafters were more or less often right "
              "than usual (log odds), and the passes that drafts may still lose. --json shows all.",
          .flags = {"--json"},
          .run = profile_show};
}

}  // namespace outrider
