#include "formats/jinja_render.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "formats/jinja_text.hpp"

namespace sluice::formats::jinja {

/// Names of one block; those of the blocks around it are seen through it.
struct Scope {
  Scope* around = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around) {
      for (const auto& [each, value] : scope->names) {
        if (each == name) return &value;
      }
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    const auto at = std::find_if(names.begin(), names.end(), [&](const auto& each) { return each.first == name; });
    if (at == names.end()) {
      names.emplace_back(name, std::move(value));
    } else {
      at->second = std::move(value);
    }
  }
};

namespace {

constexpr int kDepthLimit = 500;  // of blocks, macros and expressions being worked on in each other

enum class Flow : std::uint8_t { kOn, kBreak, kContinue };

class Renderer final : public Budget {
 public:
  Renderer(const Program& program, std::int64_t steps) : program_(program), steps_(steps) {}

  Rendering run(const std::vector<std::pair<std::string, Value>>& variables) {
    Scope outer;
    for (const auto& [name, value] : variables) outer.names.emplace_back(name, value);
    Scope top{&outer, {}};
    run_body(program_.body, top, rendering_.text);
    return std::move(rendering_);
  }

  void spend(std::int64_t steps) override {
    if (steps > steps_) fail("the template takes too many steps for this chat");
    steps_ -= steps;
  }

  RequestError error(const std::string& what) const override {
    return RequestError(cat(program_.source, ":", line_, ": ", one_line(what)));
  }

 private:
  class Level {
   public:
    explicit Level(Renderer& renderer) : renderer_(renderer) {
      if (++renderer_.depth_ > kDepthLimit)
        renderer_.fail(cat("more than ", kDepthLimit, " blocks, macros and expressions work in each other"));
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --renderer_.depth_; }

   private:
    Renderer& renderer_;
  };

  /// The items of a {% for %}, found one by one, since its condition may look at what the body has set.
  class ForLoop final : public Loop {
   public:
    ForLoop(Renderer& renderer, const Statement& statement, Scope& scope, std::vector<Value> all)
        : renderer_(renderer), statement_(statement), scope_(scope), all_(std::move(all)) {}

    /// Moves to the next item; false at the end.
    bool advance() {
      if (!find(current_ + 1)) return false;
      ++current_;
      return true;
    }
    const Value& item() const { return found_[static_cast<std::size_t>(current_)]; }

    Value attribute(std::string_view name) override {
      if (name == "index") return current_ + 1;
      if (name == "index0") return current_;
      if (name == "first") return current_ == 0;
      if (name == "last") return !find(current_ + 1);
      if (name == "length") return length();
      if (name == "revindex") return length() - current_;
      if (name == "revindex0") return length() - current_ - 1;
      if (name == "previtem")
        return current_ > 0 ? found_[static_cast<std::size_t>(current_) - 1] : Value::undefined("loop.previtem: there is none");
      if (name == "nextitem")
        return find(current_ + 1) ? found_[static_cast<std::size_t>(current_) + 1] : Value::undefined("loop.nextitem: there is none");
      if (name == "depth") return std::int64_t{1};
      if (name == "depth0") return std::int64_t{0};
      return {};
    }

   private:
    std::int64_t length() {
      while (find(static_cast<std::int64_t>(found_.size()))) {
      }
      return static_cast<std::int64_t>(found_.size());
    }

    /// Looks for item `i` of those that fulfil the condition, all before it being found.
    bool find(std::int64_t i) {
      while (static_cast<std::int64_t>(found_.size()) <= i && next_ < all_.size()) {
        Value candidate = std::move(all_[next_++]);
        if (statement_.condition != nullptr) {
          Scope inner{&scope_, {}};
          renderer_.assign(statement_.target, candidate, inner);
          if (!renderer_.value_of(*statement_.condition, inner).truth()) continue;
        }
        found_.push_back(std::move(candidate));
      }
      return static_cast<std::int64_t>(found_.size()) > i;
    }

