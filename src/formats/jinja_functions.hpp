#pragma once
// The filters, tests, methods and functions of the subset, by name, with their parameters as Jinja and Python have them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/jinja_value.hpp"

namespace sluice::formats::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Names of parameters in order; one that is empty can be given by its place only. The first `required` have no default.
struct Signature {
  std::vector<std::string_view> parameters;
  std::size_t required = 0;
  bool is_open = false;  // takes any arguments and looks at them itself
};

/// What is wrong with a call of `count` arguments by place and `named` ones; empty: nothing.
std::string problem_with_arguments(const Signature& signature, std::size_t count, const std::vector<std::string>& named);

struct Call {
  Budget& budget;
  const Value& input;                       // what the filter or method is applied to
  const Arguments& arguments;               // as written; for open signatures
  std::vector<std::optional<Value>> given;  // by parameter; nothing where it was left out
};

struct Filter {
  std::string_view name;
  Signature signature;
  Value (*apply)(const Call& call);
};

struct Test {
  std::string_view name;
  bool takes_argument;
  /// `argument` is undefined where the test takes none.
  bool (*holds)(Budget& budget, const Value& value, const Value& argument);
};

struct Method {
  enum class Of : std::uint8_t { kText, kDict };
  std::string_view name;
  Of receiver;
  Signature signature;
  Value (*apply)(const Call& call);
};

/// Null where there is none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
const Method* find_method(std::string_view name);
/// All names, for errors.
std::string filter_names();
std::string test_names();
std::string method_names();

Value apply_filter(Budget& budget, const Filter& filter, const Value& input, const Arguments& arguments);
Value apply_method(Budget& budget, const Method& method, const Value& input, const Arguments& arguments);

/// range(stop), range(start, stop), range(start, stop, step): at most 100,000 numbers, as Jinja's sandbox allows.
Value make_range(Budget& budget, const Arguments& arguments);
/// namespace(a=1, b=2).
Value make_namespace(Budget& budget, const Arguments& arguments);
void set_attribute(const Budget& budget, Namespace& space, const std::string& name, const Value& value);

/// base.name and base[key]; undefined where there is no such thing, but an error of an undefined base.
Value attribute_of(Budget& budget, const Value& base, std::string_view name);
Value item_of(Budget& budget, const Value& base, const Value& key);
/// base[start:stop:step]; each none where left out. Fails where base is no text or list.
Value slice_of(Budget& budget, const Value& base, const Value& start, const Value& stop, const Value& step);

}  // namespace sluice::formats::jinja
