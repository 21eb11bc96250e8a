#include "formats/jinja_functions.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/text.hpp"
#include "formats/jinja_text.hpp"

namespace sluice::formats::jinja {
namespace {

using namespace std::string_view_literals;

std::int64_t steps_of(std::size_t bytes) {
  return static_cast<std::int64_t>(bytes) / kBytesPerStep;
}

std::string text_of(const Call& call, const Value& value) {
  return to_text(call.budget, value);
}

/// An argument that must be a text; nothing where it was left out or none.
std::optional<std::string_view> text_argument(const Call& call, std::size_t i) {
  if (i >= call.given.size() || !call.given[i] || call.given[i]->is_none()) return std::nullopt;
  if (call.given[i]->is_undefined()) call.budget.fail(call.given[i]->why());
  const std::string* text = call.given[i]->text();
  if (text == nullptr) call.budget.fail(cat("found ", call.given[i]->kind(), " as an argument, expected a text"));
  return *text;
}

std::int64_t integer_argument(const Call& call, std::size_t i, std::int64_t otherwise) {
  if (i >= call.given.size() || !call.given[i]) return otherwise;
  std::int64_t truth = 0;
  const std::int64_t* number = call.given[i]->integer(truth);
  if (number == nullptr) call.budget.fail(cat("found ", call.given[i]->kind(), " as an argument, expected a whole number"));
  return *number;
}

bool truth_argument(const Call& call, std::size_t i) {
  return i < call.given.size() && call.given[i] && call.given[i]->truth();
}

Value changed_case(const Call& call, std::optional<std::string> (*change)(std::string_view), const std::string& text) {
  call.budget.spend(static_cast<std::int64_t>(text.size()));
  std::optional<std::string> changed = change(text);
  if (!changed) call.budget.fail("changing the case of these characters is not supported");
  return std::move(*changed);
}

/// Jinja's own title, whose words begin after white space and opening brackets.
std::optional<std::string> title_of_words(std::string_view text) {
  std::optional<std::string> out = capitalize(text);
  if (!out) return out;
  for (std::size_t i = 1; i < out->size(); ++i) {
    const char before = (*out)[i - 1];
    if ((*out)[i] >= 'a' && (*out)[i] <= 'z' && (is_space(before) || "-({[<"sv.find(before) != std::string_view::npos))
      (*out)[i] = static_cast<char>((*out)[i] - 'a' + 'A');
  }
  return out;
}

Value replaced(const Call& call, std::string_view text, std::string_view old, std::string_view by, std::int64_t limit) {
  // Paid before it is made: a short text can become a very long one.
  std::int64_t places = 0;
  if (old.empty()) {
    places = static_cast<std::int64_t>(text.size()) + 1;
  } else {
    call.budget.spend(steps_to_search(text.size(), old.size()));
    for (std::size_t at = text.find(old); at != std::string_view::npos; at = text.find(old, at + old.size())) ++places;
  }
  if (limit >= 0) places = std::min(places, limit);
  call.budget.spend(steps_of(text.size()) + places * (1 + steps_of(by.size())));
  return replace(text, old, by, limit);
}

Value joined(const Call& call, std::string_view between, const std::vector<Value>& items, bool texts_only) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (texts_only && items[i].text() == nullptr) call.budget.fail(cat("join: found ", items[i].kind(), ", expected texts"));
    const std::string piece = text_of(call, items[i]);
    call.budget.spend(steps_of(between.size() + piece.size()));
    if (i > 0) out += between;
    out += piece;
  }
  return out;
}

/// "a.b.0": what `attribute=` of filters names.
std::vector<Value> path_of(const Call& call, const Value& attribute) {
  std::vector<Value> path;
  const std::string* text = attribute.text();
  if (text == nullptr) {
    if (!attribute.is_int()) call.budget.fail(cat("found ", attribute.kind(), " as the name of an attribute, expected a text"));
    return {attribute};
  }
  for (const std::string_view part : split(*text, "."sv, -1, Side::kLeft)) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = !part.empty() && part[0] != '-' && error == std::errc() && end == part.data() + part.size();
    path.push_back(is_number ? Value(number) : Value(part));
  }
  return path;
}

Value walk(const Call& call, Value value, const std::vector<Value>& path) {
  for (const Value& part : path) value = item_of(call.budget, value, part);
  return value;
}

