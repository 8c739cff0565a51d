// A parsed template: the tree that the interpreter walks. Built once, read by any number of
// threads.

#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/builtins.h"
#include "jinja/position.h"
#include "jinja/value.h"

namespace outrider::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread, spread_named;  // *list and **dict, or null
};

struct Constant {
  Value value;  // its text belongs to Template::literals
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Attribute {  // object.name: attributes before items
  ExpressionPtr object;
  std::string name;
};
struct Subscript {  // object[index]: items before attributes
  ExpressionPtr object, index;
};
struct Slice {  // object[start:stop:step], each null if not given
  ExpressionPtr object, start, stop, step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr input;  // null where a block's text is the input
  std::string name;
  const Filter* filter;  // null: fails only if it is reached, as in jinja2
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  const Test* test;  // null: fails only if it is reached
  CallArguments arguments;
};
struct Not {
  ExpressionPtr operand;
};
struct Sign {
  bool negative;
  ExpressionPtr operand;
};
struct Logical {  // `and`, `or`
  bool is_and;
  ExpressionPtr left, right;
};
struct Arithmetic {
  ArithmeticOperator op;
  ExpressionPtr left, right;
};
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct Compare {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> items;
};
struct Conditional {  // then if test else otherwise
  ExpressionPtr test, then, otherwise;
};

struct Expression {
  Position at;
  int depth;  // levels below this one, and this one
  std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Attribute, Subscript, Slice,
               Call, FilterCall, TestCall, Not, Sign, Logical, Arithmetic, Compare, Concatenation,
               Conditional>
      node;
};

// What an assignment writes to: a name, an attribute of a namespace, or several of these.
struct Target {
  Position at;
  std::string name;
  std::string attribute;      // "" for a plain name
  std::vector<Target> items;  // if it is a tuple
  bool is_tuple = false;
};

struct Statement;
using Body = std::vector<Statement>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};

struct Data {
  const Text* text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr filter;  // `if`, or null
  bool recursive = false;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filters;  // a chain of FilterCall, innermost without input; or null
  Body body;
};
struct DefineMacro {
  Macro macro;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  Macro caller;
};
struct FilterBlock {
  ExpressionPtr filters;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
};
struct Generation {  // {% generation %}: marks the assistant's words for training; here a scope
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position at;
  std::variant<Data, Print, If, For, Set, SetBlock, DefineMacro, CallBlock, FilterBlock, With,
               Generation, Break, Continue>
      node;
};

struct Template {
  std::string origin;
  Body body;
  std::deque<Text> literals;
};

}  // namespace outrider::jinja
