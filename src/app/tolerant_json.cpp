#include "app/tolerant_json.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class Scanner {
 public:
  Scanner(const std::string& text, const std::string& source) : source_(source) { result_.strict = text; }

  TolerantJson run() {
    blank_comments();
    std::string& text = result_.strict;
    for (at_ = 0; at_ < text.size(); ++at_) {
      const char c = text[at_];
      if (c == '\n') ++line_;
      if (is_space(c)) continue;
      if (c == '"') {
        read_string();
      } else {
        read_mark(c);
      }
      before_ = c;
    }
    return std::move(result_);
  }

 private:
  struct Frame {
    bool is_object = false;
    std::string path;  // of the object or list itself
    std::string key;   // the object's current key
    bool expects_key = false;
    std::size_t index = 0;
    std::map<std::string, int> lines;  // keys seen in this object
  };

  /// Comments become spaces, so that everything after works on plain text. Strings are left alone.
  void blank_comments() {
    std::string& text = result_.strict;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') {
        i = end_of_string(i);
      } else if (text[i] == '#' || text.compare(i, 2, "//") == 0) {
        while (i < text.size() && text[i] != '\n') text[i++] = ' ';
      } else if (text.compare(i, 2, "/*") == 0) {
        const std::size_t end = text.find("*/", i + 2);
        const std::size_t stop = end == std::string::npos ? text.size() : end + 2;
        for (; i < stop; ++i) {
          if (text[i] != '\n') text[i] = ' ';
        }
        --i;
      }
    }
  }

  /// Position of the closing quote of the string that opens at `begin`, or of the last character.
  std::size_t end_of_string(std::size_t begin) const {
    const std::string& text = result_.strict;
    std::size_t i = begin + 1;
    while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i < text.size() ? i : text.size() - 1;
  }

  void read_string() {
    const std::size_t end = end_of_string(at_);
    if (!frames_.empty() && frames_.back().is_object && frames_.back().expects_key) {
      Frame& frame = frames_.back();
      frame.key = result_.strict.substr(at_ + 1, end - at_ - 1);
      frame.expects_key = false;
      const auto [first, is_new] = frame.lines.emplace(frame.key, line_);
      if (!is_new) {
        throw RequestError(cat(source_, ":", line_, ": key \"", current_path(), "\" stands twice in the same object, first in line ",
                               first->second, "; keep one of them"));
      }
      result_.lines.emplace(current_path(), line_);
    }
    at_ = end;
  }

  void read_mark(char c) {
    if (c == '{' || c == '[') {
      Frame frame;
      frame.is_object = c == '{';
      frame.expects_key = frame.is_object;
      frame.path = frames_.empty() ? std::string() : current_path();
      frames_.push_back(std::move(frame));
    } else if ((c == '}' || c == ']') && !frames_.empty()) {
      frames_.pop_back();
    } else if (c == ',' && !frames_.empty()) {
      std::size_t next = at_ + 1;
      while (next < result_.strict.size() && is_space(result_.strict[next])) ++next;
      const bool closes = next < result_.strict.size() && (result_.strict[next] == '}' || result_.strict[next] == ']');
      const bool follows_value = before_ != '{' && before_ != '[' && before_ != ',' && before_ != ':';
      if (closes && follows_value) result_.strict[at_] = ' ';
      frames_.back().expects_key = frames_.back().is_object;
      ++frames_.back().index;
    }
  }

  std::string current_path() const {
    const Frame& frame = frames_.back();
    if (!frame.is_object) return cat(frame.path, "[", frame.index, "]");
    return frame.path.empty() ? frame.key : cat(frame.path, ".", frame.key);
  }

  const std::string& source_;
  TolerantJson result_;
  std::vector<Frame> frames_;
  std::size_t at_ = 0;
  int line_ = 1;
  char before_ = ' ';  // the last character that is not space
};

}  // namespace

TolerantJson read_tolerant_json(const std::string& text, const std::string& source) {
  return Scanner(text, source).run();
}

}  // namespace sluice::app
