#include "jinja/interpreter.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "jinja/builtins.h"

namespace outrider::jinja {
namespace {

// The variables of one scope. A macro keeps the scope that it was defined in, for as long as the
// rendering runs.
struct Frame {
  explicit Frame(Frame* outer_frame) : outer(outer_frame) {}
  Frame* outer;
  std::unordered_map<std::string_view, Value> variables;
  std::size_t n_charged = 0;  // the most variables that it has held
  bool captured = false;      // by a macro
};

enum class Flow { next, break_loop, continue_loop };

class Interpreter;

class MacroObject final : public Object {
 public:
  MacroObject(Interpreter& interpreter, const Macro& macro, Frame& scope)
      : interpreter_(interpreter), macro_(macro), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value attribute(Runtime& runtime, std::string_view name) override {
    return name == "name" ? runtime.text(macro_.name) : Value();
  }
  Value call(Runtime& runtime, const Arguments& arguments) override;

 private:
  Interpreter& interpreter_;
  const Macro& macro_;
  Frame& scope_;
};

// The variable `loop`.
class Loop final : public Object {
 public:
  Loop(Interpreter& interpreter, const For& node, Frame& scope, std::span<const Value> items,
       std::int64_t depth)
      : interpreter_(interpreter), node_(node), scope_(scope), items_(items), depth_(depth) {}

  std::string_view type_name() const override { return "LoopContext"; }
  Value attribute(Runtime& runtime, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override;  // of a recursive loop

  Value cycle(Runtime& runtime, const Arguments& arguments) const {
    if (arguments.positional.empty()) runtime.fail("no items for cycling given");
    return arguments.positional[index_ % arguments.positional.size()];
  }
  Value changed(Runtime& runtime, const Arguments& arguments) {
    const Value now = runtime.tuple(arguments.positional);
    const bool same = last_ && equal(runtime, *last_, now);
    last_ = now;
    return Value::boolean(!same);
  }

  void advance_to(std::size_t index) { index_ = index; }

 private:
  Interpreter& interpreter_;
  const For& node_;
  Frame& scope_;
  const std::span<const Value> items_;
  const std::int64_t depth_;  // of recursive calls, from 0
  std::size_t index_ = 0;
  std::optional<Value> last_;
};

template <auto kMethod>
class LoopMethod final : public Object {
 public:
  explicit LoopMethod(Loop& loop) : loop_(loop) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return (loop_.*kMethod)(runtime, arguments);
  }

 private:
  Loop& loop_;
};

class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : runtime_(runtime) {}

  Text run(const Body& body, const Variables& variables) {
    frame_ = &new_frame(nullptr);
    for (const auto& [name, value] : variables) set(name, value);
    execute(body);
    return std::move(output_);
  }

  // The text that a macro's body writes.
  Value call_macro(const Macro& macro, Frame& scope, const Arguments& arguments) {
    const Within within(*this, new_frame(&scope));
    bind_parameters(macro, arguments);
    return capture(macro.body);
  }

  // The text of a loop's body over other items (recursive loops).
  Value call_loop(const For& node, Frame& scope, Value items, std::int64_t depth) {
    const Within within(*this, scope);
    return captured([&] { run_loop(node, items, depth); });
  }

 private:
  // Statements and expressions within are in another scope.
  class Within {
   public:
    Within(Interpreter& interpreter, Frame& frame)
        : interpreter_(interpreter), outer_(std::exchange(interpreter.frame_, &frame)) {}
    ~Within() { interpreter_.frame_ = outer_; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    Interpreter& interpreter_;
    Frame* const outer_;
  };

  Frame& new_frame(Frame* outer) {
    runtime_.charge(sizeof(Frame));
    return frames_.emplace_back(outer);
  }
  void set(std::string_view name, Value value) {
    Frame& frame = *frame_;
    frame.variables.insert_or_assign(name, value);
    if (frame.variables.size() <= frame.n_charged) return;
    runtime_.charge(64);  // a node and its share of the buckets
    ++frame.n_charged;
  }
  Value look_up(std::string_view name) {
    for (const Frame* frame = frame_; frame; frame = frame->outer) {
      const auto found = frame->variables.find(name);
      if (found != frame->variables.end()) return found->second;
    }
    const Value value = global(runtime_, name);
    if (!value.is_undefined()) return value;
    return runtime_.undefined(fmt::format("'{}' is undefined", name));
  }

