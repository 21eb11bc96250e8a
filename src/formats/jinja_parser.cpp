#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/jinja_lexer.hpp"
#include "formats/jinja_program.hpp"
#include "formats/jinja_text.hpp"

namespace sluice::formats::jinja {
namespace {

using namespace std::string_view_literals;
using Kind = Expression::Kind;

constexpr int kNestingLimit = 200;         // of brackets (three each) and blocks (one) in each other; Llama 3.1's template has a tenth
constexpr std::int32_t kDepthLimit = 150;  // of an expression's tree, which a long chain of operators also fills
constexpr std::int64_t kTextLimit = kMiB;  // Llama 3.1's has 4 KiB

/// Functions that can be called without being defined by the template. strftime_now is one that can't: see chat_template.hpp.
constexpr std::array kFunctions{"namespace"sv, "raise_exception"sv, "range"sv, "strftime_now"sv};
/// What Jinja or transformers define and we don't.
constexpr std::array kUnsupportedNames{"caller"sv, "cycler"sv, "dict"sv,  "joiner"sv, "kwargs"sv,
                                       "lipsum"sv, "self"sv,   "super"sv, "varargs"sv};
constexpr std::array kUnsupportedTags{"autoescape"sv, "block"sv,  "call"sv,    "do"sv,    "extends"sv, "filter"sv,
                                      "from"sv,       "import"sv, "include"sv, "print"sv, "trans"sv,   "with"sv};

template <typename Names>
bool holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& source) : source_(source), tokens_(tokens_of(text, source)) {}

  Program run() {
    Program program{source_, {}, false};
    program.body = parse_body({});
    program.marks_generation = marks_generation_;
    for (const Use& use : uses_) {
      if (assigned_.contains(use.name)) continue;
      if (holds(kUnsupportedNames, use.name)) fail_at(use.line, cat("the name \"", use.name, "\" is not supported"));
      if (use.is_call && !holds(kFunctions, use.name)) fail_at(use.line, cat("the function \"", use.name, "\" is not supported"));
    }
    return program;
  }

 private:
  struct Use {
    std::string name;
    std::int32_t line;
    bool is_call;
  };

  /// One level of nesting; too many are refused before the stack ends.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kNestingLimit) parser_.fail(cat("more than ", kNestingLimit, " levels lie in each other"));
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail_at(std::int32_t line, const std::string& what) const {
    throw RequestError(cat(source_, ":", line, ": ", one_line(what)));
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(token().line, what); }