/// A text given by place to an open filter: the name of an attribute, filter or test.
const std::string& name_argument(const Call& call, std::size_t i) {
  const std::string* name = call.arguments.positional[i].text();
  if (name == nullptr) call.budget.fail(cat("found ", call.arguments.positional[i].kind(), " as a name, expected a text"));
  return *name;
}

/// select, reject, selectattr, rejectattr: the items for which the test (by default: being true) of the item, or of its
/// attribute, gives `wanted`.
Value selected(const Call& call, bool by_attribute, bool wanted) {
  const Arguments& arguments = call.arguments;
  const std::size_t first = by_attribute ? 1 : 0;
  if (!arguments.named.empty()) call.budget.fail(cat("the argument \"", arguments.named[0].first, "\" is not supported"));
  if (arguments.positional.size() < first) call.budget.fail("found no argument, expected the name of an attribute");
  std::vector<Value> path;
  if (by_attribute) path = path_of(call, arguments.positional[0]);
  const Test* test = nullptr;
  Value argument;
  if (arguments.positional.size() > first) {
    const std::string& name = name_argument(call, first);
    test = find_test(name);
    if (test == nullptr) call.budget.fail(cat("test \"", name, "\" is not supported"));
    const std::size_t count = arguments.positional.size() - first - 1;
    if (count != (test->takes_argument ? 1U : 0U)) call.budget.fail(cat("test \"", name, "\": found ", count, " arguments"));
    if (test->takes_argument) argument = arguments.positional[first + 1];
  }
  if (!call.input.truth()) return make_generator(call.budget, {});
  std::vector<Value> chosen;
  for (Value& item : items_of(call.budget, call.input)) {
    const Value subject = walk(call, item, path);
    if ((test == nullptr ? subject.truth() : test->holds(call.budget, subject, argument)) == wanted) chosen.push_back(std::move(item));
  }
  return make_generator(call.budget, std::move(chosen));
}

Value mapped(const Call& call) {
  const Arguments& arguments = call.arguments;
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const Value* attribute = nullptr;
    const Value* otherwise = nullptr;
    for (const auto& [name, value] : arguments.named) {
      if (name == "attribute") {
        attribute = &value;
      } else if (name == "default") {
        otherwise = value.is_none() ? nullptr : &value;
      } else {
        call.budget.fail(cat("map: the argument \"", name, "\" is not supported"));
      }
    }
    if (attribute == nullptr) call.budget.fail("map: expected the name of a filter or of an attribute");
    const std::vector<Value> path = path_of(call, *attribute);
    if (!call.input.truth()) return make_generator(call.budget, {});
    for (Value& item : items_of(call.budget, call.input)) {
      for (const Value& part : path) {
        item = item_of(call.budget, item, part);
        if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
      }
      results.push_back(std::move(item));
    }
    return make_generator(call.budget, std::move(results));
  }
  const Filter* filter = find_filter(name_argument(call, 0));
  if (filter == nullptr) call.budget.fail(cat("filter \"", name_argument(call, 0), "\" is not supported"));
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  if (!call.input.truth()) return make_generator(call.budget, {});
  for (const Value& item : items_of(call.budget, call.input)) results.push_back(apply_filter(call.budget, *filter, item, rest));
  return make_generator(call.budget, std::move(results));
}

Value pairs_of(Budget& budget, const Dict& dict, bool as_view) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.items) pairs.push_back(make_list(budget, {key, value}, List::Kind::kTuple));
  return as_view ? make_list(budget, std::move(pairs), List::Kind::kView) : make_generator(budget, std::move(pairs));
}

Value length_of(const Call& call) {
  if (const std::string* text = call.input.text()) {
    call.budget.spend(steps_of(text->size()));
    return count_characters(*text);
  }
  if (const List* list = call.input.list()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = call.input.dict()) return static_cast<std::int64_t>(dict->items.size());
  if (call.input.is_undefined()) return std::int64_t{0};
  call.budget.fail(cat("length: found ", call.input.kind(), ", expected a text, list or dict"));
}