  // ---- output

  void write(const Text& text) {
    if (capture_) {
      capture_->append(text);
      return;
    }
    runtime_.charge_output(text.cost());
    output_.append(text);
  }
  template <typename Run>
  Value captured(Run&& run) {
    TextBuilder builder(runtime_);
    TextBuilder* const outer = std::exchange(capture_, &builder);
    run();
    capture_ = outer;
    return builder.finish_value();
  }
  Value capture(const Body& body) {
    return captured([&] { execute(body); });
  }

  // ---- statements

  Flow execute(const Body& body) {
    const Level level(runtime_);
    for (const Statement& statement : body) {
      runtime_.step();
      runtime_.at = statement.at;
      const Flow flow = std::visit(
          [&](const auto& node) {
            if constexpr (std::is_void_v<decltype(execute(node))>) {
              execute(node);
              return Flow::next;
            } else {
              return execute(node);
            }
          },
          statement.node);
      if (flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  void execute(const Data& node) { write(*node.text); }
  void execute(const Print& node) {
    const Value value = evaluate(*node.value);
    if (!value.is_undefined()) write(str(runtime_, value));
  }
  Flow execute(const If& node) {
    for (const auto& [test, body] : node.branches) {
      if (truthy(evaluate(*test))) return execute(body);
    }
    return execute(node.otherwise);
  }
  Flow execute(const For& node) { return run_loop(node, evaluate(*node.items), 0); }
  void execute(const Set& node) { assign(node.target, evaluate(*node.value)); }
  void execute(const SetBlock& node) {
    assign(node.target, filtered_block(node.body, node.filters.get()));
  }
  void execute(const DefineMacro& node) { set(node.macro.name, macro(node.macro)); }
  void execute(const CallBlock& node) {
    const Value caller = macro(node.caller);
    const Call& call = std::get<Call>(node.call->node);
    write(str(runtime_, evaluate_call(node.call->at, call, &caller)));
  }
  void execute(const FilterBlock& node) {
    write(str(runtime_, filtered_block(node.body, node.filters.get())));
  }
  void execute(const With& node) {
    // All values are those of the outer scope.
    std::vector<Value> values;
    for (const auto& binding : node.bindings) values.push_back(evaluate(*binding.second));
    const Within within(*this, new_frame(frame_));
    for (std::size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, values[i]);
    execute(node.body);
  }
  void execute(const Generation& node) {
    const Within within(*this, new_frame(frame_));
    execute(node.body);
  }
  Flow execute(const Break&) { return Flow::break_loop; }
  Flow execute(const Continue&) { return Flow::continue_loop; }

  Value filtered_block(const Body& body, const Expression* filters) {
    Value text;
    {
      const Within within(*this, new_frame(frame_));
      text = capture(body);
    }
    if (!filters) return text;
    block_text_ = text;
    return evaluate(*filters);
  }

  Value macro(const Macro& node) {
    Value macro(runtime_.object<MacroObject>(*this, node, *frame_));
    for (Frame* frame = frame_; frame && !frame->captured; frame = frame->outer)
      frame->captured = true;
    return macro;
  }

  // Returns the Flow of its `else`, where `break` and `continue` belong to the loop around it.
  Flow run_loop(const For& node, Value iterable, std::int64_t depth) {
    Frame& outer = *frame_;
    Frame* inner = &new_frame(&outer);
    const auto next_scope = [&] {
      if (inner->captured) inner = &new_frame(&outer);
      inner->variables.clear();
    };
    std::span<const Value> all = items(runtime_, iterable);
    if (node.filter) {
      std::vector<Value> kept;
      for (const Value& item : all) {
        next_scope();
        const Within within(*this, *inner);
        assign(node.target, item);
        if (truthy(evaluate(*node.filter))) kept.push_back(item);
      }
      all = runtime_.list(std::move(kept)).as_sequence().items;
    }
    Loop& loop = runtime_.object<Loop>(*this, node, outer, all, depth);
    bool any_completed = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      runtime_.step();
      next_scope();
      const Within within(*this, *inner);
      loop.advance_to(i);
      set("loop", Value(loop));
      assign(node.target, all[i]);
      const Flow flow = execute(node.body);
      if (flow == Flow::break_loop) break;
      any_completed |= flow == Flow::next;
    }
    // As jinja2 has it: also if `break` or `continue` cut every iteration short.
    if (any_completed) return Flow::next;
    next_scope();
    const Within within(*this, *inner);
    return execute(node.otherwise);
  }

  void assign(const Target& target, Value value) {
    runtime_.at = target.at;
    if (target.is_tuple) {
      const std::span<const Value> parts = items(runtime_, value);
      if (parts.size() != target.items.size()) {
        runtime_.fail("cannot unpack {} values into {} names", parts.size(), target.items.size());
      }
      for (std::size_t i = 0; i < parts.size(); ++i) assign(target.items[i], parts[i]);
      return;
    }
    if (target.attribute.empty()) {
      set(target.name, value);
      return;
    }
    const Value object = look_up(target.name);
    auto* const names = object.kind() == Value::Kind::object
                            ? dynamic_cast<Namespace*>(&object.as_object())
                            : nullptr;
    if (!names) runtime_.fail("cannot assign attribute on non-namespace object");
    names->set(runtime_, target.attribute, value);
  }

  void bind_parameters(const Macro& macro, const Arguments& arguments) {
    const std::vector<std::string>& parameters = macro.parameters;
    const std::size_t n_positional = std::min(parameters.size(), arguments.positional.size());
    for (std::size_t i = 0; i < n_positional; ++i) set(parameters[i], arguments.positional[i]);
    std::vector<std::pair<Value, Value>> rest;  // kwargs
    std::optional<Value> caller;
    std::vector<bool> bound(parameters.size(), false);
    for (const auto& [name, value] : arguments.named) {
      const auto found = std::find(parameters.begin(), parameters.end(), name);
      const auto index = static_cast<std::size_t>(found - parameters.begin());
      if (found != parameters.end() && index >= n_positional && !bound[index]) {
        set(*found, value);
        bound[index] = true;
      } else if (name == "caller" && macro.uses_caller) {
        caller = value;
      } else if (macro.uses_kwargs && found == parameters.end()) {
        rest.emplace_back(runtime_.text(name), value);
      } else {
        runtime_.fail("macro '{}' takes no keyword argument '{}'", macro.name, name);
      }
    }
    for (std::size_t i = n_positional; i < parameters.size(); ++i) {
      if (bound[i]) continue;
      const std::size_t first_default = parameters.size() - macro.defaults.size();
      set(parameters[i],
          i >= first_default
              ? evaluate(*macro.defaults[i - first_default])
              : runtime_.undefined(fmt::format("parameter '{}' was not provided", parameters[i])));
    }
    const bool has_caller =
        std::find(parameters.begin(), parameters.end(), "caller") != parameters.end();
    if (macro.uses_caller && !has_caller)
      set("caller", caller ? *caller : runtime_.undefined("No caller defined"));
    if (macro.uses_kwargs) set("kwargs", runtime_.mapping(rest));
    if (macro.uses_varargs) {
      set("varargs",
          runtime_.tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(n_positional),
                          arguments.positional.end()}));
    } else if (arguments.positional.size() > parameters.size()) {
      runtime_.fail("macro '{}' takes not more than {} argument(s)", macro.name, parameters.size());
    }
  }

