#include "jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/error.h"
#include "jinja/lexer.h"

namespace outrider::jinja {
namespace {

// Recursive descent; one function per level of precedence, named as in jinja2's grammar.
class Parser {
 public:
  Parser(std::string_view source, Template& out, const TemplateLimits& limits)
      : template_(out), limits_(limits), lexemes_(tokenize(source, out.origin)) {}

  void run() { template_.body = body({}); }

 private:
  using End = std::initializer_list<std::string_view>;
  using Children = std::initializer_list<const Expression*>;

  // ---- lexemes

  const Lexeme& current() const { return lexemes_[at_]; }
  const Lexeme& look() const { return lexemes_[std::min(at_ + 1, lexemes_.size() - 1)]; }
  const Lexeme& next() {
    const Lexeme& lexeme = current();
    if (at_ + 1 < lexemes_.size()) ++at_;
    return lexeme;
  }
  bool is(LexemeKind kind) const { return current().kind == kind; }
  static bool is(const Lexeme& lexeme, LexemeKind kind, std::string_view text) {
    return lexeme.kind == kind && lexeme.text == text;
  }
  bool is_symbol(std::string_view text) const { return is(current(), LexemeKind::symbol, text); }
  bool is_word(std::string_view text) const { return is(current(), LexemeKind::name, text); }
  bool is_word(End words) const {
    return is(LexemeKind::name) &&
           std::find(words.begin(), words.end(), current().text) != words.end();
  }
  bool accept_symbol(std::string_view text) { return is_symbol(text) && (next(), true); }
  bool accept_word(std::string_view text) { return is_word(text) && (next(), true); }
  void expect_symbol(std::string_view text) {
    if (!accept_symbol(text)) fail_expected(fmt::format("'{}'", text));
  }
  void expect_word(std::string_view text) {
    if (!accept_word(text)) fail_expected(fmt::format("'{}'", text));
  }
  std::string expect_name() {
    if (!is(LexemeKind::name)) fail_expected("a name");
    return next().text;
  }
  void expect(LexemeKind kind) {
    if (!is(kind)) fail_expected(kind == LexemeKind::block_end ? "'%}'" : "'}}'");
    next();
  }

  [[noreturn]] void fail(Position at, std::string_view message) const {
    fail_at(template_.origin, at, message);
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(current().at, fmt::format("expected {}, found {}", what, spelled(current())));
  }
  static std::string spelled(const Lexeme& lexeme) {
    switch (lexeme.kind) {
      case LexemeKind::data: return "text";
      case LexemeKind::variable_begin: return "'{{'";
      case LexemeKind::variable_end: return "'}}'";
      case LexemeKind::block_begin: return "'{%'";
      case LexemeKind::block_end: return "'%}'";
      case LexemeKind::name:
      case LexemeKind::symbol: return fmt::format("'{}'", lexeme.text);
      case LexemeKind::string: return "a string";
      case LexemeKind::integer:
      case LexemeKind::number: return "a number";
      case LexemeKind::end: return "the end of the template";
    }
    CHECK(false);
  }

  // ---- limits

  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > parser_.limits_.nesting) parser_.fail_nesting(parser_.current().at);
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };
  [[noreturn]] void fail_nesting(Position at) const {
    fail(at, fmt::format("more than {} levels of expressions or blocks", limits_.nesting));
  }

  // Takes the children so that the depth of the tree is bounded also where the parser does not
  // recurse: a + b + c ...
  template <typename Node>
  ExpressionPtr make(Position at, Node&& node, Children children) {
    int depth = 0;
    for (const Expression* child : children) depth = std::max(depth, child ? child->depth : 0);
    return make_at_depth(at, std::forward<Node>(node), depth + 1);
  }
  template <typename Node>
  ExpressionPtr make_at_depth(Position at, Node&& node, int depth) {
    if (depth > limits_.nesting) fail_nesting(at);
    return std::make_unique<Expression>(Expression{at, depth, std::forward<Node>(node)});
  }
  static int depth_of(const std::vector<ExpressionPtr>& expressions) {
    int depth = 0;
    for (const ExpressionPtr& e : expressions) depth = std::max(depth, e->depth);
    return depth;
  }
  static int depth_of(const CallArguments& arguments) {
    int depth = depth_of(arguments.positional);
    for (const auto& [name, e] : arguments.named) depth = std::max(depth, e->depth);
    if (arguments.spread) depth = std::max(depth, arguments.spread->depth);
    if (arguments.spread_named) depth = std::max(depth, arguments.spread_named->depth);
    return depth;
  }