Value json_of(const Call& call) {
  JsonStyle style;
  style.ascii = truth_argument(call, 0);
  if (call.given[1] && !call.given[1]->is_none()) {
    const std::int64_t indent = integer_argument(call, 1, -1);
    if (indent < 0 || indent > 16) call.budget.fail(cat("tojson: found an indent of ", indent, ", expected 0 to 16"));
    style.indent = static_cast<int>(indent);
    style.item_separator = ",";
  }
  if (call.given[2] && !call.given[2]->is_none()) {
    const List* pair = call.given[2]->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr || pair->items[1].text() == nullptr)
      call.budget.fail(cat("tojson: found ", call.given[2]->kind(), " as separators, expected two texts"));
    style.item_separator = *pair->items[0].text();
    style.key_separator = *pair->items[1].text();
  }
  return to_json(call.budget, call.input, style);
}

Value stripped(const Call& call, const std::string& text, Side side) {
  const std::optional<std::string_view> set = text_argument(call, 0);
  constexpr std::size_t kMost = 256;  // bytes; each character is looked for in all of them
  if (set && set->size() > kMost) call.budget.fail(cat("stripping a set of more than ", kMost, " bytes is not supported"));
  return strip(text, side, set);
}

Value first_of(const Call& call) {
  if (Generator* generator = call.input.generator()) {
    if (generator->next < generator->items.size()) return generator->items[generator->next++];
  } else if (const std::vector<Value> items = items_of(call.budget, call.input); !items.empty()) {
    return items.front();
  }
  return Value::undefined("first: there is no first item");
}

Value last_of(const Call& call) {
  if (call.input.generator() != nullptr) call.budget.fail(cat("last: found ", call.input.kind()));
  const std::vector<Value> items = items_of(call.budget, call.input);
  return items.empty() ? Value::undefined("last: there is no last item") : items.back();
}

Value reversed(const Call& call) {
  std::vector<Value> items = items_of(call.budget, call.input);
  std::reverse(items.begin(), items.end());
  if (call.input.text() != nullptr) return joined(call, "", items, true);
  if (call.input.generator() != nullptr) return make_list(call.budget, std::move(items));
  return make_generator(call.budget, std::move(items));
}

const std::vector<Filter>& filters() {
  static const std::vector<Filter> kFilters{
      {"capitalize", {}, [](const Call& c) { return changed_case(c, capitalize, text_of(c, c.input)); }},
      {"count", {}, length_of},
      {"d",
       {{"default_value", "boolean"}, 0},
       [](const Call& c) {
         const bool falls_back = c.input.is_undefined() || (truth_argument(c, 1) && !c.input.truth());
         return !falls_back ? c.input : c.given[0] ? *c.given[0] : Value(std::string());
       }},
      {"default", {{"default_value", "boolean"}, 0}, [](const Call& c) { return find_filter("d")->apply(c); }},
      {"first", {}, first_of},
      {"items",
       {},
       [](const Call& c) {
         if (c.input.is_undefined()) return make_generator(c.budget, {});
         if (c.input.dict() == nullptr) c.budget.fail(cat("items: found ", c.input.kind(), ", expected a dict"));
         return pairs_of(c.budget, *c.input.dict(), false);
       }},
      {"join",
       {{"d", "attribute"}, 0},
       [](const Call& c) {
         std::vector<Value> items = items_of(c.budget, c.input);
         if (c.given[1] && !c.given[1]->is_none()) {
           const std::vector<Value> path = path_of(c, *c.given[1]);
           for (Value& item : items) item = walk(c, item, path);
         }
         return joined(c, c.given[0] ? text_of(c, *c.given[0]) : std::string(), items, false);
       }},
      {"last", {}, last_of},
      {"length", {}, length_of},
      {"list", {}, [](const Call& c) { return make_list(c.budget, items_of(c.budget, c.input)); }},
      {"lower", {}, [](const Call& c) { return changed_case(c, lower, text_of(c, c.input)); }},
      {"map", {{}, 0, true}, mapped},
      {"reject", {{}, 0, true}, [](const Call& c) { return selected(c, false, false); }},
      {"rejectattr", {{}, 0, true}, [](const Call& c) { return selected(c, true, false); }},
      {"replace",
       {{"old", "new", "count"}, 2},
       [](const Call& c) {
         const std::int64_t limit = c.given[2] && !c.given[2]->is_none() ? integer_argument(c, 2, -1) : -1;
         return replaced(c, text_of(c, c.input), text_of(c, *c.given[0]), text_of(c, *c.given[1]), limit);
       }},
      {"reverse", {}, reversed},
      {"select", {{}, 0, true}, [](const Call& c) { return selected(c, false, true); }},
      {"selectattr", {{}, 0, true}, [](const Call& c) { return selected(c, true, true); }},
      {"string", {}, [](const Call& c) { return c.input.text() != nullptr ? c.input : Value(text_of(c, c.input)); }},
      {"title", {}, [](const Call& c) { return changed_case(c, title_of_words, text_of(c, c.input)); }},
      {"tojson", {{"ensure_ascii", "indent", "separators"}, 0}, json_of},
      {"trim", {{"chars"}, 0}, [](const Call& c) { return stripped(c, text_of(c, c.input), Side::kBoth); }},
      {"upper", {}, [](const Call& c) { return changed_case(c, upper, text_of(c, c.input)); }},
  };
  return kFilters;
}

