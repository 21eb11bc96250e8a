#include "app/tolerant_json.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
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
  Scanner(const std::string& text, const std::string& source) : text_(text), source_(source) {}

  TolerantJson run() {
    blank_comments();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_space(c)) {
        if (c == '\n') {
          ++line_;
          is_new_line_ = true;
        }
        copy(1);
      } else if (c == '}' || c == ']') {
        close();
      } else if (c == ',') {
        read_comma();
      } else if (c == ':') {
        copy(1);
        if (!frames_.empty() && frames_.back().next == Next::kColon) frames_.back().next = Next::kValue;
      } else {
        begin_token();
      }
    }
    return std::move(result_);
  }

 private:
  enum class Next : std::uint8_t { kKey, kColon, kValue, kComma };
  struct Frame {
    bool is_object = false;
    Next next = Next::kValue;
    std::string path;  // of the object or list itself
    std::string key;   // the object's current key
    std::size_t index = 0;
    std::map<std::string, int> lines;  // keys seen in this object
  };

  /// Comments become spaces, so that everything after works on plain text. Strings are left alone, and so is the // of "http://".
  void blank_comments() {
    char before = '\n';  // the last character that is not space, on this line
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const bool is_quote = text_[i] == '"' || (text_[i] == '\'' && std::string_view("\n{[,:").find(before) != std::string_view::npos);
      const bool in_address = i > 1 && text_[i - 1] == ':' && std::isalpha(static_cast<unsigned char>(text_[i - 2])) != 0;
      if (is_quote) {
        i = end_of_string(i);
      } else if (text_[i] == '#' || (text_.compare(i, 2, "//") == 0 && !in_address)) {
        while (i < text_.size() && text_[i] != '\n') text_[i++] = ' ';
      } else if (text_.compare(i, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", i + 2);
        const std::size_t stop = end == std::string::npos ? text_.size() : end + 2;
        for (; i < stop; ++i) {
          if (text_[i] != '\n') text_[i] = ' ';
        }
        --i;
        continue;
      }
      if (i < text_.size() && (!is_space(text_[i]) || text_[i] == '\n')) before = text_[i];
    }
  }

  /// Position of the closing quote of the string that opens at `begin`, or of the last character.
  std::size_t end_of_string(std::size_t begin) const {
    std::size_t i = begin + 1;
    while (i < text_.size() && text_[i] != text_[begin]) i += text_[i] == '\\' ? 2 : 1;
    return i < text_.size() ? i : text_.size() - 1;
  }

  void copy(std::size_t count) {
    result_.strict.append(text_, at_, count);
    at_ += count;
  }

  /// What stands in text_[begin, end), which has no quotes around it, as a JSON string.
  void write_quoted(std::size_t begin, std::size_t end) {
    result_.strict += '"';
    for (std::size_t i = begin; i < end; ++i) {
      const bool escapes_single = text_[i] == '\\' && i + 1 < end && text_[i + 1] == '\'';
      if (escapes_single) continue;
      if (text_[i] == '"') result_.strict += '\\';
      result_.strict += text_[i];
    }
    result_.strict += '"';
  }

  void begin_token() {
    // A line's end does for a comma.
    if (!frames_.empty() && frames_.back().next == Next::kComma && is_new_line_) {
      result_.strict.insert(value_end_, 1, ',');
      next_item();
    }
    is_new_line_ = false;
    const char c = text_[at_];
    const bool is_key = !frames_.empty() && frames_.back().next == Next::kKey;
    if (c == '{' || c == '[') {
      open(c == '{');
    } else if (c == '"' || c == '\'') {
      const std::size_t end = end_of_string(at_);
      if (is_key) note_key(text_.substr(at_ + 1, end - at_ - 1));
      if (c == '\'' && end > at_ && text_[end] == '\'') {
        write_quoted(at_ + 1, end);
        at_ = end + 1;
      } else {
        copy(end - at_ + 1);
      }
      if (!is_key) end_value();
    } else if (is_key) {
      read_bare_key();
    } else {
      read_bare_value();
    }
  }

  void read_bare_key() {
    std::size_t end = at_;
    while (end < text_.size() && !is_space(text_[end]) && std::string_view("{}[],:\"'").find(text_[end]) == std::string_view::npos) ++end;
    std::size_t colon = end;
    while (colon < text_.size() && is_space(text_[colon])) ++colon;
    if (end == at_ || colon >= text_.size() || text_[colon] != ':') {
      copy(std::max<std::size_t>(1, end - at_));
      return;
    }
    note_key(text_.substr(at_, end - at_));
    write_quoted(at_, end);
    at_ = end;
  }

  void read_bare_value() {
    const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
    const std::size_t stop = std::min(text_.find_first_of(",]}\n", at_), text_.size());
    std::size_t end = stop;
    while (end > at_ && is_space(text_[end - 1])) --end;
    const std::string word = text_.substr(at_, end - at_);
    const bool has_rest_of_line = text_.find_first_not_of(" \t\r", stop) >= line_end || stop == line_end;
    const bool is_text = !frames_.empty() && has_rest_of_line && word.find_first_of("\"'{[\\") == std::string::npos;
    if (is_text && !nlohmann::json::accept(word)) {
      write_quoted(at_, end);
      at_ = end;
    } else {
      copy(std::max<std::size_t>(1, end - at_));
    }
    end_value();
  }

  void note_key(const std::string& name) {
    Frame& frame = frames_.back();
    frame.key = name;
    frame.next = Next::kColon;
    const auto [first, is_new] = frame.lines.emplace(frame.key, line_);
    if (!is_new) {
      throw RequestError(cat(source_, ":", line_, ": key \"", current_path(), "\" stands twice in the same object, first in line ",
                             first->second, "; keep one of them"));
    }
    result_.lines.emplace(current_path(), line_);
  }

  void end_value() {
    if (!frames_.empty()) frames_.back().next = Next::kComma;
    value_end_ = result_.strict.size();
    is_new_line_ = false;
  }

  void next_item() {
    frames_.back().next = frames_.back().is_object ? Next::kKey : Next::kValue;
    ++frames_.back().index;
  }

  void open(bool is_object) {
    Frame frame;
    frame.is_object = is_object;
    frame.next = is_object ? Next::kKey : Next::kValue;
    frame.path = frames_.empty() ? std::string() : current_path();
    frames_.push_back(std::move(frame));
    copy(1);
  }

  void close() {
    if (!frames_.empty()) frames_.pop_back();
    copy(1);
    end_value();
  }

  void read_comma() {
    if (frames_.empty()) {
      copy(1);
      return;
    }
    const std::size_t next = text_.find_first_not_of(" \t\r\n", at_ + 1);
    const bool closes = next != std::string::npos && (text_[next] == '}' || text_[next] == ']');
    if (closes && frames_.back().next == Next::kComma) {
      result_.strict += ' ';
      ++at_;
      return;
    }
    copy(1);
    next_item();
  }

  std::string current_path() const {
    const Frame& frame = frames_.back();
    if (!frame.is_object) return cat(frame.path, "[", frame.index, "]");
    return frame.path.empty() ? frame.key : cat(frame.path, ".", frame.key);
  }

  std::string text_;
  const std::string& source_;
  TolerantJson result_;
  std::vector<Frame> frames_;
  std::size_t at_ = 0;
  std::size_t value_end_ = 0;  // in the result, of the last value
  bool is_new_line_ = false;   // since the last token
  int line_ = 1;
};

}  // namespace

TolerantJson read_tolerant_json(const std::string& text, const std::string& source) {
  return Scanner(text, source).run();
}

}  // namespace sluice::app