  const Text& literal(std::string text) { return template_.literals.emplace_back(std::move(text)); }

  // ---- statements

  // Up to a tag named in `ends`, whose name is left as the current lexeme; to the end of the
  // template if there are none.
  Body body(End ends) {
    const Nested nested(*this);
    Body out;
    for (;;) {
      const Position at = current().at;
      switch (current().kind) {
        case LexemeKind::data: out.push_back({at, Data{&literal(next().text)}}); break;
        case LexemeKind::variable_begin:
          next();
          out.push_back({at, Print{tuple()}});
          expect(LexemeKind::variable_end);
          break;
        case LexemeKind::block_begin:
          next();
          if (is_word(ends)) return out;
          statement(out);
          expect(LexemeKind::block_end);
          break;
        default:  // the end: the lexer puts all else inside tags
          if (ends.size() > 0) {
            fail(current().at,
                 fmt::format("the template ends where '{}' is missing", *(ends.end() - 1)));
          }
          return out;
      }
    }
  }
  // After a tag's own words: the rest of the tag and the body.
  Body body_after_tag(End ends) {
    accept_symbol(":");
    expect(LexemeKind::block_end);
    return body(ends);
  }
  // The same, and past the end tag's name.
  Body whole_body(End ends) {
    Body out = body_after_tag(ends);
    next();
    return out;
  }