    Renderer& renderer_;
    const Statement& statement_;
    Scope& scope_;
    std::vector<Value> all_;
    std::size_t next_ = 0;
    std::vector<Value> found_;
    std::int64_t current_ = -1;
  };

  // ---- statements ----

  void write(std::string& out, const std::string& text) {
    spend(static_cast<std::int64_t>(text.size()) / kBytesPerStep);
    out += text;
  }

  Flow run_body(const Body& body, Scope& scope, std::string& out) {
    for (const Statement& statement : body) {
      const Flow flow = run_statement(statement, scope, out);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  Flow run_statement(const Statement& statement, Scope& scope, std::string& out) {
    const Level level(*this);
    line_ = statement.line;
    spend(1);
    switch (statement.kind) {
      case Statement::Kind::kText:
        write(out, statement.text);
        return Flow::kOn;
      case Statement::Kind::kPrint: {
        const Value value = value_of(*statement.expression, scope);
        line_ = statement.line;
        if (const std::string* text = value.text()) {
          write(out, *text);
        } else {
          write(out, to_text(*this, value));
        }
        return Flow::kOn;
      }
      case Statement::Kind::kIf:
        for (const Statement::Branch& branch : statement.branches) {
          if (branch.condition == nullptr || value_of(*branch.condition, scope).truth()) return run_body(branch.body, scope, out);
        }
        return Flow::kOn;
      case Statement::Kind::kFor:
        return run_for(statement, scope, out);
      case Statement::Kind::kSet: {
        const Value value = value_of(*statement.expression, scope);
        line_ = statement.line;
        assign(statement.target, value, scope);
        return Flow::kOn;
      }
      case Statement::Kind::kSetBlock: {
        std::string text;
        Scope inner{&scope, {}};
        run_body(statement.body, inner, text);
        line_ = statement.line;
        assign(statement.target, std::move(text), scope);
        return Flow::kOn;
      }
      case Statement::Kind::kMacro:
        scope.set(statement.target.name, MacroValue{statement.macro.get(), &scope});
        return Flow::kOn;
      case Statement::Kind::kGeneration: {
        // The parser lets these stand only where `out` is the output itself.
        const auto begin = static_cast<std::int64_t>(out.size());
        Scope inner{&scope, {}};
        run_body(statement.body, inner, out);
        const auto end = static_cast<std::int64_t>(out.size());
        if (end > begin) rendering_.generated.emplace_back(begin, end);
        return Flow::kOn;
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kOn;
  }

  Flow run_for(const Statement& statement, Scope& scope, std::string& out) {
    const Value walked = value_of(*statement.expression, scope);
    line_ = statement.line;
    ForLoop loop(*this, statement, scope, items_of(*this, walked));
    bool runs_else = true;
    Scope inner{&scope, {}};
    while (loop.advance()) {
      inner.names.clear();  // what one turn sets, the next doesn't see
      inner.set("loop", &loop);
      line_ = statement.line;
      assign(statement.target, loop.item(), inner);
      const Flow flow = run_body(statement.body, inner, out);
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kOn) runs_else = false;  // Jinja's rule: else runs unless some turn reached its end
    }
    return runs_else ? run_body(statement.otherwise, scope, out) : Flow::kOn;
  }

  void assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.several.empty()) {
      const std::vector<Value> items = items_of(*this, value);
      if (items.size() != target.several.size()) fail(cat("found ", items.size(), " values for ", target.several.size(), " names"));
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.several[i], items[i], scope);
    } else if (!target.attribute.empty()) {
      const Value* held = scope.find(target.name);
      if (held == nullptr || held->space() == nullptr)
        fail(cat("\"", target.name, "\" is not a namespace, so that its \"", target.attribute, "\" can't be set"));
      set_attribute(*this, *held->space(), target.attribute, value);
    } else {
      scope.set(target.name, value);
    }
  }

  // ---- expressions ----