bool is_whole(Budget& budget, const Value& value, std::int64_t& number) {
  std::int64_t truth = 0;
  const std::int64_t* held = value.integer(truth);
  if (held == nullptr) budget.fail(cat("found ", value.kind(), ", expected a whole number"));
  number = *held;
  return true;
}

bool is_divisible(Budget& budget, const Value& value, std::int64_t by) {
  std::int64_t number = 0;
  is_whole(budget, value, number);
  if (by == 0) budget.fail("divisibleby: a division by 0");
  return by == -1 || number % by == 0;
}

bool is_sequence(const Value& v) {
  return v.text() != nullptr || (v.list() != nullptr && v.list()->kind != List::Kind::kView) || v.dict() != nullptr || v.is_undefined();
}

bool is_iterable(const Value& v) {
  return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.generator() != nullptr || v.is_undefined() ||
         v.loop() != nullptr;
}

const std::vector<Test>& tests() {
  using V = const Value&;
  const auto eq = [](Budget& b, V v, V a) { return equal(b, v, a); };
  const auto ne = [](Budget& b, V v, V a) { return !equal(b, v, a); };
  const auto lt = [](Budget& b, V v, V a) { return compare(b, v, a) < 0; };
  const auto le = [](Budget& b, V v, V a) { return compare(b, v, a) <= 0; };
  const auto gt = [](Budget& b, V v, V a) { return compare(b, v, a) > 0; };
  const auto ge = [](Budget& b, V v, V a) { return compare(b, v, a) >= 0; };
  static const std::vector<Test> kTests{
      {"!=", true, ne},
      {"<", true, lt},
      {"<=", true, le},
      {"==", true, eq},
      {">", true, gt},
      {">=", true, ge},
      {"boolean", false, [](Budget&, V v, V) { return v.is_bool(); }},
      {"callable", false, [](Budget&, V v, V) { return v.macro() != nullptr || v.function() != nullptr; }},
      {"defined", false, [](Budget&, V v, V) { return !v.is_undefined(); }},
      {"divisibleby", true,
       [](Budget& b, V v, V a) {
         std::int64_t by = 0;
         is_whole(b, a, by);
         return is_divisible(b, v, by);
       }},
      {"eq", true, eq},
      {"equalto", true, eq},
      {"even", false, [](Budget& b, V v, V) { return is_divisible(b, v, 2); }},
      {"false", false, [](Budget&, V v, V) { return v.is_bool() && !v.truth(); }},
      {"float", false, [](Budget&, V v, V) { return v.is_float(); }},
      {"ge", true, ge},
      {"greaterthan", true, gt},
      {"gt", true, gt},
      {"in", true, [](Budget& b, V v, V a) { return contains(b, a, v); }},
      {"integer", false, [](Budget&, V v, V) { return v.is_int(); }},
      {"iterable", false, [](Budget&, V v, V) { return is_iterable(v); }},
      {"le", true, le},
      {"lessthan", true, lt},
      {"lt", true, lt},
      {"mapping", false, [](Budget&, V v, V) { return v.dict() != nullptr; }},
      {"ne", true, ne},
      {"none", false, [](Budget&, V v, V) { return v.is_none(); }},
      {"number", false, [](Budget&, V v, V) { return v.is_int() || v.is_float() || v.is_bool(); }},
      {"odd", false, [](Budget& b, V v, V) { return !is_divisible(b, v, 2); }},
      {"sequence", false, [](Budget&, V v, V) { return is_sequence(v); }},
      {"string", false, [](Budget&, V v, V) { return v.text() != nullptr; }},
      {"true", false, [](Budget&, V v, V) { return v.is_bool() && v.truth(); }},
      {"undefined", false, [](Budget&, V v, V) { return v.is_undefined(); }},
  };
  return kTests;
}

