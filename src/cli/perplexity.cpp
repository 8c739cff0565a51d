// How well a model predicts a text, at once or in chunks as llama.cpp's llama-perplexity, and how
// far it is from logits that were stored.

#include <algorithm>
#include <cmath>

#include "cli/divergence.h"
#include "cli/generate.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "formats/npy.h"

namespace outrider {
namespace {

constexpr std::size_t kRows = 64;  // of a pass, so that their logits take little memory

// Tokens that are read by themselves. Those after `scored` are predicted.
struct Chunk {
  std::vector<Token> tokens;
  std::size_t scored;  // the first position whose prediction counts

  std::size_t n_scored() const { return tokens.size() - 1 - scored; }
};

// Without a context: the whole text, every token but the first predicted. With one: pieces of so
// many tokens, of which the second half is predicted, so that each has half a context before it. A
// rest is left out. A model that expects BOS gets it as the first token of each piece.
std::vector<Chunk> chunks_of(const std::vector<Token>& text, std::optional<int> context,
                             const Tokenizer& tokenizer, std::optional<int> n_max) {
  if (!context) return {{text, 0}};
  const auto size = static_cast<std::size_t>(*context);
  std::vector<Chunk> chunks;
  for (std::size_t first = 0; first + size <= text.size(); first += size) {
    if (n_max && chunks.size() == static_cast<std::size_t>(*n_max)) break;
    Chunk chunk{{text.begin() + static_cast<std::ptrdiff_t>(first),
                 text.begin() + static_cast<std::ptrdiff_t>(first + size)},
                size / 2};
    if (tokenizer.add_bos && tokenizer.bos) chunk.tokens[0] = *tokenizer.bos;
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

// Calls f(logits, next token) for every prediction of a chunk that counts.
template <typename F>
void for_each_prediction(Backend& backend, const Chunk& chunk, const F& f) {
  const OwnedSequence sequence(backend);
  for (std::size_t first = 0; first + 1 < chunk.tokens.size(); first += kRows) {
    const std::size_t end = std::min(first + kRows, chunk.tokens.size() - 1);
    std::vector<Row> rows;
    std::vector<ChoiceRequest> requests;
    for (std::size_t at = first; at < end; ++at) {
      const int row = static_cast<int>(at - first);
      const bool is_scored = at >= chunk.scored;
      rows.push_back({.sequence = sequence.id(),
                      .token = chunk.tokens[at],
                      .position = static_cast<int>(at),
                      .parent = row == 0 ? Parent(CommittedEnd{}) : Parent(EarlierRow{row - 1}),
                      .wants_logits = is_scored});
      if (is_scored)
        requests.push_back({.row = row, .filters = {.temperature = 0}, .wants_logits = true});
    }
    const Pass pass = backend.forward(rows);
    for (const ChoiceRequest& request : requests) {
      const Choice choice = backend.choose(pass, std::span(&request, 1))[0];
      f(choice.logits, chunk.tokens[first + static_cast<std::size_t>(request.row) + 1]);
    }
    backend.commit(sequence.id(), pass.slots);
    stop_if_interrupted();
  }
}

struct Scores {
  std::vector<double> nll, kl, agrees, other_nll, nll_difference;

  void add(const PredictionScore& score) {
    nll.push_back(score.nll);
    kl.push_back(score.kl);
    agrees.push_back(score.agrees);
    other_nll.push_back(score.other_nll);
    nll_difference.push_back(score.nll - score.other_nll);
  }
};

// A perplexity and its standard error: that of a function of the mean.
Estimate perplexity_of(std::span<const double> nll) {
  const Estimate mean = estimate(nll);
  return {std::exp(mean.mean), std::exp(mean.mean) * mean.error};
}

constexpr double kQuantiles[] = {0.5, 0.9, 0.95, 0.99, 1};

std::string report_text(const Scores& scores, std::size_t n_chunks, bool compares) {
  const Estimate perplexity = perplexity_of(scores.nll);
  std::string text = fmt::format("perplexity  {:.4f} ± {:.4f}  ({} predictions in {} {})\n",
                                 perplexity.mean, perplexity.error, scores.nll.size(), n_chunks,
                                 n_chunks == 1 ? "chunk" : "chunks");
  if (!compares) return text;
  const Estimate ratio = perplexity_of(scores.nll_difference);
  const Estimate kl = estimate(scores.kl), agrees = estimate(scores.agrees);
  text += fmt::format("            {:.4f} by the stored logits, ratio {:.6f} ± {:.6f}\n",
                      perplexity_of(scores.other_nll).mean, ratio.mean, ratio.error);
  text += fmt::format("divergence  mean {:.6f} ± {:.6f}", kl.mean, kl.error);
  for (const double share : kQuantiles)
    text += fmt::format(", {} {:.6f}", share == 1 ? "largest" : fmt::format("{:g} %", 100 * share),
                        quantile(scores.kl, share));
  text +=
      fmt::format("\nsame best token  {:.3f} ± {:.3f} %\n", 100 * agrees.mean, 100 * agrees.error);
  return text;
}

Json report_json(const Scores& scores, std::size_t n_chunks, bool compares) {
  const auto json = [](const Estimate& value) {
    return Json{{"mean", value.mean}, {"standard_error", value.error}};
  };
  Json document = {{"predictions", scores.nll.size()},
                   {"chunks", n_chunks},
                   {"perplexity", json(perplexity_of(scores.nll))}};
  if (!compares) return document;
  document["stored"] = {{"perplexity", json(perplexity_of(scores.other_nll))},
                        {"perplexity_ratio", json(perplexity_of(scores.nll_difference))},
                        {"kl_divergence", json(estimate(scores.kl))},
                        {"same_best_token", json(estimate(scores.agrees))}};
  Json& quantiles = document["stored"]["kl_divergence"]["quantiles"] = Json::object();
  for (const double share : kQuantiles)
    quantiles[fmt::format("{:g}", share)] = quantile(scores.kl, share);
  return document;
}

int perplexity(const Machine& machine, const Settings& settings) {
  if (settings.chunks && !settings.ctx_size)
    throw UsageError("--chunks {}: needs --ctx-size, the tokens of a chunk", *settings.chunks);
  if (settings.ctx_size && *settings.ctx_size < 4)
    throw UsageError("--ctx-size {}: at least 4 for perplexity", *settings.ctx_size);
  Console console(settings);
  const std::optional<std::string> given = single_prompt(settings);
  if (!given) throw UsageError("no text: --file FILE or --prompt TEXT gives one");
  const std::string& text = *given;
  if (text.empty()) throw Error("{}: the text is empty", settings.prompt_file.value_or("--prompt"));
  const OpenedModel opened =
      open_model(checked_model_name(settings.model), pull_options(settings, console),
                 {.tokenizer_pre = settings.tokenizer_pre});
  const TextPiece piece{text, false};
  const std::vector<Token> tokens = opened.tokenizer->encode_whole(std::span(&piece, 1));
  const std::vector<Chunk> chunks =
      chunks_of(tokens, settings.ctx_size, *opened.tokenizer, settings.chunks);
  if (chunks.empty() || chunks[0].tokens.size() < 2) {
    throw Error("the text has {} tokens, expected at least {}", tokens.size(),
                settings.ctx_size.value_or(2));
  }
  std::size_t n_predictions = 0;
  for (const Chunk& chunk : chunks) n_predictions += chunk.n_scored();

  const auto vocabulary = static_cast<std::size_t>(opened.model.spec.vocabulary);
  std::optional<NpyMatrix> stored;
  if (settings.kl_divergence_base) {
    stored.emplace(*settings.kl_divergence_base);
    if (stored->rows() != n_predictions || stored->columns() != vocabulary) {
      throw Error("{}: is [{}, {}], but this text and model give [{}, {}]",
                  *settings.kl_divergence_base, stored->rows(), stored->columns(), n_predictions,
                  vocabulary);
    }
  }
  std::optional<NpyWriter> writer;
  if (settings.logits_out) writer.emplace(*settings.logits_out, n_predictions, vocabulary);

  Settings fixed = settings;
  fixed.ctx_size = static_cast<int>(chunks[0].tokens.size());
  fixed.batch_size = static_cast<int>(kRows);
  const Workbench bench(machine, fixed, {}, console);
  Scores scores;
  for (const Chunk& chunk : chunks) {
    for_each_prediction(bench.target(), chunk, [&](std::span<const float> logits, Token next) {
      const std::size_t at = scores.nll.size();
      if (writer) writer->append(logits);
      const std::vector<float> other = stored ? stored->row(at) : std::vector<float>();
      scores.add(score_prediction(logits, other, next));
      console.advance("reading", static_cast<double>(at + 1) / static_cast<double>(n_predictions));
    });
  }
  if (writer) writer->finish();
  console.clear();
  if (settings.json) {
    write_json(report_json(scores, chunks.size(), stored.has_value()));
  } else {
    write_output(report_text(scores, chunks.size(), stored.has_value()));
  }
  return kDone;
}

}  // namespace

Command perplexity_command() {
  return {
      .name = "perplexity",
      .summary = "measure how well a model predicts a text",
      .description =
          "The perplexity of a text (--file or --prompt, read as plain text): at once, every token "
          "but the first predicted; or with --ctx-size in chunks of so many tokens, the second "
          "half "
          "of each predicted, as llama.cpp's llama-perplexity does. --logits-out stores the logits "
          "of all predictions, and --kl-divergence-base compares with stored ones: the "
          "Kullback-Leibler divergence from them in nats, and how often the best token is the "
          "same.",
      .flag_set = FlagSet::loading,
      .flags = {"--prompt", "--file", "--ctx-size", "--chunks", "--logits-out",
                "--kl-divergence-base"},
      .run = perplexity};
}

}  // namespace outrider
