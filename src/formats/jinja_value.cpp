#include "formats/jinja_value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/text.hpp"
#include "formats/jinja_text.hpp"

namespace sluice::formats::jinja {
namespace {

constexpr int kDepthLimit = 64;  // of lists and dicts within each other; templates have three or four levels

/// repr(float): the shortest digits that read back the same, in Python's choice of form.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  std::string text(buffer.data(), result.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
    text.assign(buffer.data(), fixed.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
  }
  return text;
}

void append_repr(Budget& budget, const Value& value, std::string& out);

/// str(x) but for texts, which repr quotes.
std::string plain_text(Budget& budget, const Value& value) {
  std::int64_t truth = 0;
  double number = 0;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truth() ? "True" : "False";
  if (const std::int64_t* integer = value.integer(truth)) return std::to_string(*integer);
  if (value.number(number)) return float_text(number);
  std::string out;
  if (value.dict() != nullptr || value.list() != nullptr) {
    append_repr(budget, value, out);
    return out;
  }
  budget.fail(cat("printing ", value.kind(), " is not supported"));
}

void append_repr(Budget& budget, const Value& value, std::string& out) {
  budget.spend(1);
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (const std::string* text = value.text()) {
    budget.spend(static_cast<std::int64_t>(text->size()));
    out += quoted(*text);
  } else if (const List* list = value.list()) {
    const bool is_tuple = list->kind == List::Kind::kTuple;
    if (!is_tuple && list->kind != List::Kind::kList) budget.fail(cat("printing ", value.kind(), " is not supported"));
    out += is_tuple ? '(' : '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(budget, list->items[i], out);
    }
    if (is_tuple && list->items.size() == 1) out += ',';
    out += is_tuple ? ')' : ']';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (std::size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(budget, dict->items[i].first, out);
      out += ": ";
      append_repr(budget, dict->items[i].second, out);
    }
    out += '}';
  } else {
    out += plain_text(budget, value);
  }
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void write(const Value& value, int level) {
    budget_.spend(1);
    std::int64_t truth = 0;
    double number = 0;
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.truth() ? "true" : "false";
    } else if (const std::int64_t* integer = value.integer(truth)) {
      out_ += std::to_string(*integer);
    } else if (value.number(number)) {
      out_ += std::isnan(number) ? "NaN" : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity") : float_text(number);
    } else if (const std::string* text = value.text()) {
      budget_.spend(static_cast<std::int64_t>(text->size()));
      out_ += json_quoted(*text, style_.ascii);
    } else if (const Dict* dict = value.dict()) {
      write_all('{', '}', dict->items.size(), level, [&](std::size_t i) {
        out_ += key_text(dict->items[i].first) + style_.key_separator;
        write(dict->items[i].second, level + 1);
      });
    } else if (const List* list = value.list(); list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple)) {
      write_all('[', ']', list->items.size(), level, [&](std::size_t i) { write(list->items[i], level + 1); });
    } else {
      budget_.fail(cat("tojson: found ", value.kind(), ", which JSON can't hold"));
    }
  }

  std::string finish() { return std::move(out_); }

 private:
  template <typename WriteItem>
  void write_all(char open, char close, std::size_t count, int level, const WriteItem& write_item) {
    out_ += open;
    for (std::size_t i = 0; i < count; ++i) {
      budget_.spend(static_cast<std::int64_t>(style_.item_separator.size() + style_.key_separator.size()) / kBytesPerStep);
      if (i > 0) out_ += style_.item_separator;
      break_line(level + 1);
      write_item(i);
    }
    if (count > 0) break_line(level);
    out_ += close;
  }

  void break_line(int level) {
    if (style_.indent < 0) return;
    budget_.spend(1 + level * style_.indent);
    out_ += '\n';
    out_.append(static_cast<std::size_t>(level) * static_cast<std::size_t>(style_.indent), ' ');
  }

  std::string key_text(const Value& key) {
    if (const std::string* text = key.text()) return json_quoted(*text, style_.ascii);
    if (key.list() != nullptr || key.dict() != nullptr || key.is_undefined())
      budget_.fail(cat("tojson: found ", key.kind(), " as a key, which JSON can't hold"));
    JsonWriter inner(budget_, style_);
    inner.write(key, 0);
    return json_quoted(inner.finish(), style_.ascii);
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

const std::string* Value::text() const {
  const Text* held = std::get_if<Text>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const List* Value::list() const {
  const auto* held = std::get_if<std::shared_ptr<const List>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const Dict* Value::dict() const {
  const auto* held = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
Generator* Value::generator() const {
  const auto* held = std::get_if<std::shared_ptr<Generator>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
Namespace* Value::space() const {
  const auto* held = std::get_if<std::shared_ptr<Namespace>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
Loop* Value::loop() const {
  Loop* const* held = std::get_if<Loop*>(&data_);
  return held == nullptr ? nullptr : *held;
}

const std::int64_t* Value::integer(std::int64_t& space_for_bool) const {
  if (const bool* truth = std::get_if<bool>(&data_)) {
    space_for_bool = *truth ? 1 : 0;
    return &space_for_bool;
  }
  return std::get_if<std::int64_t>(&data_);
}

bool Value::number(double& out) const {
  std::int64_t truth = 0;
  if (const std::int64_t* whole = integer(truth)) {
    out = static_cast<double>(*whole);
    return true;
  }
  const double* held = std::get_if<double>(&data_);
  if (held != nullptr) out = *held;
  return held != nullptr;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  double value = 0;
  if (number(value)) return value != 0;
  if (const std::string* held = text()) return !held->empty();
  if (const List* held = list()) return !held->items.empty();
  if (const Dict* held = dict()) return !held->items.empty();
  return true;
}

std::string Value::kind() const {
  if (is_undefined()) return "something undefined";
  if (is_none()) return "none";
  if (is_bool()) return truth() ? "true" : "false";
  if (is_int() || is_float()) return "a number";
  if (text() != nullptr) return "a text";
  if (const List* held = list()) {
    switch (held->kind) {
      case List::Kind::kList:
        return "a list";
      case List::Kind::kTuple:
        return "a tuple";
      case List::Kind::kRange:
        return "a range";
      case List::Kind::kView:
        return "a view of a dict";
    }
  }
  if (dict() != nullptr) return "a dict";
  if (generator() != nullptr) return "a generator (what select, map and their like give; |list makes a list of it)";
  if (space() != nullptr) return "a namespace";
  if (macro() != nullptr) return "a macro";
  if (const Function* held = function()) return cat("the function \"", held->name, "\"");
  return "loop";
}

std::string Value::why() const {
  const Undefined* held = std::get_if<Undefined>(&data_);
  return held != nullptr && held->why != nullptr ? *held->why : "something is undefined";
}

int Value::depth() const {
  if (const List* held = list()) return held->depth;
  if (const Dict* held = dict()) return held->depth;
  const Generator* held = generator();
  return held == nullptr ? 0 : held->depth;
}

void check_storable(const Budget& budget, const Value& value) {
  if (value.space() != nullptr || value.macro() != nullptr || value.loop() != nullptr || value.function() != nullptr)
    budget.fail(cat(value.kind(), " within a list, dict or namespace is not supported"));
}

namespace {
int depth_above(const Budget& budget, int depth) {
  if (depth >= kDepthLimit) budget.fail(cat("lists and dicts lie more than ", kDepthLimit, " deep in each other"));
  return depth + 1;
}
int depth_over(Budget& budget, const std::vector<Value>& items) {
  budget.spend(static_cast<std::int64_t>(items.size()));
  int depth = 0;
  for (const Value& item : items) {
    check_storable(budget, item);
    depth = std::max(depth, item.depth());
  }
  return depth_above(budget, depth);
}
}  // namespace

Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind) {
  const int depth = depth_over(budget, items);
  return std::make_shared<const List>(List{kind, std::move(items), depth});
}

Value make_generator(Budget& budget, std::vector<Value> items) {
  const int depth = depth_over(budget, items);
  return std::make_shared<Generator>(Generator{std::move(items), 0, depth});
}

Value make_dict(Budget& budget, std::vector<std::pair<Value, Value>> items) {
  Dict dict;
  int depth = 0;
  for (auto& [key, value] : items) {
    if (const List* list = key.list(); key.dict() != nullptr || (list != nullptr && list->kind != List::Kind::kTuple))
      budget.fail(cat(key.kind(), " can't be the key of a dict"));
    check_storable(budget, key);
    check_storable(budget, value);
    depth = std::max({depth, key.depth(), value.depth()});
    // A later value of the same key replaces the earlier one in its place.
    const auto same = std::find_if(dict.items.begin(), dict.items.end(),
                                   [&, &wanted = key](const auto& each) { return equal(budget, each.first, wanted); });
    if (same == dict.items.end()) {
      dict.items.emplace_back(std::move(key), std::move(value));
    } else {
      same->second = std::move(value);
    }
  }
  dict.depth = depth_above(budget, depth);
  return std::make_shared<const Dict>(std::move(dict));
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.spend(1);
  std::int64_t truth_a = 0;
  std::int64_t truth_b = 0;
  const std::int64_t* whole_a = a.integer(truth_a);
  const std::int64_t* whole_b = b.integer(truth_b);
  if (whole_a != nullptr && whole_b != nullptr) return *whole_a == *whole_b;
  double x = 0;
  double y = 0;
  if (a.number(x) && b.number(y)) return x == y;
  if (a.text() != nullptr && b.text() != nullptr) {
    if (a.text()->size() != b.text()->size()) return false;
    budget.spend(static_cast<std::int64_t>(a.text()->size()) / kBytesPerStep);
    return *a.text() == *b.text();
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    const List& left = *a.list();
    const List& right = *b.list();
    if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
    return std::equal(left.items.begin(), left.items.end(), right.items.begin(),
                      [&](const Value& p, const Value& q) { return equal(budget, p, q); });
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->items.size() != b.dict()->items.size()) return false;
    return std::all_of(a.dict()->items.begin(), a.dict()->items.end(), [&](const auto& item) {
      const Value* other = find(budget, *b.dict(), item.first);
      return other != nullptr && equal(budget, item.second, *other);
    });
  }
  if (a.is_undefined() || a.is_none()) return a.is_undefined() ? b.is_undefined() : b.is_none();
  if (a.generator() != nullptr) return a.generator() == b.generator();
  if (a.space() != nullptr) return a.space() == b.space();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  if (a.macro() != nullptr || a.function() != nullptr) budget.fail(cat("comparing ", a.kind(), " is not supported"));
  return false;
}

int compare(Budget& budget, const Value& a, const Value& b) {
  std::int64_t truth_a = 0;
  std::int64_t truth_b = 0;
  const std::int64_t* whole_a = a.integer(truth_a);
  const std::int64_t* whole_b = b.integer(truth_b);
  if (whole_a != nullptr && whole_b != nullptr) return *whole_a < *whole_b ? -1 : *whole_a > *whole_b ? 1 : 0;
  double x = 0;
  double y = 0;
  if (a.number(x) && b.number(y)) return x < y ? -1 : x > y ? 1 : 0;
  if (a.text() != nullptr && b.text() != nullptr) {
    budget.spend(static_cast<std::int64_t>(std::min(a.text()->size(), b.text()->size())) / kBytesPerStep);
    return a.text()->compare(*b.text());  // the order of UTF-8's bytes is the order of characters
  }
  if (a.is_undefined()) budget.fail(a.why());
  if (b.is_undefined()) budget.fail(b.why());
  budget.fail(cat("an order of ", a.kind(), " and ", b.kind(), " is not supported"));
}

const Value* find(Budget& budget, const Dict& dict, const Value& key) {
  const auto at = std::find_if(dict.items.begin(), dict.items.end(), [&](const auto& item) { return equal(budget, item.first, key); });
  return at == dict.items.end() ? nullptr : &at->second;
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto at = std::find_if(dict.items.begin(), dict.items.end(),
                               [&](const auto& item) { return item.first.text() != nullptr && *item.first.text() == key; });
  return at == dict.items.end() ? nullptr : &at->second;
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (item.text() == nullptr) budget.fail(cat("\"in\" a text: found ", item.kind(), ", expected a text"));
    budget.spend(steps_to_search(text->size(), item.text()->size()));
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return find(budget, *dict, item) != nullptr;
  if (const List* list = container.list())
    return std::any_of(list->items.begin(), list->items.end(), [&](const Value& each) { return equal(budget, each, item); });
  if (Generator* generator = container.generator()) {
    while (generator->next < generator->items.size()) {
      if (equal(budget, generator->items[generator->next++], item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  budget.fail(cat("\"in\": found ", container.kind(), ", expected a text, list or dict"));
}

std::string to_text(Budget& budget, const Value& value) {
  if (const std::string* text = value.text()) {
    budget.spend(static_cast<std::int64_t>(text->size()) / kBytesPerStep);
    return *text;
  }
  return plain_text(budget, value);
}

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value, 0);
  return writer.finish();
}

std::vector<Value> items_of(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.list()) {
    items = list->items;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& item : dict->items) items.push_back(item.first);
  } else if (const std::string* text = value.text()) {
    budget.spend(static_cast<std::int64_t>(text->size()));
    for (const std::string_view character : characters_of(*text)) items.emplace_back(character);
  } else if (Generator* generator = value.generator()) {
    items.assign(generator->items.begin() + static_cast<std::ptrdiff_t>(generator->next), generator->items.end());
    generator->next = generator->items.size();
  } else {
    budget.fail(cat("can't walk through ", value.kind()));
  }
  budget.spend(static_cast<std::int64_t>(items.size()));
  return items;
}

}  // namespace sluice::formats::jinja