Value cut(const Call& call, Side side) {
  const std::optional<std::string_view> separator = text_argument(call, 0);
  if (separator && separator->empty()) call.budget.fail("split: the separator is empty");
  call.budget.spend(steps_to_search(call.input.text()->size(), separator ? separator->size() : kBytesPerStep));
  std::vector<Value> pieces;
  for (const std::string_view piece : split(*call.input.text(), separator, integer_argument(call, 1, -1), side)) pieces.emplace_back(piece);
  return make_list(call.budget, std::move(pieces));
}

/// startswith and endswith, of a text or any of a tuple.
Value has_affix(const Call& call, bool at_begin) {
  const std::string& text = *call.input.text();
  const auto fits = [&](const Value& affix) {
    if (affix.text() == nullptr) call.budget.fail(cat("found ", affix.kind(), " as an argument, expected a text"));
    return at_begin ? text.starts_with(*affix.text()) : text.ends_with(*affix.text());
  };
  const List* several = call.given[0]->list();
  if (several == nullptr || several->kind != List::Kind::kTuple) return fits(*call.given[0]);
  return std::any_of(several->items.begin(), several->items.end(), fits);
}

std::string_view needed_text(const Call& call, std::size_t i) {
  const std::optional<std::string_view> text = text_argument(call, i);
  if (!text) call.budget.fail("found none as an argument, expected a text");
  return *text;
}

const std::vector<Method>& methods() {
  using Of = Method::Of;
  static const std::vector<Method> kMethods{
      {"capitalize", Of::kText, {}, [](const Call& c) { return changed_case(c, capitalize, *c.input.text()); }},
      {"endswith", Of::kText, {{""}, 1}, [](const Call& c) { return has_affix(c, false); }},
      {"find",
       Of::kText,
       {{""}, 1},
       [](const Call& c) {
         c.budget.spend(steps_to_search(c.input.text()->size(), needed_text(c, 0).size()));
         return Value(find(*c.input.text(), needed_text(c, 0)));
       }},
      {"get",
       Of::kDict,
       {{"", ""}, 1},
       [](const Call& c) {
         const Value* found = find(c.budget, *c.input.dict(), *c.given[0]);
         return found != nullptr ? *found : c.given[1] ? *c.given[1] : Value(None{});
       }},
      {"items", Of::kDict, {}, [](const Call& c) { return pairs_of(c.budget, *c.input.dict(), true); }},
      {"join", Of::kText, {{""}, 1}, [](const Call& c) { return joined(c, *c.input.text(), items_of(c.budget, *c.given[0]), true); }},
      {"keys", Of::kDict, {}, [](const Call& c) { return make_list(c.budget, items_of(c.budget, c.input), List::Kind::kView); }},
      {"lower", Of::kText, {}, [](const Call& c) { return changed_case(c, lower, *c.input.text()); }},
      {"lstrip", Of::kText, {{""}, 0}, [](const Call& c) { return stripped(c, *c.input.text(), Side::kLeft); }},
      {"removeprefix",
       Of::kText,
       {{""}, 1},
       [](const Call& c) {
         const std::string_view text = *c.input.text();
         return Value(text.starts_with(needed_text(c, 0)) ? text.substr(needed_text(c, 0).size()) : text);
       }},
      {"removesuffix",
       Of::kText,
       {{""}, 1},
       [](const Call& c) {
         const std::string_view text = *c.input.text();
         return Value(text.ends_with(needed_text(c, 0)) ? text.substr(0, text.size() - needed_text(c, 0).size()) : text);
       }},
      {"replace",
       Of::kText,
       {{"", "", ""}, 2},
       [](const Call& c) { return replaced(c, *c.input.text(), needed_text(c, 0), needed_text(c, 1), integer_argument(c, 2, -1)); }},
      {"rsplit", Of::kText, {{"sep", "maxsplit"}, 0}, [](const Call& c) { return cut(c, Side::kRight); }},
      {"rstrip", Of::kText, {{""}, 0}, [](const Call& c) { return stripped(c, *c.input.text(), Side::kRight); }},
      {"split", Of::kText, {{"sep", "maxsplit"}, 0}, [](const Call& c) { return cut(c, Side::kLeft); }},
      {"startswith", Of::kText, {{""}, 1}, [](const Call& c) { return has_affix(c, true); }},
      {"strip", Of::kText, {{""}, 0}, [](const Call& c) { return stripped(c, *c.input.text(), Side::kBoth); }},
      {"title", Of::kText, {}, [](const Call& c) { return changed_case(c, title, *c.input.text()); }},
      {"upper", Of::kText, {}, [](const Call& c) { return changed_case(c, upper, *c.input.text()); }},
      {"values",
       Of::kDict,
       {},
       [](const Call& c) {
         std::vector<Value> values;
         for (const auto& item : c.input.dict()->items) values.push_back(item.second);
         return make_list(c.budget, std::move(values), List::Kind::kView);
       }},
  };
  return kMethods;
}