  // ---- expressions

  Value evaluate(const Expression& expression) {
    const Level level(runtime_);
    runtime_.step();
    runtime_.at = expression.at;
    return std::visit([&](const auto& node) { return evaluate(expression.at, node); },
                      expression.node);
  }
  Value evaluate_or_none(const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value::none();
  }
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions) {
    std::vector<Value> values;
    for (const ExpressionPtr& e : expressions) values.push_back(evaluate(*e));
    return values;
  }

  Value evaluate(Position, const Constant& node) { return node.value; }
  Value evaluate(Position, const Name& node) { return look_up(node.name); }
  Value evaluate(Position, const ListLiteral& node) {
    return runtime_.list(evaluate_all(node.items));
  }
  Value evaluate(Position, const TupleLiteral& node) {
    return runtime_.tuple(evaluate_all(node.items));
  }
  Value evaluate(Position at, const DictLiteral& node) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : node.entries) {
      const Value k = evaluate(*key);
      entries.emplace_back(k, evaluate(*value));
    }
    runtime_.at = at;
    return runtime_.mapping(entries);
  }
  Value evaluate(Position at, const Attribute& node) {
    const Value object = evaluate(*node.object);
    runtime_.at = at;
    return get_attribute(runtime_, object, node.name);
  }
  Value evaluate(Position at, const Subscript& node) {
    const Value object = evaluate(*node.object), index = evaluate(*node.index);
    runtime_.at = at;
    return get_item(runtime_, object, index);
  }
  Value evaluate(Position at, const Slice& node) {
    const Value object = evaluate(*node.object);
    const Value start = evaluate_or_none(node.start), stop = evaluate_or_none(node.stop),
                step = evaluate_or_none(node.step);
    runtime_.at = at;
    return get_slice(runtime_, object, start, stop, step);
  }
  Value evaluate(Position at, const Call& node) { return evaluate_call(at, node, nullptr); }
  Value evaluate(Position at, const FilterCall& node) {
    const Value input = node.input ? evaluate(*node.input) : block_text_;
    const Arguments arguments = evaluate_arguments(node.arguments);
    runtime_.at = at;
    if (!node.filter) runtime_.fail("no filter named '{}'", node.name);
    return node.filter->apply(runtime_, input, arguments);
  }
  Value evaluate(Position at, const TestCall& node) {
    const Value input = evaluate(*node.input);
    const Arguments arguments = evaluate_arguments(node.arguments);
    runtime_.at = at;
    if (!node.test) runtime_.fail("no test named '{}'", node.name);
    return Value::boolean(passes(runtime_, *node.test, input, arguments));
  }
  Value evaluate(Position, const Not& node) {
    return Value::boolean(!truthy(evaluate(*node.operand)));
  }
  Value evaluate(Position at, const Sign& node) {
    const Value operand = evaluate(*node.operand);
    runtime_.at = at;
    const Value negated = negative(runtime_, operand);
    if (node.negative) return negated;
    return operand.is_integral() ? Value::integer(operand.as_integer()) : operand;
  }
  Value evaluate(Position, const Logical& node) {
    const Value left = evaluate(*node.left);
    return truthy(left) == node.is_and ? evaluate(*node.right) : left;
  }
  Value evaluate(Position at, const Arithmetic& node) {
    const Value left = evaluate(*node.left), right = evaluate(*node.right);
    runtime_.at = at;
    return arithmetic(runtime_, node.op, left, right);
  }
  Value evaluate(Position at, const Compare& node) {
    Value left = evaluate(*node.first);
    for (const auto& [op, expression] : node.rest) {
      const Value right = evaluate(*expression);
      runtime_.at = at;
      if (!holds(op, left, right)) return Value::boolean(false);
      left = right;
    }
    return Value::boolean(true);
  }
  Value evaluate(Position, const Concatenation& node) {
    TextBuilder out(runtime_);
    for (const ExpressionPtr& item : node.items) out.append(str(runtime_, evaluate(*item)));
    return out.finish_value();
  }
  Value evaluate(Position at, const Conditional& node) {
    if (truthy(evaluate(*node.test))) return evaluate(*node.then);
    if (node.otherwise) return evaluate(*node.otherwise);
    return runtime_.undefined(
        fmt::format("the condition on line {} is false and has no else", at.line));
  }

  bool holds(Comparison op, Value left, Value right) {
    switch (op) {
      case Comparison::equal: return equal(runtime_, left, right);
      case Comparison::not_equal: return !equal(runtime_, left, right);
      case Comparison::less: return less(runtime_, left, right);
      case Comparison::less_equal:
        return less(runtime_, left, right) || equal(runtime_, left, right);
      case Comparison::greater: return less(runtime_, right, left);
      case Comparison::greater_equal:
        return less(runtime_, right, left) || equal(runtime_, left, right);
      case Comparison::in: return contains(runtime_, left, right);
      case Comparison::not_in: return !contains(runtime_, left, right);
    }
    return false;
  }

  Arguments evaluate_arguments(const CallArguments& node) {
    Arguments out;
    out.positional = evaluate_all(node.positional);
    for (const auto& [name, value] : node.named) out.named.emplace_back(name, evaluate(*value));
    if (node.spread) {
      const std::span<const Value> more = items(runtime_, evaluate(*node.spread));
      runtime_.charge(more.size_bytes());
      out.positional.insert(out.positional.end(), more.begin(), more.end());
    }
    if (node.spread_named) {
      const Value more = evaluate(*node.spread_named);
      if (more.kind() != Value::Kind::mapping)
        runtime_.fail("argument after ** must be a mapping, not {}", type_name(more));
      for (const auto& [key, value] : more.as_mapping().entries) {
        if (!key.is_text()) runtime_.fail("keywords must be strings");
        out.named.emplace_back(key.as_text().bytes(), value);
      }
    }
    return out;
  }

  Value evaluate_call(Position at, const Call& node, const Value* caller) {
    const Value callee = evaluate(*node.callee);
    Arguments arguments = evaluate_arguments(node.arguments);
    if (caller) arguments.named.emplace_back("caller", *caller);
    runtime_.at = at;
    if (callee.is_undefined()) runtime_.fail_undefined(callee);
    if (callee.kind() != Value::Kind::object)
      runtime_.fail("'{}' object is not callable", type_name(callee));
    return callee.as_object().call(runtime_, arguments);
  }

  Runtime& runtime_;
  std::deque<Frame> frames_;
  Frame* frame_ = nullptr;
  Text output_;
  TextBuilder* capture_ = nullptr;  // where text goes instead of the output
  Value block_text_;                // the input of a block's filters
};