  void statement(Body& out) {
    const Position at = current().at;
    if (!is(LexemeKind::name)) fail_expected("the name of a tag");
    const std::string tag = next().text;
    const auto add = [&](auto&& node) { out.push_back({at, std::forward<decltype(node)>(node)}); };
    if (tag == "if") {
      add(if_statement());
    } else if (tag == "for") {
      add(for_statement());
    } else if (tag == "set") {
      set_statement(at, out);
    } else if (tag == "macro") {
      Macro macro;
      macro.name = expect_name();
      parameters(macro);
      macro_body(macro, "endmacro");
      add(DefineMacro{std::move(macro)});
    } else if (tag == "call") {
      add(call_block());
    } else if (tag == "filter") {
      ExpressionPtr filters = filter_chain(nullptr, true);
      add(FilterBlock{std::move(filters), whole_body({"endfilter"})});
    } else if (tag == "with") {
      add(with_statement());
    } else if (tag == "generation") {
      add(Generation{whole_body({"endgeneration"})});
    } else if (tag == "print") {
      while (!is(LexemeKind::block_end)) {
        const Position item = current().at;
        out.push_back({item, Print{expression()}});
        if (!is(LexemeKind::block_end)) expect_symbol(",");
      }
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(at, fmt::format("'{}' stands outside of a loop", tag));
      if (tag == "break") {
        add(Break{});
      } else {
        add(Continue{});
      }
    } else {
      static constexpr std::string_view kKnown[] = {"block",     "extends",    "include", "import",
                                                    "from",      "autoescape", "do",      "trans",
                                                    "pluralize", "debug"};
      const bool known = std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown);
      fail(at, known ? fmt::format("the tag '{}' is not supported", tag)
                     : fmt::format("unknown tag '{}'", tag));
    }
  }

  If if_statement() {
    If out;
    for (;;) {
      ExpressionPtr test = tuple(false);
      Body then = body_after_tag({"elif", "else", "endif"});
      out.branches.emplace_back(std::move(test), std::move(then));
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else") out.otherwise = whole_body({"endif"});
      return out;
    }
  }

  For for_statement() {
    For out;
    out.target = target(false, "in");
    expect_word("in");
    out.items = tuple(false, "recursive");
    if (accept_word("if")) out.filter = expression();
    out.recursive = accept_word("recursive");
    ++loops_;
    out.body = body_after_tag({"else", "endfor"});
    --loops_;
    if (next().text == "else") out.otherwise = whole_body({"endfor"});
    return out;
  }

  void set_statement(Position at, Body& out) {
    Target to = target(true);
    if (accept_symbol("=")) {
      out.push_back({at, Set{std::move(to), tuple()}});
      return;
    }
    ExpressionPtr filters = filter_chain(nullptr, false);
    Body inner = whole_body({"endset"});
    out.push_back({at, SetBlock{std::move(to), std::move(filters), std::move(inner)}});
  }

  With with_statement() {
    With out;
    while (!is(LexemeKind::block_end)) {
      if (!out.bindings.empty()) expect_symbol(",");
      Target to = target(false);
      expect_symbol("=");
      out.bindings.emplace_back(std::move(to), expression());
    }
    out.body = whole_body({"endwith"});
    return out;
  }

  CallBlock call_block() {
    CallBlock out;
    out.caller.name = "caller";
    if (is_symbol("(")) parameters(out.caller);
    const Position at = current().at;
    out.call = expression();
    if (!std::holds_alternative<Call>(out.call->node)) fail(at, "expected a call");
    macro_body(out.caller, "endcall");
    return out;
  }

  void parameters(Macro& macro) {
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!macro.parameters.empty()) expect_symbol(",");
      const Position at = current().at;
      std::string name = expect_name();
      const auto& known = macro.parameters;
      if (std::find(known.begin(), known.end(), name) != known.end())
        fail(at, fmt::format("two parameters are named '{}'", name));
      macro.parameters.push_back(std::move(name));
      if (accept_symbol("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail(at, "a parameter without a default follows one with a default");
      }
    }
    expect_symbol(")");
  }

  void macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);  // `break` does not leave a macro
    Macro* const outer = std::exchange(macro_, &macro);
    macro.body = whole_body({end});
    macro_ = outer;
    loops_ = loops;
  }

  // `with_attributes`: whether "ns.name" may be written to. `end` is a word that ends a tuple.
  Target target(bool with_attributes, std::string_view end = {}) {
    const Position at = current().at;
    std::vector<Target> items;
    bool is_tuple = false;
    for (;;) {
      if (is_tuple && (is_tuple_end(end) || is_symbol("="))) break;
      items.push_back(one_target(with_attributes));
      if (!accept_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) return std::move(items[0]);
    return {at, "", "", std::move(items), true};
  }
  Target one_target(bool with_attributes) {
    const Nested nested(*this);
    const Position at = current().at;
    if (accept_symbol("(")) {
      Target inner = target(with_attributes);
      expect_symbol(")");
      return inner;
    }
    Target out;
    out.at = at;
    out.name = expect_name();
    for (std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (out.name == reserved) fail(at, fmt::format("cannot assign to '{}'", reserved));
    }
    if (with_attributes && accept_symbol(".")) out.attribute = expect_name();
    return out;
  }

  // ---- expressions

  bool is_tuple_end(std::string_view end) const {
    return is(LexemeKind::variable_end) || is(LexemeKind::block_end) || is_symbol(")") ||
           (!end.empty() && is_word(end));
  }

  // "a" or "a, b" without parentheses. `end` is a word that ends it.
  ExpressionPtr tuple(bool with_conditional = true, std::string_view end = {},
                      bool in_parentheses = false) {
    const Position at = current().at;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (!is_tuple_end(end)) {
      items.push_back(with_conditional ? expression() : or_expression());
      if (!accept_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return std::move(items[0]);
    if (!is_tuple && !in_parentheses) fail_expected("an expression");
    const int depth = depth_of(items);
    return make_at_depth(at, TupleLiteral{std::move(items)}, depth + 1);
  }

  ExpressionPtr expression() {
    const Nested nested(*this);
    ExpressionPtr value = or_expression();
    while (is_word("if")) {
      const Position at = next().at;
      ExpressionPtr test = or_expression();
      ExpressionPtr otherwise = accept_word("else") ? expression() : nullptr;
      const Children children = {test.get(), value.get(), otherwise.get()};
      value =
          make(at, Conditional{std::move(test), std::move(value), std::move(otherwise)}, children);
    }
    return value;
  }

  ExpressionPtr or_expression() {
    ExpressionPtr left = and_expression();
    while (is_word("or")) {
      const Position at = next().at;
      ExpressionPtr right = and_expression();
      const Children children = {left.get(), right.get()};
      left = make(at, Logical{false, std::move(left), std::move(right)}, children);
    }
    return left;
  }

  ExpressionPtr and_expression() {
    ExpressionPtr left = not_expression();
    while (is_word("and")) {
      const Position at = next().at;
      ExpressionPtr right = not_expression();
      const Children children = {left.get(), right.get()};
      left = make(at, Logical{true, std::move(left), std::move(right)}, children);
    }
    return left;
  }

  ExpressionPtr not_expression() {
    if (!is_word("not")) return comparison();
    const Nested nested(*this);
    const Position at = next().at;
    ExpressionPtr operand = not_expression();
    const Children children = {operand.get()};
    return make(at, Not{std::move(operand)}, children);
  }

  std::optional<Comparison> comparison_operator() {
    static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
        {"==", Comparison::equal},  {"!=", Comparison::not_equal},
        {"<", Comparison::less},    {"<=", Comparison::less_equal},
        {">", Comparison::greater}, {">=", Comparison::greater_equal},
    };
    for (const auto& [symbol, op] : kOperators) {
      if (accept_symbol(symbol)) return op;
    }
    if (accept_word("in")) return Comparison::in;
    if (is_word("not") && is(look(), LexemeKind::name, "in")) {
      next();
      next();
      return Comparison::not_in;
    }
    return std::nullopt;
  }

  ExpressionPtr comparison() {
    const Position at = current().at;
    ExpressionPtr first = sum();
    int depth = first->depth;
    std::vector<std::pair<Comparison, ExpressionPtr>> rest;
    while (const std::optional<Comparison> op = comparison_operator()) {
      rest.emplace_back(*op, sum());
      depth = std::max(depth, rest.back().second->depth);
    }
    if (rest.empty()) return first;
    return make_at_depth(at, Compare{std::move(first), std::move(rest)}, depth + 1);
  }

  using Level = ExpressionPtr (Parser::*)();
  using Operators = std::initializer_list<std::pair<std::string_view, ArithmeticOperator>>;

  // Left to right: even for "**", as jinja2 has it.
  ExpressionPtr chain(Level operand, Operators operators) {
    ExpressionPtr left = (this->*operand)();
    for (;;) {
      const auto found = std::find_if(operators.begin(), operators.end(),
                                      [&](const auto& entry) { return is_symbol(entry.first); });
      if (found == operators.end()) return left;
      const Position at = next().at;
      ExpressionPtr right = (this->*operand)();
      const Children children = {left.get(), right.get()};
      left = make(at, Arithmetic{found->second, std::move(left), std::move(right)}, children);
    }
  }
  ExpressionPtr sum() {
    return chain(&Parser::concatenation,
                 {{"+", ArithmeticOperator::add}, {"-", ArithmeticOperator::subtract}});
  }
  ExpressionPtr concatenation() {
    const Position at = current().at;
    ExpressionPtr first = product();
    if (!is_symbol("~")) return first;
    std::vector<ExpressionPtr> items;
    items.push_back(std::move(first));
    while (accept_symbol("~")) items.push_back(product());
    const int depth = depth_of(items);
    return make_at_depth(at, Concatenation{std::move(items)}, depth + 1);
  }
  ExpressionPtr product() {
    return chain(&Parser::power, {{"*", ArithmeticOperator::multiply},
                                  {"/", ArithmeticOperator::divide},
                                  {"//", ArithmeticOperator::floor_divide},
                                  {"%", ArithmeticOperator::modulo}});
  }
  ExpressionPtr power() {
    return chain(&Parser::filtered_unary, {{"**", ArithmeticOperator::power}});
  }
  ExpressionPtr filtered_unary() { return filters_and_tests(unary()); }

  ExpressionPtr unary() {
    if (!is_symbol("-") && !is_symbol("+")) return postfix(primary());
    const Nested nested(*this);
    const bool negative = is_symbol("-");
    const Position at = next().at;
    ExpressionPtr operand = unary();
    const Children children = {operand.get()};
    return postfix(make(at, Sign{negative, std::move(operand)}, children));
  }

  ExpressionPtr primary() {
    const Position at = current().at;
    switch (current().kind) {
      case LexemeKind::name: {
        std::string name = next().text;
        if (name == "true" || name == "True") return make(at, Constant{Value::boolean(true)}, {});
        if (name == "false" || name == "False")
          return make(at, Constant{Value::boolean(false)}, {});
        if (name == "none" || name == "None") return make(at, Constant{Value::none()}, {});
        if (macro_) {
          macro_->uses_varargs |= name == "varargs";
          macro_->uses_kwargs |= name == "kwargs";
          macro_->uses_caller |= name == "caller";
        }
        return make(at, Name{std::move(name)}, {});
      }
      case LexemeKind::string: {
        std::string text;
        while (is(LexemeKind::string)) text += next().text;
        return make(at, Constant{Value(literal(std::move(text)))}, {});
      }
      case LexemeKind::integer: return make(at, Constant{integer()}, {});
      case LexemeKind::number: return make(at, Constant{Value::number(next().number)}, {});
      case LexemeKind::symbol: break;
      default: fail_expected("an expression");
    }
    if (accept_symbol("(")) {
      const Nested nested(*this);
      ExpressionPtr inner = tuple(true, {}, true);
      expect_symbol(")");
      return inner;
    }
    if (accept_symbol("[")) {
      std::vector<ExpressionPtr> items;
      while (!is_symbol("]")) {
        items.push_back(expression());
        if (!is_symbol("]")) expect_symbol(",");
      }
      next();
      const int depth = depth_of(items);
      return make_at_depth(at, ListLiteral{std::move(items)}, depth + 1);
    }
    if (accept_symbol("{")) return dict(at);
    fail_expected("an expression");
  }

  ExpressionPtr dict(Position at) {
    DictLiteral out;
    int depth = 0;
    while (!is_symbol("}")) {
      ExpressionPtr key = expression();
      expect_symbol(":");
      ExpressionPtr value = expression();
      depth = std::max({depth, key->depth, value->depth});
      out.entries.emplace_back(std::move(key), std::move(value));
      if (!is_symbol("}")) expect_symbol(",");
    }
    next();
    return make_at_depth(at, std::move(out), depth + 1);
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      if (is_symbol(".")) {
        value = attribute(std::move(value));
      } else if (is_symbol("[")) {
        value = subscript(std::move(value));
      } else if (is_symbol("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr filters_and_tests(ExpressionPtr value) {
    for (;;) {
      if (is_symbol("|")) {
        value = filter_chain(std::move(value), false);
      } else if (is_word("is")) {
        value = test(std::move(value));
      } else if (is_symbol("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  Value integer() {
    const Lexeme& lexeme = next();
    return lexeme.text.empty() ? Value::integer(lexeme.integer)
                               : Value::wide_integer(literal(lexeme.text));
  }

  ExpressionPtr attribute(ExpressionPtr object) {
    const Position at = next().at;
    const Children children = {object.get()};
    if (is(LexemeKind::integer)) {
      const Position at_index = current().at;
      ExpressionPtr index = make(at_index, Constant{integer()}, {});
      return make(at, Subscript{std::move(object), std::move(index)}, children);
    }
    return make(at, Attribute{std::move(object), expect_name()}, children);
  }

  ExpressionPtr subscript(ExpressionPtr object) {
    const Position at = next().at;
    const auto part = [&]() -> ExpressionPtr {
      return is_symbol(":") || is_symbol("]") ? nullptr : expression();
    };
    ExpressionPtr first = part();
    if (!is_symbol(":")) {
      if (!first) fail_expected("an index");
      if (is_symbol(",")) first = index_tuple(at, std::move(first));
      expect_symbol("]");
      const Children children = {object.get(), first.get()};
      return make(at, Subscript{std::move(object), std::move(first)}, children);
    }
    next();
    ExpressionPtr stop = part();
    ExpressionPtr step = accept_symbol(":") ? part() : nullptr;
    expect_symbol("]");
    const Children children = {object.get(), first.get(), stop.get(), step.get()};
    return make(at, Slice{std::move(object), std::move(first), std::move(stop), std::move(step)},
                children);
  }
  ExpressionPtr index_tuple(Position at, ExpressionPtr first) {
    std::vector<ExpressionPtr> items;
    items.push_back(std::move(first));
    while (accept_symbol(",") && !is_symbol("]")) items.push_back(expression());
    const int depth = depth_of(items);
    return make_at_depth(at, TupleLiteral{std::move(items)}, depth + 1);
  }

  CallArguments arguments() {
    const Position at = current().at;
    expect_symbol("(");
    CallArguments out;
    const auto ensure = [&](bool in_order) {
      if (!in_order) fail(at, "arguments in an order that Python does not allow");
    };
    while (!is_symbol(")")) {
      if (accept_symbol("*")) {
        ensure(!out.spread && !out.spread_named);
        out.spread = expression();
      } else if (accept_symbol("**")) {
        ensure(!out.spread_named);
        out.spread_named = expression();
      } else if (is(LexemeKind::name) && is(look(), LexemeKind::symbol, "=")) {
        ensure(!out.spread_named);
        std::string name = next().text;
        next();
        for (const auto& known : out.named) {
          if (known.first == name) fail(at, fmt::format("two arguments are named '{}'", name));
        }
        out.named.emplace_back(std::move(name), expression());
      } else {
        ensure(!out.spread && !out.spread_named && out.named.empty());
        out.positional.push_back(expression());
      }
      if (!is_symbol(")")) expect_symbol(",");
    }
    next();
    return out;
  }

  ExpressionPtr call(ExpressionPtr callee) {
    const Position at = current().at;
    CallArguments given = arguments();
    const int depth = std::max(callee->depth, depth_of(given));
    return make_at_depth(at, Call{std::move(callee), std::move(given)}, depth + 1);
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (accept_symbol(".")) name += fmt::format(".{}", expect_name());
    return name;
  }

  // "| name(...) | name ..."; `inline_first`: the first name has no bar before it ({% filter name
  // %}).
  ExpressionPtr filter_chain(ExpressionPtr input, bool inline_first) {
    while (inline_first || accept_symbol("|")) {
      inline_first = false;
      const Position at = current().at;
      std::string name = dotted_name();
      CallArguments given = is_symbol("(") ? arguments() : CallArguments{};
      const int depth = std::max(input ? input->depth : 0, depth_of(given));
      const Filter* const filter = find_filter(name);
      input = make_at_depth(
          at, FilterCall{std::move(input), std::move(name), filter, std::move(given)}, depth + 1);
    }
    return input;
  }

  ExpressionPtr test(ExpressionPtr input) {
    next();
    const bool negated = accept_word("not");
    const Position at = current().at;
    std::string name = dotted_name();
    CallArguments given;
    if (is_symbol("(")) {
      given = arguments();
    } else if ((is(LexemeKind::name) && !is_word({"else", "or", "and"})) ||
               is(LexemeKind::string) || is(LexemeKind::integer) || is(LexemeKind::number) ||
               is_symbol("[") || is_symbol("{")) {
      if (is_word("is")) fail(current().at, "tests with 'is' cannot be chained");
      given.positional.push_back(postfix(primary()));
    }
    const int depth = std::max(input->depth, depth_of(given));
    const Test* const found = find_test(name);
    ExpressionPtr out = make_at_depth(
        at, TestCall{std::move(input), std::move(name), found, std::move(given)}, depth + 1);
    if (!negated) return out;
    const Children children = {out.get()};
    return make(at, Not{std::move(out)}, children);
  }

  Template& template_;
  const TemplateLimits& limits_;
  const std::vector<Lexeme> lexemes_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;           // around the current place, within its macro
  Macro* macro_ = nullptr;  // whose body is being read
};

}  // namespace

std::unique_ptr<Template> parse(std::string_view source, std::string origin,
                                const TemplateLimits& limits) {
  auto out = std::make_unique<Template>();
  out->origin = std::move(origin);
  if (source.size() > limits.source_bytes) {
    fail_at(out->origin, {},
            fmt::format("{} bytes are too long for a template, at most {}", source.size(),
                        limits.source_bytes));
  }
  Parser(source, *out, limits).run();
  return out;
}

}  // namespace outrider::jinja