template <typename Entry>
const Entry* entry_of(const std::vector<Entry>& sorted, std::string_view name) {
  const auto at =
      std::lower_bound(sorted.begin(), sorted.end(), name, [](const Entry& entry, std::string_view n) { return entry.name < n; });
  return at != sorted.end() && at->name == name ? &*at : nullptr;
}

template <typename Entry>
std::string names_of(const std::vector<Entry>& entries) {
  std::string names;
  for (const Entry& entry : entries) names += cat(names.empty() ? "" : ", ", entry.name);
  return names;
}

std::vector<std::optional<Value>> bind(Budget& budget, const Signature& signature, const Arguments& arguments) {
  std::vector<std::string> names;
  for (const auto& [name, value] : arguments.named) names.push_back(name);
  const std::string problem = problem_with_arguments(signature, arguments.positional.size(), names);
  if (!problem.empty()) budget.fail(problem);
  std::vector<std::optional<Value>> given(signature.parameters.size());
  for (std::size_t i = 0; i < given.size() && i < arguments.positional.size(); ++i) given[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(signature.parameters.begin(), signature.parameters.end(), name);
    if (at != signature.parameters.end()) given[static_cast<std::size_t>(at - signature.parameters.begin())] = value;
  }
  return given;
}

// What Python's types have as attributes. A template that names one and doesn't call it gets a function, as in Python.
constexpr std::array kTextAttributes{
    "capitalize"sv,   "casefold"sv,   "center"sv,    "count"sv,       "encode"sv,    "endswith"sv,     "expandtabs"sv,   "find"sv,
    "format"sv,       "format_map"sv, "index"sv,     "isalnum"sv,     "isalpha"sv,   "isascii"sv,      "isdecimal"sv,    "isdigit"sv,
    "isidentifier"sv, "islower"sv,    "isnumeric"sv, "isprintable"sv, "isspace"sv,   "istitle"sv,      "isupper"sv,      "join"sv,
    "ljust"sv,        "lower"sv,      "lstrip"sv,    "maketrans"sv,   "partition"sv, "removeprefix"sv, "removesuffix"sv, "replace"sv,
    "rfind"sv,        "rindex"sv,     "rjust"sv,     "rpartition"sv,  "rsplit"sv,    "rstrip"sv,       "split"sv,        "splitlines"sv,
    "startswith"sv,   "strip"sv,      "swapcase"sv,  "title"sv,       "translate"sv, "upper"sv,        "zfill"sv};
constexpr std::array kDictAttributes{"copy"sv, "fromkeys"sv, "get"sv, "items"sv, "keys"sv, "values"sv};
constexpr std::array kListAttributes{"copy"sv, "count"sv, "index"sv};
constexpr std::array kTupleAttributes{"count"sv, "index"sv};
// The sandbox hides what would change a value, even where a dict has an item of that name.
constexpr std::array kDictHidden{"clear"sv, "pop"sv, "popitem"sv, "setdefault"sv, "update"sv};

template <typename Names>
std::optional<Value> function_named(const Names& names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return Value(Function{*at});
}

