#include "cli/chat.h"

#include <csignal>

#include "base/nearest_name.h"
#include "cli/failure.h"
#include "cli/line_reader.h"
#include "cli/reliability.h"
#include "cli/signals.h"

namespace outrider {
namespace {

// "lookup 12 of 40 accepted", for each drafter that proposed anything; empty without.
std::string drafts_text(const Completion& completion) {
  std::vector<std::string> parts;
  for (const auto& draft : completion.draft) {
    if (draft.counts.proposed == 0) continue;
    parts.push_back(fmt::format("{} {} of {} accepted", draft.name, draft.counts.accepted,
                                draft.counts.proposed));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

ShowText AnswerPrinter::show() {
  return [this](std::string_view text, bool was_draft) {
    if (text.empty()) return;
    // A note may come after any piece of text, so no piece leaves its colour on.
    write_output(was_draft && !palette_.accepted.empty()
                     ? fmt::format("{}{}{}", palette_.accepted, text, palette_.reset)
                     : std::string(text));
    console_.text_written(text);
  };
}

void AnswerPrinter::end_line() {
  if (!console_.mid_line()) return;
  write_output("\n");
  console_.text_written("\n");
}

AnswerPrinter::~AnswerPrinter() {
  try {
    end_line();
  } catch (...) {
    // Standard output cannot be written to; the write that found out has reported it.
  }
}

std::string answer_summary(const Completion& answer) {
  std::string text = fmt::format("[{} tokens", answer.completion_tokens);
  if (answer.tokens_per_second() > 0) {
    text += fmt::format(", {:.1f} tokens/s", answer.tokens_per_second());
  }
  text += fmt::format("; prompt {} tokens", answer.prompt_tokens);
  if (answer.cached_tokens) text += fmt::format(", {} of them reused", answer.cached_tokens);
  text += fmt::format(", {:.2f} s", answer.prompt_ms / 1000);
  if (const std::string drafts = drafts_text(answer); !drafts.empty()) {
    text +=
        fmt::format("; {}, {:.2f} tokens per pass", drafts, totals_of(answer).tokens_per_pass());
  }
  return text + (answer.finish_reason == FinishReason::length ? "; cut at the limit]" : "]");
}

namespace {

const std::string& chat_help() {
  static const std::string text = fmt::format(
      "/reset       forget the conversation\n"
      "/stats       tokens and time of the last answer\n"
      "/draft HOW   change drafters: off, auto, or drafters joined by +: {}\n"
      "/help        this list\n"
      "/exit        end the chat, as Ctrl-D does\n"
      "Ctrl-C stops an answer; twice at an empty line it ends the chat.",
      drafter_names());
  return text;
}

class Chat {
 public:
  Chat(Workbench& bench, const DraftSetting& draft, const Settings& settings, Console& console)
      : bench_(bench),
        settings_(settings),
        console_(console),
        engine_(bench.make_engine(draft)),
        session_(bench.open_session(*engine_)),
        draft_(draft),
        printer_(settings, console) {
    reset();
  }

  int run() {
    console_.note(fmt::format("{}, context {}; /help lists the commands", bench_.model().name,
                              bench_.context()));
    bench_.note_sampling();
    for (bool interrupted = false;;) {
      const auto line = reader_.read();
      if (!line) return end();
      if (line->interrupted) {
        if (take_signal() == SIGTERM) throw Interrupted{SIGTERM};
        if (interrupted && line->text.empty()) throw Interrupted{SIGINT};
        interrupted = line->text.empty();
        if (interrupted) console_.note("Ctrl-C once more, or Ctrl-D, ends the chat");
        continue;
      }
      interrupted = false;
      const auto first = line->text.find_first_not_of(" \t\r");
      if (first == std::string::npos) continue;
      try {
        if (line->text[first] == '/') {
          if (!command(line->text.substr(first))) return end();
        } else {
          answer(line->text);
        }
      } catch (const Error& error) {
        // The chat goes on: another message may work.
        console_.clear();
        write_error(fmt::format("{}\n", message_of(error)));
      }
    }
  }

 private:
  // What was learned with the drafters that the chat began with is kept for the next one.
  int end() {
    if (!has_changed_drafters_) bench_.keep_profile(*engine_);
    return kDone;
  }

  // The session stays: what conversations begin with is read once.
  void reset() { messages_ = bench_.conversation(); }

  // Of the conversation so far.
  int n_tokens() const {
    return messages_.size() > bench_.conversation().size() ? session_.n_tokens() : 0;
  }

  // Returns false at /exit.
  bool command(const std::string& line) {
    const auto space = std::min(line.find_first_of(" \t"), line.size());
    const std::string name = line.substr(0, space);
    const auto begin = line.find_first_not_of(" \t", space);
    std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    rest.erase(rest.find_last_not_of(" \t\r") + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      console_.note(chat_help());
    } else if (name == "/reset") {
      reset();
      console_.note("forgotten");
    } else if (name == "/stats") {
      console_.note(last_ ? answer_summary(*last_) : "there is no answer yet");
      console_.note(fmt::format("{} of {} tokens of context used; --draft {}", n_tokens(),
                                bench_.context(), draft_.text));
      if (const Reliability reliability = engine_->planner_report().reliability;
          reliability.n() > 0)
        console_.note(reliability_text(reliability));
    } else if (name == "/draft") {
      if (!rest.empty()) {
        DraftSetting draft = parse_draft_setting(rest, settings_);
        add_catalog_draft(draft, settings_, console_);
        engine_->set_drafters(bench_.make_drafters(draft));
        engine_->measure_costs();
        has_changed_drafters_ = true;
        draft_ = std::move(draft);
      }
      console_.note(fmt::format("--draft {}", draft_.text));
    } else {
      static const std::string kNames[] = {"/reset", "/stats", "/draft", "/help", "/exit"};
      throw Error("{}: no such command{}; /help lists them", name, did_you_mean(name, kNames));
    }
    return true;
  }

  void answer(const std::string& text) {
    messages_.push_back({"user", text});
    try {
      last_ = session_.complete(bench_.request(session_.tokens_of(messages_), draft_, -1),
                                printer_.show(), &interrupt_flag());
    } catch (const Error&) {
      messages_.pop_back();
      printer_.end_line();
      if (n_tokens() > 0)
        console_.note("/reset forgets the conversation, -c N makes room for more");
      throw;
    }
    printer_.end_line();
    bench_.count_drafts(*last_);
    messages_.push_back({"assistant", last_->text});
    if (pending_signal()) {
      if (take_signal() == SIGTERM) throw Interrupted{SIGTERM};
      console_.note("stopped");
    } else if (session_.n_tokens() >= bench_.context()) {
      console_.note(
          fmt::format("the context of {} tokens is full: /reset forgets the conversation, "
                      "-c N makes room for more",
                      bench_.context()));
    }
  }

  Workbench& bench_;
  const Settings& settings_;
  Console& console_;
  std::unique_ptr<Engine> engine_;
  Session session_;
  bool has_changed_drafters_ = false;
  DraftSetting draft_;
  AnswerPrinter printer_;
  LineReader reader_;
  std::vector<Message> messages_;
  std::optional<Completion> last_;
};

}  // namespace

int chat(Workbench& bench, const DraftSetting& draft, const Settings& settings, Console& console) {
  if (!bench.model().chat_template) {
    throw Error(
        "{}: has no chat template, so it cannot chat; give it a text to continue: "
        "outrider run -m {} -p TEXT",
        bench.model().name, bench.model().name);
  }
  bench.model().chat_template->check_usable();
  return Chat(bench, draft, settings, console).run();
}

}  // namespace outrider
