#pragma once
// What a template computes with: Python's values as far as chat templates see them.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace sluice::formats::jinja {

class Value;
struct Macro;  // jinja_program.hpp
struct Scope;  // jinja_render.cpp

/// What one rendering may use. A template is code from elsewhere, so every step pays: an operation, an item, kBytesPerStep bytes of
/// a text that is copied or searched, a byte of one that is escaped.
inline constexpr std::int64_t kBytesPerStep = 16;
class Budget {
 public:
  /// Throws RequestError when nothing is left.
  virtual void spend(std::int64_t steps) = 0;
  /// Throws that `what` can't be done, with the template's name and line.
  [[noreturn]] void fail(const std::string& what) const { throw error(what); }

 protected:
  ~Budget() = default;
  virtual RequestError error(const std::string& what) const = 0;
};

/// What looking for `piece` bytes in `text` bytes may cost.
constexpr std::int64_t steps_to_search(std::size_t text, std::size_t piece) {
  return (static_cast<std::int64_t>(text) / kBytesPerStep) * (1 + static_cast<std::int64_t>(piece) / 64);
}

/// Nothing has this name; falsy, prints as nothing, and an error in most other places.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};
using Text = std::shared_ptr<const std::string>;

/// A list, or what behaves like one but for its name and few other things.
struct List {
  enum class Kind : std::uint8_t { kList, kTuple, kRange, kView };  // kView: dict.keys() and its like: no [] and no slices
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;  // of lists and dicts within each other
};
/// In order of insertion; keys are compared as Python does.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
};
/// What filters such as `select` give: can be walked through once, has no length, is true.
struct Generator {
  std::vector<Value> items;
  std::size_t next = 0;
  int depth = 1;
};
/// namespace(): the one thing whose content can be set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};
struct MacroValue {
  const Macro* macro = nullptr;
  Scope* scope = nullptr;  // where it was defined; outlives the value, since only scopes within it can hold it
};
/// What `loop` is within a {% for %}.
class Loop {
 public:
  /// loop.index and so on; undefined for names it doesn't have.
  virtual Value attribute(std::string_view name) = 0;

 protected:
  ~Loop() = default;
};
/// A function of ours, or a method that was named and not called.
struct Function {
  std::string_view name;
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None none) : data_(none) {}  // NOLINT(google-explicit-constructor): a value is any of these
  Value(bool truth) : data_(truth) {}
  Value(std::int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(Text text) : data_(std::move(text)) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char*) = delete;  // would be a bool
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Generator> generator) : data_(std::move(generator)) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(MacroValue macro) : data_(macro) {}
  Value(Loop* loop) : data_(loop) {}
  Value(Function function) : data_(function) {}
  /// Undefined, with what an error will say.
  static Value undefined(std::string why) { return Value(Undefined{std::make_shared<const std::string>(std::move(why))}); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  /// Nothing unless it is of that kind.
  const std::string* text() const;
  const List* list() const;
  const Dict* dict() const;
  Generator* generator() const;
  Namespace* space() const;
  const MacroValue* macro() const { return std::get_if<MacroValue>(&data_); }
  Loop* loop() const;
  const Function* function() const { return std::get_if<Function>(&data_); }
  /// A whole number, where true and false are 1 and 0.
  const std::int64_t* integer(std::int64_t& space_for_bool) const;
  /// A number of any kind as a float; nothing for others.
  bool number(double& out) const;

  /// Python's bool(x).
  bool truth() const;
  /// "a text", "none", ...: for errors.
  std::string kind() const;
  /// Why it is undefined.
  std::string why() const;
  /// Levels of lists and dicts; 0 for what isn't one.
  int depth() const;

 private:
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Generator>, std::shared_ptr<Namespace>, MacroValue, Loop*, Function>
      data_;
};

/// Lists and dicts of these. Fail where they would lie too deep in each other, or hold a namespace, macro or loop: nothing
/// that can change or end lies within another value, so there are no cycles.
Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind = List::Kind::kList);
Value make_dict(Budget& budget, std::vector<std::pair<Value, Value>> items);
Value make_generator(Budget& budget, std::vector<Value> items);
/// Fails unless `value` may lie in a list, dict or namespace.
void check_storable(const Budget& budget, const Value& value);

/// Python's a == b.
bool equal(Budget& budget, const Value& a, const Value& b);
/// Negative, 0 or positive as a is less than, equal to or greater than b. Fails for kinds that have no order.
int compare(Budget& budget, const Value& a, const Value& b);
/// The value of a key; nothing where the dict doesn't have it.
const Value* find(Budget& budget, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);
/// Python's `item in container`.
bool contains(Budget& budget, const Value& container, const Value& item);

/// Python's str(x): what {{ x }} prints.
std::string to_text(Budget& budget, const Value& value);

struct JsonStyle {
  int indent = -1;  // negative: all in one line
  bool ascii = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// Python's json.dumps(x, ...).
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

/// What `for` walks through. A generator is empty after it.
std::vector<Value> items_of(Budget& budget, const Value& value);

}  // namespace sluice::formats::jinja