/// What Python's getattr finds; nothing where it would raise AttributeError.
std::optional<Value> python_attribute(const Value& base, std::string_view name) {
  if (base.text() != nullptr) return function_named(kTextAttributes, name);
  if (base.dict() != nullptr) {
    if (std::find(kDictHidden.begin(), kDictHidden.end(), name) != kDictHidden.end())
      return Value::undefined(cat("the method \"", name, "\" would change a dict, which templates may not"));
    return function_named(kDictAttributes, name);
  }
  if (const List* list = base.list()) {
    if (list->kind == List::Kind::kList) return function_named(kListAttributes, name);
    if (list->kind != List::Kind::kView) return function_named(kTupleAttributes, name);
    return std::nullopt;
  }
  if (const Namespace* space = base.space()) {
    const auto at = std::find_if(space->items.begin(), space->items.end(), [&](const auto& item) { return item.first == name; });
    if (at != space->items.end()) return at->second;
  }
  if (Loop* loop = base.loop()) {
    Value value = loop->attribute(name);
    if (!value.is_undefined() || name == "previtem" || name == "nextitem") return value;
  }
  return std::nullopt;
}

/// The place of Python's index `i` in `size` items; nothing where it is outside.
std::optional<std::size_t> place_of(std::int64_t i, std::int64_t size) {
  if (i < 0) i += size;
  if (i < 0 || i >= size) return std::nullopt;
  return static_cast<std::size_t>(i);
}

/// An end of a slice; nothing where it was left out.
std::optional<std::int64_t> slice_end(const Budget& budget, const Value& value) {
  if (value.is_none()) return std::nullopt;
  std::int64_t truth = 0;
  const std::int64_t* number = value.integer(truth);
  if (number == nullptr) budget.fail(cat("a slice from or to ", value.kind(), "; expected a whole number"));
  return *number;
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  return entry_of(filters(), name);
}
const Test* find_test(std::string_view name) {
  return entry_of(tests(), name);
}
const Method* find_method(std::string_view name) {
  return entry_of(methods(), name);
}
std::string filter_names() {
  return names_of(filters());
}
std::string test_names() {
  return names_of(tests());
}
std::string method_names() {
  return names_of(methods());
}

std::string problem_with_arguments(const Signature& signature, std::size_t count, const std::vector<std::string>& named) {
  if (signature.is_open) return "";
  const std::size_t most = signature.parameters.size();
  if (count > most) return cat("found ", count, " arguments, expected at most ", most);
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto at = std::find(signature.parameters.begin(), signature.parameters.end(), named[i]);
    if (at == signature.parameters.end()) return cat("the argument \"", named[i], "\" is not supported");
    if (static_cast<std::size_t>(at - signature.parameters.begin()) < count || std::count(named.begin(), named.end(), named[i]) > 1)
      return cat("the argument \"", named[i], "\" is given twice");
  }
  for (std::size_t i = count; i < signature.required; ++i) {
    if (std::find(named.begin(), named.end(), signature.parameters[i]) == named.end())
      return cat("found ", count + named.size(), " arguments, expected at least ", signature.required);
  }
  return "";
}

Value apply_filter(Budget& budget, const Filter& filter, const Value& input, const Arguments& arguments) {
  budget.spend(1);
  return filter.apply(Call{budget, input, arguments, bind(budget, filter.signature, arguments)});
}

Value apply_method(Budget& budget, const Method& method, const Value& input, const Arguments& arguments) {
  budget.spend(1);
  if (input.is_undefined()) budget.fail(input.why());
  const bool fits = method.receiver == Method::Of::kText ? input.text() != nullptr : input.dict() != nullptr;
  if (!fits) budget.fail(cat(input.kind(), " has no method \"", method.name, "\""));
  if (input.text() != nullptr) budget.spend(steps_of(input.text()->size()));
  return method.apply(Call{budget, input, arguments, bind(budget, method.signature, arguments)});
}

Value make_range(Budget& budget, const Arguments& arguments) {
  constexpr std::int64_t kMost = 100'000;
  if (arguments.positional.empty() || arguments.positional.size() > 3 || !arguments.named.empty())
    budget.fail("range: expected one, two or three whole numbers");
  std::array<std::int64_t, 3> n{};
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) is_whole(budget, arguments.positional[i], n[i]);
  const bool is_short = arguments.positional.size() == 1;
  const std::int64_t start = is_short ? 0 : n[0];
  const std::int64_t stop = is_short ? n[0] : n[1];
  const std::int64_t step = arguments.positional.size() == 3 ? n[2] : 1;
  if (step == 0) budget.fail("range: found a step of 0");
  std::vector<Value> numbers;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(numbers.size()) == kMost) budget.fail(cat("range: more than ", kMost, " numbers"));
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(budget, std::move(numbers), List::Kind::kRange);
}

