#pragma once
// A template as a tree, and reading it from its text.
//
// The subset of Jinja 3.1 that chat templates use, as transformers sets it up (trim_blocks, lstrip_blocks, loop controls):
//   {% if %} elif else, {% for a, b in x if c %} else, {% break %}, {% continue %}, {% set %} of names, of several and of a
//   namespace's attributes, {% set x %} ... {% endset %}, {% macro %}, {% generation %}, {% raw %}, comments, and - and + at
//   both ends of each; every operator but **, slices, inline if, literals; the filters, tests and methods that
//   jinja_functions.cpp lists. Everything else is refused here, by name and line, so that a rendering meets no surprises.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/jinja_functions.hpp"
#include "formats/jinja_value.hpp"

namespace sluice::formats::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,  // of kBinary
  kEqual,
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,  // of kCompare
};

struct Expression {
  enum class Kind : std::uint8_t {
    kConstant,    // constant
    kName,        // name
    kAttribute,   // parts[0].name
    kItem,        // parts[0][parts[1]]
    kSlice,       // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    kCallName,    // name(parts..., keywords...)
    kCallMethod,  // parts[0].method(parts[1]..., keywords...)
    kFilter,      // parts[0] | filter(parts[1]..., keywords...)
    kTest,        // parts[0] is test(parts[1]...)
    kNot,
    kAnd,
    kOr,
    kNegate,
    kPlus,
    kBinary,       // parts[0] operators[0] parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConcat,       // parts[0] ~ parts[1] ...
    kConditional,  // parts[0] if parts[1] else parts[2], null where left out
    kList,
    kTuple,
    kDict,  // keys and values in turn
  };
  Kind kind = Kind::kConstant;
  std::int32_t line = 0;
  std::int32_t depth = 1;
  Value constant;
  std::string name;
  const Filter* filter = nullptr;
  const Test* test = nullptr;
  const Method* method = nullptr;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  std::vector<Operator> operators;
};

struct Statement;
using Body = std::vector<Statement>;

/// What a value is given to: a name, an attribute of a namespace, or several that take a value apart.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`; empty: the name itself
  std::vector<Target> several;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
};

struct Statement {
  enum class Kind : std::uint8_t { kText, kPrint, kIf, kFor, kSet, kSetBlock, kMacro, kGeneration, kBreak, kContinue };
  struct Branch {
    ExpressionPtr condition;  // null: else
    Body body;
  };
  Kind kind = Kind::kText;
  std::int32_t line = 0;
  std::string text;
  ExpressionPtr expression;  // what is printed, set or walked through
  ExpressionPtr condition;   // of `for x in y if condition`
  Target target;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;  // of `for`
  std::shared_ptr<const Macro> macro;
};

struct Program {
  std::string source;
  Body body;
  bool marks_generation = false;
};

/// Throws RequestError "SOURCE:LINE: ..." for what isn't Jinja, isn't in the subset, or is nested deeper than any template in use.
Program parse(const std::string& text, const std::string& source);

}  // namespace sluice::formats::jinja
