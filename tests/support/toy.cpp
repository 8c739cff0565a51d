#include "support/toy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_file.h"

namespace outrider::testing {
namespace {

std::string path_in(const std::string& archive, const std::string& name) {
  return fmt::format("{}/{}/{}", OUTRIDER_GOLDEN_DIR, archive, name);
}

nlohmann::json figures_of(const std::string& archive) {
  return nlohmann::json::parse(std::ifstream(fmt::format("{}/{}.json", OUTRIDER_TOY_DIR, archive)));
}

// The numbers of a .npy file of u16.
std::vector<Token> read_numbers(const std::string& path, std::size_t n) {
  const MappedFile file(path);
  CHECK(file.bytes().size() > 2 * n);
  const std::span<const std::byte> bytes = file.bytes().last(2 * n);
  std::vector<Token> numbers;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t number;
    std::memcpy(&number, &bytes[2 * i], sizeof(number));
    numbers.push_back(number);
  }
  return numbers;
}

constexpr const char* kToy = "toy";  // the target's archive

}  // namespace

ToyModel::ToyModel(const std::string& archive)
    : archive_(archive),
      figures_(figures_of(archive)),
      bigram_(figures_of(kToy)["bigram"].get<double>()),
      model_(interpret_checkpoint(
          std::make_shared<const Checkpoint>(read_gguf(path_in(kToy, "target.gguf"))))),
      tokenizer_(std::vector<std::string>(static_cast<std::size_t>(model_.spec.vocabulary), "x")),
      tokens_(read_numbers(path_in(kToy, "tokens.npy"), kTexts * kLength)),
      own_(read_numbers(path_in(kToy, "target.npy"), kTexts * kLength)) {}

std::string ToyModel::path_of(const std::string& name) const {
  return path_in(archive_, name);
}

Head ToyModel::read(const std::string& folder) const {
  return open_head(path_of(folder), model_);
}

std::shared_ptr<const HeadToLoad> ToyModel::to_load(const Head& head) const {
  const DrafterKind& kind = *parse_draft("eagle=head", "").at(0).kind;  // which loads as all do
  LoadOptions options =
      kind.head_options(head, tokenizer_, {{"--draft-quantize", "off"}, {"--draft-vocab", "all"}});
  return std::make_shared<const HeadToLoad>(HeadToLoad{head.model, std::move(options)});
}

std::unique_ptr<Backend> ToyModel::load(const Head& head, bool shares_texts) const {
  return load_cpu(model_, {.context = 320,
                           .n_slots = 1024,
                           .n_pages = 64,
                           .shares_texts = shares_texts,
                           .batch_rows = 1024,
                           .cache_type = CacheType::f32,
                           .n_threads = 2,
                           .head = to_load(head)});
}

std::span<const Token> ToyModel::text(int index) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(index) * kLength, kLength);
}

Token ToyModel::own(int index, int position) const {
  return own_[static_cast<std::size_t>(index * kLength + position)];
}

Pass ToyModel::compute_target(Backend& backend, SequenceId sequence, std::span<const Token> text) {
  std::vector<Row> rows;
  for (int i = 0; i < std::ssize(text); ++i)
    rows.push_back({.sequence = sequence,
                    .token = text[i],
                    .position = i,
                    .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
  return backend.forward(rows);
}

std::vector<Token> ToyModel::best(Backend& backend, const Pass& pass, std::span<const Row> rows) {
  std::vector<ChoiceRequest> requests;
  for (int row = 0; row < std::ssize(rows); ++row)
    if (rows[row].wants_logits) requests.push_back({.row = row, .filters = {.temperature = 0}});
  std::vector<Token> tokens;
  for (const Choice& choice : backend.choose(pass, requests))
    tokens.push_back(choice.token.value());
  return tokens;
}

ToyModel::Answers ToyModel::answers_of_chain(const Head& head_read, int shift) const {
  const auto backend = load(head_read);
  Backend& head = *backend->head();
  const ModelSpec& spec = head.spec();
  const int tap = spec.eagle->state_is_normed ? spec.n_layers() : spec.n_layers() - 1;
  Answers answers(kDepths);
  for (int index = 0; index < kTexts; ++index) {
    const OwnedSequence sequence(head);
    const std::span<const Token> tokens = text(index);
    const Pass target = compute_target(*backend, sequence.id(), tokens);
    std::vector<SlotId> slots(kLength);  // of the rows of the depth before, by position
    std::vector<std::vector<float>> states(kLength);
    for (int depth = 0; depth < kDepths; ++depth) {
      std::vector<Row> rows;
      for (int position = depth; position < kLength; ++position) {
        Row& row = rows.emplace_back(Row{.sequence = sequence.id(),
                                         .token = tokens[position],
                                         .position = position,
                                         .wants_logits = true});
        if (depth == 0) {
          row.slot = target.slots[position];
          if (position > 0) row.before = TargetRow{std::max(0, position - 1 + shift)};
        } else {
          row.parent = slots[position - 1];
          row.before = std::span<const float>(states[position - 1]);
        }
      }
      const Pass pass = head.forward(rows, {.taps = {tap}});
      const std::vector<Token> said = best(head, pass, rows);
      std::vector<std::vector<float>> next(kLength);
      for (int row = 0; row < std::ssize(rows); ++row) {
        slots[depth + row] = pass.slots[row];
        next[depth + row] = head.read_tap(pass, 0, row);
      }
      states = std::move(next);
      answers[depth].insert(answers[depth].end(), said.begin() + kFirst - depth,
                            said.begin() + kEnd - depth);
    }
  }
  return answers;
}

double ToyModel::agreement(const std::vector<Token>& answers, int further, int apart) const {
  const int n_places = (kEnd - kFirst) / apart;  // of a text
  CHECK(std::ssize(answers) == kTexts * n_places);
  int n_right = 0;
  for (int i = 0; i < std::ssize(answers); ++i) {
    const int position = kFirst + i % n_places * apart + further;
    n_right += answers[i] == own(i / n_places, position) ? 1 : 0;
  }
  return 100.0 * n_right / static_cast<double>(answers.size());
}

std::vector<double> ToyModel::shares_of_same(const Answers& answers,
                                             const std::string& file) const {
  const std::size_t n_places = answers.at(0).size();
  const std::vector<Token> expected = read_numbers(path_of(file), answers.size() * n_places);
  std::vector<double> shares;
  for (std::size_t depth = 0; depth < answers.size(); ++depth) {
    CHECK(answers[depth].size() == n_places);
    int n_same = 0;
    for (std::size_t i = 0; i < n_places; ++i)
      n_same += answers[depth][i] == expected[depth * n_places + i] ? 1 : 0;
    shares.push_back(100.0 * n_same / static_cast<double>(n_places));
  }
  return shares;
}

ToyModel::Decodings ToyModel::decode_both(const Head& head, const std::string& drafter,
                                          float temperature) const {
  Task task{.target = &model_,
            .tokenizer = &tokenizer_,
            .prompt = {tokens_.begin(), tokens_.begin() + 60},
            .sampling = {},
            .n_predict = kPredicted};
  task.sampling.filters.temperature = temperature;
  (head.model.spec.medusa ? task.medusa : task.head) = to_load(head);
  const Isa isa = available_isas().back();
  return {decode(task, {.isa = isa}), decode(task, {.draft = drafter, .n_mates = 2, .isa = isa})};
}

}  // namespace outrider::testing