  Value value_of(const Expression& e, Scope& scope) {
    const Level level(*this);
    spend(1);
    line_ = e.line;
    const auto part = [&](std::size_t i) { return value_of(*e.parts[i], scope); };
    switch (e.kind) {
      case Expression::Kind::kConstant:
        return e.constant;
      case Expression::Kind::kName: {
        const Value* held = scope.find(e.name);
        if (held != nullptr) return *held;
        if (e.name == "namespace" || e.name == "range" || e.name == "raise_exception") return Function{e.name};
        return Value::undefined(cat("\"", e.name, "\" is undefined"));
      }
      case Expression::Kind::kAttribute: {
        const Value base = part(0);
        line_ = e.line;
        return attribute_of(*this, base, e.name);
      }
      case Expression::Kind::kItem: {
        const Value base = part(0);
        const Value key = part(1);
        line_ = e.line;
        return item_of(*this, base, key);
      }
      case Expression::Kind::kSlice: {
        const auto optional_part = [&](std::size_t i) { return e.parts[i] == nullptr ? Value(None{}) : part(i); };
        const Value base = part(0);
        const Value start = optional_part(1);
        const Value stop = optional_part(2);
        const Value step = optional_part(3);
        line_ = e.line;
        return slice_of(*this, base, start, stop, step);
      }
      case Expression::Kind::kCallName:
        return call(e, scope);
      case Expression::Kind::kCallMethod: {
        const Value base = part(0);
        const Arguments arguments = arguments_of(e, 1, scope);
        line_ = e.line;
        return apply_method(*this, *e.method, base, arguments);
      }
      case Expression::Kind::kFilter: {
        const Value base = part(0);
        const Arguments arguments = arguments_of(e, 1, scope);
        line_ = e.line;
        return apply_filter(*this, *e.filter, base, arguments);
      }
      case Expression::Kind::kTest: {
        const Value base = part(0);
        const Value argument = e.parts.size() > 1 ? part(1) : Value();
        line_ = e.line;
        return e.test->holds(*this, base, argument);
      }
      case Expression::Kind::kNot:
        return !part(0).truth();
      case Expression::Kind::kAnd: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Expression::Kind::kOr: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Expression::Kind::kNegate:
      case Expression::Kind::kPlus:
        return signed_value(part(0), e.kind == Expression::Kind::kNegate);
      case Expression::Kind::kBinary: {
        const Value left = part(0);
        const Value right = part(1);
        line_ = e.line;
        return binary(e.operators[0], left, right);
      }
      case Expression::Kind::kCompare: {
        Value left = part(0);
        for (std::size_t i = 0; i < e.operators.size(); ++i) {
          Value right = part(i + 1);
          line_ = e.line;
          if (!relation(e.operators[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Expression::Kind::kConcat: {
        std::string text;
        for (std::size_t i = 0; i < e.parts.size(); ++i) write(text, to_text(*this, part(i)));
        return text;
      }
      case Expression::Kind::kConditional:
        if (part(1).truth()) return part(0);
        if (e.parts[2] != nullptr) return part(2);
        return Value::undefined("an inline if without else was false, and its value is undefined");
      case Expression::Kind::kList:
      case Expression::Kind::kTuple: {
        std::vector<Value> items;
        for (std::size_t i = 0; i < e.parts.size(); ++i) items.push_back(part(i));
        line_ = e.line;
        return make_list(*this, std::move(items), e.kind == Expression::Kind::kList ? List::Kind::kList : List::Kind::kTuple);
      }
      case Expression::Kind::kDict: {
        std::vector<std::pair<Value, Value>> items;
        for (std::size_t i = 0; i < e.parts.size(); i += 2) {
          Value key = part(i);
          items.emplace_back(std::move(key), part(i + 1));
        }
        line_ = e.line;
        return make_dict(*this, std::move(items));
      }
    }
    fail("an expression of no kind");
  }

  Arguments arguments_of(const Expression& e, std::size_t first, Scope& scope) {
    Arguments arguments;
    for (std::size_t i = first; i < e.parts.size(); ++i) arguments.positional.push_back(value_of(*e.parts[i], scope));
    for (const auto& [name, value] : e.keywords) arguments.named.emplace_back(name, value_of(*value, scope));
    return arguments;
  }

  Value call(const Expression& e, Scope& scope) {
    const Value* held = scope.find(e.name);
    const Value callee = held == nullptr ? Value() : *held;
    const Arguments arguments = arguments_of(e, 0, scope);
    line_ = e.line;
    if (held != nullptr) {
      if (callee.macro() == nullptr)
        fail(callee.is_undefined() ? callee.why() : cat("\"", e.name, "\" is ", callee.kind(), " and can't be called"));
      return call_macro(*callee.macro(), arguments);
    }
    if (e.name == "range") return make_range(*this, arguments);
    if (e.name == "namespace") return make_namespace(*this, arguments);
    if (e.name == "strftime_now")
      fail("strftime_now: a text that depends on the day of training is not supported; use a template with a fixed date");
    if (e.name == "raise_exception") {
      const std::string words = arguments.positional.empty() ? std::string() : to_text(*this, arguments.positional[0]);
      fail(cat("the template refuses this chat: ", words));
    }
    fail(cat("\"", e.name, "\" is undefined"));
  }

  Value call_macro(const MacroValue& held, const Arguments& arguments) {
    const Level level(*this);
    const Macro& macro = *held.macro;
    const std::size_t most = macro.parameters.size();
    if (arguments.positional.size() > most)
      fail(cat("macro \"", macro.name, "\": found ", arguments.positional.size(), " arguments, expected at most ", most));
    Scope scope{held.scope, {}};
    for (std::size_t i = 0; i < most; ++i) {
      const std::string& parameter = macro.parameters[i];
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& each) { return each.first == parameter; });
      if (i < arguments.positional.size()) {
        if (named != arguments.named.end()) fail(cat("macro \"", macro.name, "\": the argument \"", parameter, "\" is given twice"));
        scope.set(parameter, arguments.positional[i]);
      } else if (named != arguments.named.end()) {
        scope.set(parameter, named->second);
      } else if (const std::size_t without = most - macro.defaults.size(); i >= without) {
        scope.set(parameter, value_of(*macro.defaults[i - without], scope));
      } else {
        scope.set(parameter, Value::undefined(cat("the parameter \"", parameter, "\" of macro \"", macro.name, "\" was not given")));
      }
    }
    for (const auto& [name, value] : arguments.named) {
      if (std::find(macro.parameters.begin(), macro.parameters.end(), name) == macro.parameters.end())
        fail(cat("macro \"", macro.name, "\" has no parameter \"", name, "\""));
    }
    std::string text;
    run_body(macro.body, scope, text);
    return text;
  }

  bool relation(Operator op, const Value& left, const Value& right) {
    switch (op) {
      case Operator::kEqual:
        return equal(*this, left, right);
      case Operator::kUnequal:
        return !equal(*this, left, right);
      case Operator::kLess:
        return compare(*this, left, right) < 0;
      case Operator::kLessEqual:
        return compare(*this, left, right) <= 0;
      case Operator::kGreater:
        return compare(*this, left, right) > 0;
      case Operator::kGreaterEqual:
        return compare(*this, left, right) >= 0;
      case Operator::kIn:
        return contains(*this, right, left);
      default:
        return !contains(*this, right, left);
    }
  }

  Value signed_value(const Value& value, bool negate) {
    std::int64_t truth = 0;
    std::int64_t result = 0;
    if (const std::int64_t* whole = value.integer(truth)) {
      if (!negate) return *whole;
      if (__builtin_sub_overflow(std::int64_t{0}, *whole, &result)) fail_large();
      return result;
    }
    double number = 0;
    if (value.number(number)) return negate ? -number : number;
    fail(value.is_undefined() ? value.why() : cat("a sign before ", value.kind(), " is not supported"));
  }

  [[noreturn]] void fail_large() const { fail("a number is too large"); }

  Value binary(Operator op, const Value& left, const Value& right) {
    if (left.is_undefined()) fail(left.why());
    if (right.is_undefined()) fail(right.why());
    std::int64_t truth_left = 0;
    std::int64_t truth_right = 0;
    const std::int64_t* a = left.integer(truth_left);
    const std::int64_t* b = right.integer(truth_right);
    if (a != nullptr && b != nullptr && op != Operator::kDivide) return whole_numbers(op, *a, *b);
    double x = 0;
    double y = 0;
    if (left.number(x) && right.number(y)) return numbers(op, x, y);
    if (op == Operator::kAdd && left.text() != nullptr && right.text() != nullptr) {
      std::string text;
      write(text, *left.text());
      write(text, *right.text());
      return text;
    }
    if (op == Operator::kAdd && left.list() != nullptr && right.list() != nullptr && left.list()->kind == right.list()->kind &&
        (left.list()->kind == List::Kind::kList || left.list()->kind == List::Kind::kTuple)) {
      std::vector<Value> items = left.list()->items;
      items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
      return make_list(*this, std::move(items), left.list()->kind);
    }
    if (op == Operator::kMultiply && left.text() != nullptr && b != nullptr) return repeated(*left.text(), *b);
    if (op == Operator::kMultiply && right.text() != nullptr && a != nullptr) return repeated(*right.text(), *a);
    static constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%"};
    fail(cat(left.kind(), " ", kNames[static_cast<std::size_t>(op)], " ", right.kind(), " is not supported"));
  }

  Value repeated(const std::string& text, std::int64_t times) {
    std::string all;
    for (std::int64_t i = 0; i < times && !text.empty(); ++i) {
      spend(1);
      write(all, text);
    }
    return all;
  }

  Value whole_numbers(Operator op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool is_large = false;
    switch (op) {
      case Operator::kAdd:
        is_large = __builtin_add_overflow(a, b, &result);
        break;
      case Operator::kSubtract:
        is_large = __builtin_sub_overflow(a, b, &result);
        break;
      case Operator::kMultiply:
        is_large = __builtin_mul_overflow(a, b, &result);
        break;
      default: {
        if (b == 0) fail("a division by 0");
        if (b == -1) {  // the one divisor whose quotient may not fit
          is_large = op == Operator::kFloorDivide && __builtin_sub_overflow(std::int64_t{0}, a, &result);
          break;
        }
        // Python rounds towards minus infinity, and the remainder has the divisor's sign.
        const bool rounds = a % b != 0 && (a % b < 0) != (b < 0);
        result = op == Operator::kFloorDivide ? a / b - (rounds ? 1 : 0) : a % b + (rounds ? b : 0);
      }
    }
    if (is_large) fail_large();
    return result;
  }

  Value numbers(Operator op, double a, double b) {
    double result = 0;
    switch (op) {
      case Operator::kAdd:
        result = a + b;
        break;
      case Operator::kSubtract:
        result = a - b;
        break;
      case Operator::kMultiply:
        result = a * b;
        break;
      default: {
        if (b == 0) fail("a division by 0");
        double rest = std::fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
        result = op == Operator::kDivide ? a / b : op == Operator::kModulo ? rest : std::round((a - rest) / b);
      }
    }
    if (!std::isfinite(result)) fail_large();
    return result;
  }

  const Program& program_;
  std::int64_t steps_;
  std::int32_t line_ = 1;
  int depth_ = 0;
  Rendering rendering_;
};

}  // namespace

Rendering render(const Program& program, const std::vector<std::pair<std::string, Value>>& variables, std::int64_t steps) {
  return Renderer(program, steps).run(variables);
}

}  // namespace sluice::formats::jinja
