#include <poll.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "base/bytes.h"
#include "cli/generate.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "cli/version.h"
#include "runtime/sampling_defaults.h"
#include "server/anthropic_routes.h"
#include "server/ignored_fields.h"
#include "server/metrics.h"
#include "server/openai_routes.h"
#include "server/server.h"
#include "server/token_routes.h"

namespace outrider {
namespace {

std::vector<std::string> api_keys(const Settings& settings) {
  std::vector<std::string> keys = settings.api_keys;
  if (!settings.api_key_file) return keys;
  std::istringstream file(read_text(*settings.api_key_file));
  const std::size_t n_before = keys.size();
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    keys.push_back(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
  }
  if (keys.size() == n_before)
    throw Error("--api-key-file {}: holds no key", *settings.api_key_file);
  return keys;
}

std::string name_for_clients(const Settings& settings) {
  return settings.aliases.empty() || settings.aliases[0] == "*" ? settings.model
                                                                : settings.aliases[0];
}

std::vector<HttpRoute> api_routes(const std::shared_ptr<const ServedModel>& model) {
  std::vector<HttpRoute> routes = openai_routes(model);
  for (const auto& more : {anthropic_routes(model), token_routes(model)})
    routes.insert(routes.end(), more.begin(), more.end());
  return routes;
}

// Notes of a server at work, from any thread. A log that cannot be written any more ends nothing:
// that is said once.
class ServerLog {
 public:
  explicit ServerLog(Console& console) : console_(console) {}

  void note(std::string_view line) {
    unless_it_fails([&] { console_.note(line); });
  }
  void detail(std::string_view line) {
    unless_it_fails([&] { console_.detail(line); });
  }

 private:
  template <typename Write>
  void unless_it_fails(Write write) {
    try {
      write();
    } catch (const Error& error) {
      if (!has_failed_.exchange(true)) write_error(fmt::format("outrider: {}\n", error.what()));
    }
  }

  Console& console_;
  std::atomic<bool> has_failed_ = false;
};

// Why answers failed. Any thread adds at once, so that no answer waits for a log; the thread that
// waits for signals writes.
class FailedAnswers {
 public:
  void add(const Error& error) {
    try {
      const std::lock_guard lock(mutex_);
      if (reasons_.size() < kReasonsMax) ++reasons_[printable(error.what(), kBytesMax)];
    } catch (const std::bad_alloc&) {  // the client hears of it
    }
  }
  void write(ServerLog& log) {
    std::map<std::string, int> reasons;
    {
      const std::lock_guard lock(mutex_);
      reasons.swap(reasons_);
    }
    for (const auto& [reason, n] : reasons)
      log.note(n == 1 ? fmt::format("an answer failed: {}", reason)
                      : fmt::format("{} answers failed: {}", n, reason));
  }

 private:
  static constexpr std::size_t kReasonsMax = 10, kBytesMax = 300;  // between two writes

