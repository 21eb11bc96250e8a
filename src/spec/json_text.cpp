#include "spec/json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.hpp"

namespace sluice::spec {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 100;  // no file of ours needs ten; later walks over the value recurse

/// One open object or array of the text being read.
struct Level {
  std::set<std::string> keys;
  std::string current;  // the key being read; arrays leave it empty
};

/// Listens to the parser without keeping values, so that a long header costs little.
class KeyChecker final : public json::json_sax_t {
 public:
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.current = name;
    if (level.keys.insert(name).second) return true;
    std::string path;
    for (const Level& each : levels_) {
      if (!each.current.empty()) path += path.empty() ? each.current : "." + each.current;
    }
    problem = cat("key \"", path, "\" stands there twice; keep one");
    return false;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the bracket
    const std::string what = error.what();
    const std::size_t bracket = what.find("] ");
    problem = "not valid JSON: " + (bracket == std::string::npos ? what : what.substr(bracket + 2));
    std::replace(problem.begin(), problem.end(), '\n', ' ');
    return false;
  }

 private:
  bool open() {
    levels_.emplace_back();
    if (levels_.size() <= kDeepest) return true;
    problem = cat("objects and lists are nested more than ", kDeepest, " deep");
    return false;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  std::vector<Level> levels_;
};

}  // namespace

std::string json_problem(const std::string& text) {
  KeyChecker checker;
  json::sax_parse(text, &checker);
  return checker.problem;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  int best_distance = 0;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best == nullptr) return {};
  const int longest = static_cast<int>(std::max(word.size(), best->size()));
  return best_distance * 3 <= longest ? *best : std::string();
}

}  // namespace sluice::spec