Value MacroObject::call(Runtime&, const Arguments& arguments) {
  return interpreter_.call_macro(macro_, scope_, arguments);
}

Value Loop::attribute(Runtime& runtime, std::string_view name) {
  const auto index = static_cast<std::int64_t>(index_);
  const auto n = static_cast<std::int64_t>(items_.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(n - index);
  if (name == "revindex0") return Value::integer(n - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == n - 1);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem")
    return index > 0 ? items_[index_ - 1] : runtime.undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < n ? items_[index_ + 1] : runtime.undefined("there is no next item");
  if (name == "cycle") return Value(runtime.object<LoopMethod<&Loop::cycle>>(*this));
  if (name == "changed") return Value(runtime.object<LoopMethod<&Loop::changed>>(*this));
  return Value();
}

Value Loop::call(Runtime& runtime, const Arguments& arguments) {
  if (!node_.recursive)
    runtime.fail("The loop must have the 'recursive' marker to be called recursively.");
  const auto bound = bind(runtime, "loop", arguments, {"iterable"}, 1);
  return interpreter_.call_loop(node_, scope_, *bound[0], depth_ + 1);
}

}  // namespace

Text render(const Template& source, const RenderOptions& options,
            const std::function<Variables(Runtime&)>& make_variables) {
  Runtime runtime(source.origin, options.limits, options.input_bytes, options.now);
  return Interpreter(runtime).run(source.body, make_variables(runtime));
}

}  // namespace outrider::jinja
