#include "server/messages_answer.h"

#include <utility>

#include "formats/parse_json.h"
#include "http/error_body.h"
#include "server/answer_reader.h"

namespace outrider {
namespace {

using Kind = AnswerDelta::Kind;

Json usage_json(const AnswerFigures& figures) {
  return {{"input_tokens", figures.prompt_tokens - figures.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", figures.cached_tokens},
          {"output_tokens", figures.completion_tokens}};
}

Json block_json(Kind kind) {
  if (kind == Kind::reasoning) return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  return {{"type", "text"}, {"text", ""}};
}

// What both forms keep of the answer.
class MessagesForm : public AnswerForm {
 public:
  explicit MessagesForm(MessagesAnswerOptions options)
      : options_(std::move(options)), reader_(options_.format, options_.parser) {}
  bool has_enough(int) const override { return reader_.has_enough(); }

 protected:
  std::vector<AnswerDelta> read(const AnswerEvent& event) {
    if (event.end) end_ = *event.end;
    std::vector<AnswerDelta> deltas = reader_.read(event);
    for (AnswerDelta& delta : deltas)
      if (delta.kind == Kind::reasoning && !options_.shows_thinking) delta.text.clear();
    return deltas;
  }
  Json call_json(const std::string& name) const {
    return {{"type", "tool_use"},
            {"id", options_.new_call_id()},
            {"name", name},
            {"input", Json::object()}};
  }
  Json message_json(Json content, const AnswerFigures& figures) const {
    return {{"id", options_.head.id},        {"type", "message"},
            {"role", "assistant"},           {"model", options_.head.model},
            {"content", std::move(content)}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr},      {"usage", usage_json(figures)},
            {"seed", options_.head.seed}};
  }
  // Why the answer ended, into a message or a delta of one.
  void add_reason(Json& json) const {
    json["stop_reason"] = reader_.calls() ? "tool_use" : "end_turn";
    json["stop_sequence"] = nullptr;
    if (end_.reason == FinishReason::length) {
      json["stop_reason"] = "max_tokens";
    } else if (end_.stop_text) {
      json["stop_reason"] = "stop_sequence";
      json["stop_sequence"] = *end_.stop_text;
    }
  }

  const MessagesAnswerOptions options_;
  AnswerReader reader_;
  AnswerEnd end_;
};

class MessagesDocument final : public MessagesForm {
 public:
  using MessagesForm::MessagesForm;

  std::string push(int, const AnswerEvent& event) override {
    for (const AnswerDelta& delta : read(event)) add(delta);
    return {};
  }

  std::string end() override {
    Json json = message_json(std::move(content_), end_.figures);
    add_reason(json);
    json["timings"] = timings_json(end_.figures);
    return dump_json(json);
  }

 private:
  void add(const AnswerDelta& delta) {
    switch (delta.kind) {
      case Kind::content: add_text(delta, "text"); break;
      case Kind::reasoning: add_text(delta, "thinking"); break;
      case Kind::call:
        content_.push_back(call_json(delta.text));
        arguments_.clear();
        break;
      case Kind::arguments: arguments_ += delta.text; break;
      case Kind::call_end: content_.back()["input"] = json_literal(arguments_); break;
      case Kind::call_void: content_.erase(content_.size() - 1); break;
    }
  }
  void add_text(const AnswerDelta& delta, const char* type) {
    if (content_.empty() || content_.back()["type"] != type)
      content_.push_back(block_json(delta.kind));
    content_.back()[type].get_ref<std::string&>() += delta.text;
  }

  Json content_ = Json::array();
  std::string arguments_;  // of the last call
};

class MessagesStream final : public MessagesForm {
 public:
  using MessagesForm::MessagesForm;

  std::string begin() override {
    const AnswerFigures figures{.prompt_tokens = options_.prompt_tokens};
    write("message_start", {{"message", message_json(Json::array(), figures)}});
    return std::exchange(text_, {});
  }

  std::string push(int, const AnswerEvent& event) override {
    for (const AnswerDelta& delta : read(event)) add(delta);
    return std::exchange(text_, {});
  }

  std::string end() override {
    Json delta = Json::object();
    add_reason(delta);
    close();
    write("message_delta", {{"delta", std::move(delta)},
                            {"usage", usage_json(end_.figures)},
                            {"timings", timings_json(end_.figures)}});
    write("message_stop", Json::object());
    return std::exchange(text_, {});
  }

  std::string fail(const RequestError& error) override {
    return "event: error\ndata: " + anthropic_error_body(error.status, error.what()) + "\n\n";
  }

 private:
  // An event's data begins with its type.
  void write(const char* type, const Json& more) {
    Json json = {{"type", type}};
    for (const auto& [key, value] : more.items()) json[key] = value;
    text_ += event_text(type, json);
  }

  void add(const AnswerDelta& delta) {
    switch (delta.kind) {
      case Kind::content:
        begin_text(delta.kind);
        write_delta({{"type", "text_delta"}, {"text", delta.text}});
        break;
      case Kind::reasoning:
        begin_text(delta.kind);
        if (options_.shows_thinking)
          write_delta({{"type", "thinking_delta"}, {"thinking", delta.text}});
        break;
      case Kind::call: begin_block(delta.kind, call_json(delta.text)); break;
      case Kind::arguments:
        write_delta({{"type", "input_json_delta"}, {"partial_json", delta.text}});
        break;
      case Kind::call_end:
      case Kind::call_void: close(); break;
    }
  }

  void begin_text(Kind kind) {
    if (open_ != kind) begin_block(kind, block_json(kind));
  }
  void begin_block(Kind kind, const Json& block) {
    close();
    open_ = kind;
    write("content_block_start", {{"index", n_blocks_}, {"content_block", block}});
  }
  void write_delta(const Json& delta) {
    write("content_block_delta", {{"index", n_blocks_}, {"delta", delta}});
  }
  void close() {
    if (!open_) return;
    open_.reset();
    write("content_block_stop", {{"index", n_blocks_++}});
  }

  std::string text_;          // not yet given out
  std::optional<Kind> open_;  // the block that has begun
  int n_blocks_ = 0;          // that are closed
};

}  // namespace

std::unique_ptr<AnswerForm> messages_document(MessagesAnswerOptions options) {
  return std::make_unique<MessagesDocument>(std::move(options));
}

std::unique_ptr<AnswerForm> messages_stream(MessagesAnswerOptions options) {
  return std::make_unique<MessagesStream>(std::move(options));
}

}  // namespace outrider