Value make_namespace(Budget& budget, const Arguments& arguments) {
  if (!arguments.positional.empty()) budget.fail("namespace: expected arguments by name only");
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : arguments.named) set_attribute(budget, *space, name, value);
  return space;
}

void set_attribute(const Budget& budget, Namespace& space, const std::string& name, const Value& value) {
  if (name.starts_with('_')) budget.fail(cat("the attribute \"", name, "\" of a namespace begins with \"_\", which is not allowed"));
  check_storable(budget, value);
  const auto at = std::find_if(space.items.begin(), space.items.end(), [&](const auto& item) { return item.first == name; });
  if (at == space.items.end()) {
    space.items.emplace_back(name, value);
  } else {
    at->second = value;
  }
}

Value attribute_of(Budget& budget, const Value& base, std::string_view name) {
  budget.spend(1);
  if (base.is_undefined()) budget.fail(base.why());
  const std::optional<Value> found = python_attribute(base, name);
  if (found) return *found;
  if (const Dict* dict = base.dict()) {
    if (const Value* value = find(*dict, name)) return *value;
  }
  return Value::undefined(cat(base.kind(), " has no attribute \"", name, "\""));
}

Value item_of(Budget& budget, const Value& base, const Value& key) {
  budget.spend(1);
  if (base.is_undefined()) budget.fail(base.why());
  std::int64_t truth = 0;
  if (const std::int64_t* number = key.integer(truth)) {
    if (const List* list = base.list(); list != nullptr && list->kind != List::Kind::kView) {
      if (const auto place = place_of(*number, static_cast<std::int64_t>(list->items.size()))) return list->items[*place];
    } else if (const std::string* text = base.text()) {
      budget.spend(static_cast<std::int64_t>(text->size()));
      const std::vector<std::string_view> characters = characters_of(*text);
      if (const auto place = place_of(*number, static_cast<std::int64_t>(characters.size()))) return characters[*place];
    }
  }
  if (const Dict* dict = base.dict()) {
    if (const Value* value = find(budget, *dict, key)) return *value;
  }
  if (const std::string* name = key.text()) {
    if (const std::optional<Value> found = python_attribute(base, *name)) return *found;
    return Value::undefined(cat(base.kind(), " has no item \"", *name, "\""));
  }
  return Value::undefined(cat(base.kind(), " has no such item"));
}

Value slice_of(Budget& budget, const Value& base, const Value& start, const Value& stop, const Value& step) {
  if (base.is_undefined()) budget.fail(base.why());
  const List* list = base.list();
  if (base.text() == nullptr && (list == nullptr || list->kind == List::Kind::kView)) budget.fail(cat(base.kind(), " has no slices"));
  const std::int64_t by = slice_end(budget, step).value_or(1);
  if (by == 0) budget.fail("a slice: found a step of 0");
  std::vector<std::string_view> characters;
  if (base.text() != nullptr) {
    budget.spend(static_cast<std::int64_t>(base.text()->size()));
    characters = characters_of(*base.text());
  }
  const auto size = static_cast<std::int64_t>(list != nullptr ? list->items.size() : characters.size());
  // Ends are clamped to [0, size], or to [-1, size - 1] when walking backwards, as slice.indices does.
  const std::int64_t lowest = by > 0 ? 0 : -1;
  const std::int64_t highest = by > 0 ? size : size - 1;
  const auto clamped = [&](std::optional<std::int64_t> end, std::int64_t otherwise) {
    if (!end) return otherwise;
    return std::clamp(*end < 0 ? *end + size : *end, lowest, highest);
  };
  const std::int64_t first = clamped(slice_end(budget, start), by > 0 ? lowest : highest);
  const std::int64_t end = clamped(slice_end(budget, stop), by > 0 ? highest : lowest);
  std::vector<Value> items;
  std::string text;
  for (std::int64_t i = first; by > 0 ? i < end : i > end;) {
    if (list != nullptr) {
      items.push_back(list->items[static_cast<std::size_t>(i)]);
    } else {
      text += characters[static_cast<std::size_t>(i)];
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (list == nullptr) return text;
  return make_list(budget, std::move(items), list->kind);
}

}  // namespace sluice::formats::jinja