  const Token& token() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token taken = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return taken;
  }

  bool is_operator(std::string_view text) const { return token().kind == Token::Kind::kOperator && token().text == text; }
  bool is_name(std::string_view text) const { return token().kind == Token::Kind::kName && token().text == text; }
  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }

  std::string found() const {
    switch (token().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kBlockEnd:
        return "\"%}\"";
      case Token::Kind::kPrintEnd:
        return "\"}}\"";
      case Token::Kind::kText:
        return "a text";
      case Token::Kind::kInteger:
      case Token::Kind::kFloat:
        return "a number";
      default:
        return cat("\"", token().text, "\"");
    }
  }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail(cat("found ", found(), ", expected \"", text, "\""));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail(cat("found ", found(), ", expected \"", text, "\""));
  }
  void expect(Token::Kind kind, std::string_view text) {
    if (token().kind != kind) fail(cat("found ", found(), ", expected \"", text, "\""));
    take();
  }
  std::string expect_any_name() {
    if (token().kind != Token::Kind::kName) fail(cat("found ", found(), ", expected a name"));
    return take().text;
  }
  std::string expect_new_name() {
    std::string name = expect_any_name();
    if (holds(std::array{"true"sv, "false"sv, "none"sv, "True"sv, "False"sv, "None"sv, "loop"sv}, name))
      fail(cat("\"", name, "\" can't be set"));
    assigned_.insert(name);
    return name;
  }

  // ---- statements ----

  /// Statements up to a block that begins with one of `ends`, whose name is the next token then; up to the end of the template
  /// where there are none.
  Body parse_body(const std::vector<std::string_view>& ends) {
    const Level level(*this);
    const std::int32_t begin = token().line;
    Body body;
    for (;;) {
      switch (token().kind) {
        case Token::Kind::kEnd:
          if (!ends.empty()) fail_at(begin, cat("found the end of the template, expected {% ", ends.back(), " %}"));
          return body;
        case Token::Kind::kData: {
          Statement& statement = body.emplace_back();
          statement.line = token().line;
          statement.text = take().text;
          break;
        }
        case Token::Kind::kPrintBegin: {
          Statement& statement = body.emplace_back();
          statement.kind = Statement::Kind::kPrint;
          statement.line = take().line;
          statement.expression = parse_tuple(true);
          expect(Token::Kind::kPrintEnd, "}}");
          break;
        }
        default:
          take();  // {%
          if (token().kind == Token::Kind::kName && holds(ends, token().text)) return body;
          body.push_back(parse_statement());
          expect(Token::Kind::kBlockEnd, "%}");
      }
    }
  }

  /// The body of a block, from the end of its first tag. Drops the name of the end where `ends` is only one.
  Body parse_block(const std::vector<std::string_view>& ends) {
    skip_operator(":");
    expect(Token::Kind::kBlockEnd, "%}");
    Body body = parse_body(ends);
    if (ends.size() == 1) take();
    return body;
  }

  Statement parse_statement() {
    Statement statement;
    statement.line = token().line;
    const std::string tag = expect_any_name();
    if (tag == "if") {
      parse_if(statement);
    } else if (tag == "for") {
      parse_for(statement);
    } else if (tag == "set") {
      parse_set(statement);
    } else if (tag == "macro") {
      parse_macro(statement);
    } else if (tag == "generation") {
      parse_generation(statement);
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(statement.line, cat("{% ", tag, " %} outside of a loop"));
      statement.kind = tag == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
    } else if (holds(kUnsupportedTags, tag)) {
      fail_at(statement.line, cat("{% ", tag, " %} is not supported"));
    } else {
      fail_at(statement.line, cat("found {% ", tag, " %}, which is no tag, or ends a block that is not open here"));
    }
    return statement;
  }

  void parse_if(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    for (;;) {
      Statement::Branch& branch = statement.branches.emplace_back();
      branch.condition = parse_tuple(false);
      branch.body = parse_block({"elif", "else", "endif"});
      const std::string end = take().text;
      if (end == "endif") return;
      if (end == "else") {
        statement.branches.emplace_back().body = parse_block({"endif"});
        return;
      }
    }
  }

  void parse_for(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    statement.target = parse_target(false);
    expect_name("in");
    statement.expression = parse_tuple(false);
    if (skip_name("if")) statement.condition = parse_expression();
    if (is_name("recursive")) fail("{% for ... recursive %} is not supported");
    ++loops_;
    statement.body = parse_block({"else", "endfor"});
    --loops_;
    if (take().text == "else") statement.otherwise = parse_block({"endfor"});
  }

  Target parse_one_target(bool with_attributes) {
    Target target;
    if (skip_operator("(")) {
      target = parse_target(with_attributes);
      expect_operator(")");
      return target;
    }
    if (with_attributes && next_token().kind == Token::Kind::kOperator && next_token().text == ".") {
      target.name = expect_any_name();
      take();  // the dot
      target.attribute = expect_any_name();
      return target;
    }
    target.name = expect_new_name();
    return target;
  }

  Target parse_target(bool with_attributes) {
    const Level level(*this);
    Target target = parse_one_target(with_attributes);
    if (!is_operator(",")) return target;
    Target all;
    all.several.push_back(std::move(target));
    while (skip_operator(",")) {
      if (token().kind != Token::Kind::kName && !is_operator("(")) break;
      if (is_name("in")) break;
      all.several.push_back(parse_one_target(with_attributes));
    }
    return all;
  }

  void parse_set(Statement& statement) {
    statement.target = parse_target(true);
    if (skip_operator("=")) {
      statement.kind = Statement::Kind::kSet;
      statement.expression = parse_tuple(true);
      return;
    }
    if (is_operator("|")) fail("a filter of {% set %} ... {% endset %} is not supported");
    statement.kind = Statement::Kind::kSetBlock;
    statement.body = parse_captured({"endset"}, "{% set %} ... {% endset %}");
  }

  /// A body whose text goes elsewhere than into the output, so that nobody can say which bytes of the output it is.
  Body parse_captured(const std::vector<std::string_view>& ends, std::string_view what) {
    const int loops = std::exchange(loops_, 0);
    const std::string_view outer = std::exchange(captured_by_, what);
    Body body = parse_block(ends);
    captured_by_ = outer;
    loops_ = loops;
    return body;
  }

  void parse_macro(Statement& statement) {
    statement.kind = Statement::Kind::kMacro;
    auto macro = std::make_shared<Macro>();
    macro->name = expect_new_name();
    statement.target.name = macro->name;
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro->parameters.empty()) expect_operator(",");
      const std::string name = expect_new_name();
      if (holds(macro->parameters, name)) fail(cat("the parameter \"", name, "\" is there twice"));
      macro->parameters.push_back(name);
      if (skip_operator("=")) {
        macro->defaults.push_back(parse_expression());
      } else if (!macro->defaults.empty()) {
        fail(cat("the parameter \"", name, "\" without a default follows one with a default"));
      }
    }
    expect_operator(")");
    macro->body = parse_captured({"endmacro"}, "{% macro %}");
    statement.macro = std::move(macro);
  }

  void parse_generation(Statement& statement) {
    if (!captured_by_.empty()) fail_at(statement.line, cat("{% generation %} within ", captured_by_, " is not supported"));
    statement.kind = Statement::Kind::kGeneration;
    marks_generation_ = true;
    statement.body = parse_captured({"endgeneration"}, "{% generation %}");
  }

  // ---- expressions, from what binds least to what binds most ----

  ExpressionPtr make(Kind kind, std::int32_t line, std::vector<ExpressionPtr> parts = {}) const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = line;
    made->parts = std::move(parts);
    measure(*made);
    return made;
  }

  void measure(Expression& expression) const {
    std::int32_t depth = 0;
    for (const ExpressionPtr& part : expression.parts) depth = std::max(depth, part == nullptr ? 0 : part->depth);
    for (const auto& [name, value] : expression.keywords) depth = std::max(depth, value->depth);
    expression.depth = depth + 1;
    if (expression.depth > kDepthLimit) fail_at(expression.line, cat("an expression of more than ", kDepthLimit, " levels"));
  }

  template <typename... Parts>
  ExpressionPtr make_of(Kind kind, std::int32_t line, Parts... parts) const {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(parts)), ...);
    return make(kind, line, std::move(all));
  }

  bool ends_tuple() const {
    return token().kind == Token::Kind::kPrintEnd || token().kind == Token::Kind::kBlockEnd || token().kind == Token::Kind::kEnd ||
           is_operator(")") || is_name("recursive");
  }

  /// One expression, or several with commas between, which are a tuple.
  ExpressionPtr parse_tuple(bool with_conditional, bool in_parentheses = false) {
    const std::int32_t line = token().line;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (ends_tuple()) break;
      items.push_back(with_conditional ? parse_expression() : parse_or());
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (items.empty() && !in_parentheses) fail(cat("found ", found(), ", expected an expression"));
    return make(Kind::kTuple, line, std::move(items));
  }

  ExpressionPtr parse_expression() {
    const Level level(*this);
    ExpressionPtr value = parse_or();
    while (is_name("if")) {
      const std::int32_t line = take().line;
      ExpressionPtr condition = parse_or();
      ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
      value = make_of(Kind::kConditional, line, std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (is_name("or")) {
      const std::int32_t line = take().line;
      left = make_of(Kind::kOr, line, std::move(left), parse_and());
    }
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (is_name("and")) {
      const std::int32_t line = take().line;
      left = make_of(Kind::kAnd, line, std::move(left), parse_not());
    }
    return left;
  }

  ExpressionPtr parse_not() {
    const Level level(*this);
    if (!is_name("not")) return parse_compare();
    const std::int32_t line = take().line;
    return make_of(Kind::kNot, line, parse_not());
  }

  ExpressionPtr parse_compare() {
    const std::int32_t line = token().line;
    std::vector<ExpressionPtr> parts;
    std::vector<Operator> operators;
    parts.push_back(parse_sum());
    for (;;) {
      if (skip_operator("==")) {
        operators.push_back(Operator::kEqual);
      } else if (skip_operator("!=")) {
        operators.push_back(Operator::kUnequal);
      } else if (skip_operator("<=")) {
        operators.push_back(Operator::kLessEqual);
      } else if (skip_operator(">=")) {
        operators.push_back(Operator::kGreaterEqual);
      } else if (skip_operator("<")) {
        operators.push_back(Operator::kLess);
      } else if (skip_operator(">")) {
        operators.push_back(Operator::kGreater);
      } else if (skip_name("in")) {
        operators.push_back(Operator::kIn);
      } else if (is_name("not") && next_token().kind == Token::Kind::kName && next_token().text == "in") {
        take();
        take();
        operators.push_back(Operator::kNotIn);
      } else {
        break;
      }
      parts.push_back(parse_sum());
    }
    if (operators.empty()) return std::move(parts[0]);
    ExpressionPtr compare = make(Kind::kCompare, line, std::move(parts));
    compare->operators = std::move(operators);
    return compare;
  }

  ExpressionPtr make_binary(std::string_view text, std::int32_t line, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr made = make_of(Kind::kBinary, line, std::move(left), std::move(right));
    made->operators.push_back(text == "+"    ? Operator::kAdd
                              : text == "-"  ? Operator::kSubtract
                              : text == "*"  ? Operator::kMultiply
                              : text == "/"  ? Operator::kDivide
                              : text == "//" ? Operator::kFloorDivide
                                             : Operator::kModulo);
    return made;
  }

  ExpressionPtr parse_sum() {
    ExpressionPtr left = parse_concat();
    while (is_operator("+") || is_operator("-")) {
      const Token sign = take();
      left = make_binary(sign.text, sign.line, std::move(left), parse_concat());
    }
    return left;
  }

  ExpressionPtr parse_concat() {
    const std::int32_t line = token().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(parse_product());
    while (skip_operator("~")) parts.push_back(parse_product());
    return parts.size() == 1 ? std::move(parts[0]) : make(Kind::kConcat, line, std::move(parts));
  }

  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_unary(true);
    for (;;) {
      if (is_operator("**")) fail("the operator ** is not supported");
      if (!is_operator("*") && !is_operator("/") && !is_operator("//") && !is_operator("%")) return left;
      const Token sign = take();
      left = make_binary(sign.text, sign.line, std::move(left), parse_unary(true));
    }
  }

  ExpressionPtr parse_unary(bool with_filters) {
    const Level level(*this);
    ExpressionPtr value;
    if (is_operator("-") || is_operator("+")) {
      const Token sign = take();
      value = make_of(sign.text == "-" ? Kind::kNegate : Kind::kPlus, sign.line, parse_unary(false));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
  }

  ExpressionPtr make_constant(Value value, std::int32_t line) const {
    ExpressionPtr made = make(Kind::kConstant, line);
    made->constant = std::move(value);
    return made;
  }

  ExpressionPtr parse_primary() {
    const std::int32_t line = token().line;
    switch (token().kind) {
      case Token::Kind::kName: {
        const std::string name = take().text;
        if (name == "true" || name == "True") return make_constant(true, line);
        if (name == "false" || name == "False") return make_constant(false, line);
        if (name == "none" || name == "None") return make_constant(None{}, line);
        ExpressionPtr made = make(Kind::kName, line);
        made->name = name;
        uses_.push_back({name, line, is_operator("(")});
        return made;
      }
      case Token::Kind::kText: {
        std::string text;
        while (token().kind == Token::Kind::kText) text += take().text;  // texts side by side are one
        return make_constant(std::move(text), line);
      }
      case Token::Kind::kInteger:
        return make_constant(take().integer, line);
      case Token::Kind::kFloat:
        return make_constant(take().number, line);
      default:
        break;
    }
    if (skip_operator("(")) {
      ExpressionPtr inner = parse_tuple(true, true);
      expect_operator(")");
      return inner;
    }
    if (skip_operator("[")) return make(Kind::kList, line, parse_items("]", false));
    if (skip_operator("{")) return make(Kind::kDict, line, parse_items("}", true));
    fail(cat("found ", found(), ", expected an expression"));
  }

  /// The items of a list, or keys and values of a dict, up to the bracket that closes it.
  std::vector<ExpressionPtr> parse_items(std::string_view close, bool with_keys) {
    std::vector<ExpressionPtr> items;
    while (!skip_operator(close)) {
      if (!items.empty()) {
        expect_operator(",");
        if (skip_operator(close)) break;
      }
      items.push_back(parse_expression());
      if (!with_keys) continue;
      expect_operator(":");
      items.push_back(parse_expression());
    }
    return items;
  }

  ExpressionPtr parse_postfix(ExpressionPtr value) {
    for (;;) {
      if (is_operator(".")) {
        const std::int32_t line = take().line;
        if (token().kind == Token::Kind::kInteger) {
          value = make_of(Kind::kItem, line, std::move(value), make_constant(take().integer, line));
        } else {
          const std::string name = expect_any_name();
          value = make_of(Kind::kAttribute, line, std::move(value));
          value->name = name;
        }
      } else if (is_operator("[")) {
        value = parse_subscript(std::move(value));
      } else if (is_operator("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value) {
    const std::int32_t line = take().line;
    if (!is_operator(":")) {
      ExpressionPtr key = parse_expression();
      if (skip_operator("]")) return make_of(Kind::kItem, line, std::move(value), std::move(key));
      if (!is_operator(":")) fail(cat("found ", found(), ", expected \"]\""));
      return parse_slice(std::move(value), std::move(key), line);
    }
    return parse_slice(std::move(value), nullptr, line);
  }

  ExpressionPtr parse_slice(ExpressionPtr value, ExpressionPtr start, std::int32_t line) {
    expect_operator(":");
    ExpressionPtr stop = is_operator(":") || is_operator("]") ? nullptr : parse_expression();
    ExpressionPtr step;
    if (skip_operator(":") && !is_operator("]")) step = parse_expression();
    expect_operator("]");
    return make_of(Kind::kSlice, line, std::move(value), std::move(start), std::move(stop), std::move(step));
  }

  /// Appends what is in the parentheses of a call.
  void parse_arguments(Expression& call) {
    expect_operator("(");
    bool is_first = true;
    while (!skip_operator(")")) {
      if (!is_first) {
        expect_operator(",");
        if (skip_operator(")")) break;
      }
      is_first = false;
      if (is_operator("*") || is_operator("**")) fail(cat("an argument ", token().text, "x is not supported"));
      if (token().kind == Token::Kind::kName && next_token().kind == Token::Kind::kOperator && next_token().text == "=") {
        const std::string name = take().text;
        take();
        if (std::any_of(call.keywords.begin(), call.keywords.end(), [&](const auto& each) { return each.first == name; }))
          fail(cat("the argument \"", name, "\" is given twice"));
        call.keywords.emplace_back(name, parse_expression());
      } else {
        if (!call.keywords.empty()) fail("an argument without a name follows one with a name");
        call.parts.push_back(parse_expression());
      }
    }
    measure(call);
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    const std::int32_t line = token().line;
    if (callee->kind == Kind::kName) {
      callee->kind = Kind::kCallName;
      parse_arguments(*callee);
      return callee;
    }
    if (callee->kind != Kind::kAttribute) fail("a call of something else than a function, macro or method by its name is not supported");
    callee->kind = Kind::kCallMethod;
    callee->method = find_method(callee->name);
    if (callee->method == nullptr) fail_at(line, cat("the method \"", callee->name, "\" is not supported; supported: ", method_names()));
    parse_arguments(*callee);
    check_arguments(*callee, callee->method->signature, "method");
    return callee;
  }

  void check_arguments(const Expression& call, const Signature& signature, std::string_view what) const {
    std::vector<std::string> named;
    for (const auto& keyword : call.keywords) named.push_back(keyword.first);
    const std::string problem = problem_with_arguments(signature, call.parts.size() - 1, named);
    if (!problem.empty()) fail_at(call.line, cat(what, " \"", call.name, "\": ", problem));
  }

  ExpressionPtr parse_filters_and_tests(ExpressionPtr value) {
    for (;;) {
      if (is_operator("|")) {
        value = parse_filter(std::move(value));
      } else if (is_name("is")) {
        value = parse_test(std::move(value));
      } else if (is_operator("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_filter(ExpressionPtr value) {
    const std::int32_t line = take().line;
    ExpressionPtr made = make_of(Kind::kFilter, line, std::move(value));
    made->name = expect_any_name();
    made->filter = find_filter(made->name);
    if (made->filter == nullptr) fail_at(line, cat("the filter \"", made->name, "\" is not supported; supported: ", filter_names()));
    if (is_operator("(")) parse_arguments(*made);
    check_arguments(*made, made->filter->signature, "filter");
    check_named_function(*made);
    return made;
  }

  /// Filters that take the name of another filter or test: that one must be known as well.
  void check_named_function(const Expression& filter) const {
    const bool by_attribute = filter.name.ends_with("attr");
    const std::size_t at = by_attribute ? 2 : 1;
    if (filter.parts.size() <= at || filter.parts[at]->kind != Kind::kConstant || filter.parts[at]->constant.text() == nullptr) return;
    const std::string& name = *filter.parts[at]->constant.text();
    if (filter.name == "map" && find_filter(name) == nullptr)
      fail_at(filter.line, cat("the filter \"", name, "\" is not supported; supported: ", filter_names()));
    const bool takes_test = by_attribute || filter.name == "select" || filter.name == "reject";
    if (takes_test && find_test(name) == nullptr)
      fail_at(filter.line, cat("the test \"", name, "\" is not supported; supported: ", test_names()));
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    const std::int32_t line = take().line;
    const bool is_negated = skip_name("not");
    ExpressionPtr made = make_of(Kind::kTest, line, std::move(value));
    made->name = expect_any_name();
    made->test = find_test(made->name);
    if (made->test == nullptr) fail_at(line, cat("the test \"", made->name, "\" is not supported; supported: ", test_names()));
    if (is_operator("(")) {
      parse_arguments(*made);
    } else if (begins_argument_of_test()) {
      if (is_name("is")) fail("tests can't be chained by \"is\"");
      made->parts.push_back(parse_postfix(parse_primary()));
      measure(*made);
    }
    const std::size_t expected = made->test->takes_argument ? 1 : 0;
    if (made->parts.size() - 1 != expected || !made->keywords.empty()) {
      fail_at(line,
              cat("test \"", made->name, "\": found ", made->parts.size() - 1 + made->keywords.size(), " arguments, expected ", expected));
    }
    return is_negated ? make_of(Kind::kNot, line, std::move(made)) : std::move(made);
  }

  /// A test may be followed by its argument without parentheses.
  bool begins_argument_of_test() const {
    switch (token().kind) {
      case Token::Kind::kName:
        return !is_name("else") && !is_name("or") && !is_name("and");
      case Token::Kind::kText:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat:
        return true;
      default:
        return is_operator("[") || is_operator("{");
    }
  }

  const std::string& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  std::string_view captured_by_;
  bool marks_generation_ = false;
  std::set<std::string> assigned_;
  std::vector<Use> uses_;
};

}  // namespace

Program parse(const std::string& text, const std::string& source) {
  if (static_cast<std::int64_t>(text.size()) > kTextLimit) {
    throw RequestError(cat(source, ": found a template of ", format_bytes(static_cast<std::int64_t>(text.size())), ", expected at most ",
                           format_bytes(kTextLimit)));
  }
  return Parser(text, source).run();
}

}  // namespace sluice::formats::jinja