  std::mutex mutex_;
  std::map<std::string, int> reasons_;
};

HttpServerOptions http_options(const Settings& settings, Metrics& metrics, ServerLog& log) {
  HttpServerOptions options{.host = settings.host,
                            .port = settings.port,
                            .n_threads = settings.http_threads,
                            .guards = {api_keys(settings), settings.cors_origins}};
  options.access_log =
      [&log, count = metrics.count_requests(api_routes(nullptr))](const HttpAccess& access) {
        count(access);
        log.detail(fmt::format("{} {} {} {} bytes {:.1f} ms", access.method, access.path,
                               access.status, access.bytes, access.ms));
      };
  return options;
}

std::string url(const Settings& settings, int port) {
  const bool is_ipv6 = settings.host.find(':') != std::string::npos;
  return fmt::format("http://{0}{1}{2}:{3}", is_ipv6 ? "[" : "", settings.host, is_ipv6 ? "]" : "",
                     port);
}

std::shared_ptr<const ServedModel> served_model(const Settings& settings, const Workbench& bench,
                                                const Engine& engine, Scheduler& scheduler,
                                                Metrics& metrics, FailedAnswers& failed,
                                                IgnoredFields& ignored) {
  const OpenedModel& opened = bench.model();
  auto model = std::make_shared<ServedModel>();
  model->name = name_for_clients(settings);
  for (const std::string& alias : settings.aliases)
    if (alias != model->name) model->aliases.push_back(alias);
  model->version = fmt::format("outrider-{}-{}", version(), commit());
  model->created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  model->tokenizer = opened.tokenizer;
  model->chat_template = opened.chat_template;
  if (opened.chat_template) model->format = answer_format(*opened.chat_template);
  model->vocabulary = opened.model.spec.vocabulary;
  model->context = bench.context();
  for (const auto& drafter : engine.drafters()) model->drafters.emplace_back(drafter->name());
  model->filters = [checkpoint = opened.model.checkpoint,
                    standard = settings.filters](const FilterSettings& asked) {
    return filters_for(asked.or_else(standard), checkpoint->metadata);
  };
  model->repeat_last_n = settings.repeat_last_n;
  model->verifier = settings.verifier;
  model->typical_acceptance = settings.typical_acceptance;
  model->keys_share_cache = settings.share_cache;
  model->answers_max =
      static_cast<std::size_t>(settings.parallel) + static_cast<std::size_t>(settings.queue_max);
  model->unknown_field = [&](const std::string& place) {
    metrics.count_ignored_field();
    ignored.add(place);
  };
  model->submit = [&](AnswerRequest request, AnswerListener listener) {
    auto watched = [&failed, next = std::move(listener)](const AnswerEvent& event) {
      if (event.end && event.end->error) failed.add(*event.end->error);
      next(event);
    };
    return scheduler.submit(std::move(request), metrics.watch(std::move(watched)));
  };
  model->cancel = [&scheduler](AnswerId id) { scheduler.cancel(id); };
  return model;
}

StatusSources status_sources(const Workbench& bench, const ServedModel& model, const Server& server,
                             const Scheduler& scheduler, const Metrics& metrics,
                             const Settings& settings, bool drafts) {
  const auto text_of = [&](std::optional<Token> token) {
    return token ? std::string(model.tokenizer->text(*token)) : std::string();
  };
  ServerProperties properties{
      .model_name = model.name,
      .model_path = std::filesystem::path(bench.model().model.checkpoint->path).filename(),
      .chat_template = model.chat_template ? std::string(model.chat_template->source()) : "",
      .bos_token = text_of(model.tokenizer->bos),
      .eos_token = text_of(model.tokenizer->eos),
      .context = model.context,
      .n_running = settings.parallel,
      .drafts = drafts,
      .filters = model.filters({}),
      .verifier = model.verifier};
  return {.version = std::string(version()),
          .state = [&server] { return server.state(); },
          .properties = [properties] { return properties; },
          .status = [&scheduler] { return scheduler.status(); },
          .metrics = [&metrics](const SchedulerStatus& status) { return metrics.text(status); }};
}

void write(IgnoredFields& ignored, ServerLog& log) {
  for (const std::string& line : ignored.take_lines()) log.note(line);
}

// Until a signal comes; false: the server failed meanwhile.
bool wait_for_signal(const Server& server, const Scheduler& scheduler, FailedAnswers& failed,
                     IgnoredFields& ignored, ServerLog& log) {
  constexpr int kWaitMs = 500;
  bool is_misaligned = false;
  while (!pending_signal()) {
    if (server.failure()) return false;
    failed.write(log);
    write(ignored, log);
    if (!is_misaligned)
      for (const SchedulerStatus::OfDrafter& drafter : scheduler.status().drafters)
        if (const auto problem = misalignment(drafter.name, drafter.counts)) {
          is_misaligned = true;
          log.note(*problem);
        }
    ::poll(nullptr, 0, kWaitMs);  // a signal ends it
  }
  return true;
}

int serve(const Machine& machine, const Settings& settings) {
  DraftSetting draft = parse_draft_settings(settings, {"auto"}).back();
  check_draft_flags(settings, {&draft, 1}, /*prompts_bring_predictions=*/true);
  Console console(settings);
  add_catalog_draft(draft, settings, console);
  for (DraftChoice& choice : draft.choices) choice.late = false;

  Metrics metrics(name_for_clients(settings), std::string(version()));
  ServerLog log(console);
  FailedAnswers failed;
  IgnoredFields ignored;
  Server server(http_options(settings, metrics, log), std::string(version()));
  const std::string address = url(settings, server.port());
  console.note(fmt::format("listening on {}, loading {}", address, settings.model));
  if (!server.is_loopback() && settings.api_keys.empty() && !settings.api_key_file)
    console.note(
        "anyone who reaches this address can use the server: --api-key-file asks for a key");

  Workbench bench(machine, settings, {&draft, 1}, console,
                  {.n_sequences = settings.parallel,
                   .keeps = true,
                   .pool = RuntimeOptions::Pool{settings.cache_memory}});
  note_known_drafts(draft, settings, *bench.model().model.checkpoint, console);
  if (const auto& broken = bench.model().chat_template; broken && broken->problem())
    console.note(
        fmt::format("requests with messages are refused: {}; choose another chat template "
                    "(--chat-template-file)",
                    *broken->problem()));
  const std::unique_ptr<Engine> engine = bench.make_engine(draft);
  Scheduler scheduler(*engine, bench.tokenizer(),
                      {.n_running = settings.parallel,
                       .n_waiting = settings.queue_max,
                       .max_pause_ms = settings.pause_ms_max,
                       .time_max = std::chrono::seconds(settings.request_seconds)});
  const struct Stop {
    Server& server;
    ~Stop() { server.stop(); }
  } stop{server};
  stop_if_interrupted();
  const auto model = served_model(settings, bench, *engine, scheduler, metrics, failed, ignored);
  server.serve(status_routes(status_sources(bench, *model, server, scheduler, metrics, settings,
                                            !engine->drafters().empty())),
               api_routes(model), scheduler);
  log.note(fmt::format("{} is ready at {}/v1", bench.model().name, address));

  if (wait_for_signal(server, scheduler, failed, ignored, log)) {
    const int signal = take_signal();
    const std::chrono::seconds most(settings.drain_seconds);
    if (!server.drain(most, [&] { return !pending_signal() && !server.failure(); }))
      log.note("answers in progress were ended");
    server.stop();
    failed.write(log);
    write(ignored, log);
    if (!server.failure()) {
      bench.keep_profile(*engine);
      return signal == SIGTERM ? kDone : 128 + signal;
    }
  }
  std::rethrow_exception(server.failure());
}

}  // namespace

Command serve_command() {
  std::vector<std::string_view> flags = {"--model",
                                         "--offline",
                                         "--tokenizer-pre",
                                         "--threads",
                                         "--cache-type",
                                         "--log-file",
                                         "--quiet",
                                         "--verbose",
                                         "--model-draft",
                                         "--ctx-size",
                                         "--batch-size",
                                         "--chat-template-file",
                                         "--chat-template-kwargs",
                                         "--reasoning",
                                         "--temp",
                                         "--top-k",
                                         "--typical",
                                         "--top-p",
                                         "--min-p",
                                         "--repeat-penalty",
                                         "--repeat-last-n",
                                         "--presence-penalty",
                                         "--frequency-penalty",
                                         "--draft",
                                         "--draft-rows",
                                         "--draft-depth",
                                         "--draft-width",
                                         "--budget",
                                         "--verify",
                                         "--typical-epsilon",
                                         "--typical-delta",
                                         "--host",
                                         "--port",
                                         "--alias",
                                         "--parallel",
                                         "--cache-memory",
                                         "--max-pause-ms",
                                         "--max-queue",
                                         "--request-seconds",
                                         "--drain-seconds",
                                         "--api-key",
                                         "--api-key-file",
                                         "--share-cache",
                                         "--cors-origin",
                                         "--threads-http"};
  for (const DrafterKind* kind : drafter_kinds())
    for (const DrafterFlag& flag : kind->flags) flags.emplace_back(flag.name);
  return {.name = "serve",
          .summary = "answer many users by OpenAI's and Anthropic's HTTP APIs",
          .description =
              "Loads a model and answers requests over HTTP: /v1/chat/completions, "
              "/v1/completions, /v1/models, /v1/messages and more. Requests share the model's "
              "passes and what their texts have in common; speculation goes on as long as it pays "
              "at the present load. Sampling flags hold for requests that leave them out. SIGTERM "
              "or Ctrl-C lets answers in progress end.",
          .flag_set = FlagSet::every,
          .flags = std::move(flags),
          .run = serve};
}

}  // namespace outrider
