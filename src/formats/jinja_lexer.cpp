#include "formats/jinja_lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"
#include "formats/jinja_text.hpp"

namespace sluice::formats::jinja {
namespace {

using namespace std::string_view_literals;
using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool continues_name(char c) {
  return begins_name(c) || is_digit(c);
}

/// Line ends as "\n", and none at the end of the text.
std::string with_plain_lines(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      plain += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      plain += text[i];
    }
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

class Lexer {
 public:
  Lexer(const std::string& text, const std::string& source) : text_(with_plain_lines(text)), view_(text_), source_(source) {}

  std::vector<Token> run() {
    while (at_ < view_.size()) {
      const std::size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        add_data(view_.substr(at_));
        at_ = view_.size();
        break;
      }
      read_tag(tag);
    }
    move_to(view_.size());
    add(Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw RequestError(cat(source_, ":", line_, ": ", one_line(what))); }

  bool at_is(std::string_view piece) const { return view_.substr(at_).starts_with(piece); }

  void move_to(std::size_t to) {
    line_ += static_cast<std::int32_t>(
        std::count(view_.begin() + static_cast<std::ptrdiff_t>(at_), view_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  Token& add(Kind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
    return tokens_.back();
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(Kind::kData, std::string(data));
  }

  std::size_t next_tag() const {
    for (std::size_t i = view_.find('{', at_); i != std::string_view::npos; i = view_.find('{', i + 1)) {
      if (i + 1 < view_.size() && "%{#"sv.find(view_[i + 1]) != std::string_view::npos) return i;
    }
    return std::string_view::npos;
  }

  /// The text before a tag, as the tag's sign and lstrip_blocks leave it.
  std::string_view before_tag(std::string_view data, char sign, bool prints) const {
    if (sign == '-') return strip(data, Side::kRight);
    if (sign == '+' || prints) return data;
    const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
    if ((line > 0 || begins_line_) && strip(data.substr(line), Side::kLeft).empty()) return data.substr(0, line);
    return data;
  }

  char sign_at(std::size_t at) const { return at < view_.size() && (view_[at] == '-' || view_[at] == '+') ? view_[at] : ' '; }

  /// Ends a tag or a part of the text; a tag that follows on the same line may still strip what is before it.
  void end_at(std::size_t to) {
    begins_line_ = view_[to - 1] == '\n';
    move_to(to);
  }

  void read_tag(std::size_t tag) {
    const char kind = view_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(before_tag(view_.substr(at_, tag - at_), sign, kind == '{'));
    const std::size_t inner = tag + 2 + (sign == ' ' ? 0 : 1);
    if (kind == '%') {
      if (const auto body = raw_body(inner)) return read_raw(*body);
    }
    move_to(inner);
    if (kind == '#') {
      read_comment();
    } else {
      read_code(kind == '%');
    }
  }

  void read_comment() {
    const std::size_t end = view_.find("#}", at_);
    if (end == std::string_view::npos) fail("a comment {# is not closed");
    const char sign = end > at_ ? sign_at(end - 1) : ' ';
    end_at(after_end(end + 2, sign));
  }

  /// The byte after a tag's end, at `at`, and the white space that it takes.
  std::size_t after_end(std::size_t at, char sign) const {
    if (sign == '-') return after_space(view_, at);
    return sign != '+' && at < view_.size() && view_[at] == '\n' ? at + 1 : at;
  }

  /// Where the body of {% raw %} begins, when that is the tag whose name may begin at `at`.
  std::optional<std::size_t> raw_body(std::size_t at) const {
    at = after_space(view_, at);
    if (!view_.substr(at).starts_with("raw")) return std::nullopt;
    at = after_space(view_, at + 3);
    if (view_.substr(at).starts_with("-%}")) return after_space(view_, at + 3);
    if (view_.substr(at).starts_with("%}")) return at + 2;
    return std::nullopt;
  }

  void read_raw(std::size_t body) {
    end_at(body);
    for (std::size_t tag = view_.find("{%", at_); tag != std::string_view::npos; tag = view_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t at = after_space(view_, tag + 2 + (sign == ' ' ? 0 : 1));
      if (!view_.substr(at).starts_with("endraw")) continue;
      at = after_space(view_, at + 6);
      const char end_sign = sign_at(at);
      if (end_sign != ' ') ++at;
      if (!view_.substr(at).starts_with("%}")) continue;
      add_data(before_tag(view_.substr(at_, tag - at_), sign, false));
      return end_at(after_end(at + 2, end_sign));
    }
    fail("{% raw %} is not closed");
  }

  void read_code(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    add(is_block ? Kind::kBlockBegin : Kind::kPrintBegin);
    std::string open;  // brackets that wait for their other half
    while (at_ < view_.size()) {
      if (open.empty()) {
        const char sign = sign_at(at_);
        const std::size_t end = at_ + (sign == '-' || (sign == '+' && is_block) ? 1 : 0);
        if (view_.substr(end).starts_with(close)) {
          add(is_block ? Kind::kBlockEnd : Kind::kPrintEnd);
          return end_at(is_block || sign == '-' ? after_end(end + 2, sign) : end + 2);
        }
      }
      const std::size_t space = after_space(view_, at_);
      if (space > at_) {
        move_to(space);
      } else if (is_digit(view_[at_])) {
        read_number();
      } else if (begins_name(view_[at_])) {
        std::size_t end = at_;
        while (end < view_.size() && continues_name(view_[end])) ++end;
        add(Kind::kName, std::string(view_.substr(at_, end - at_)));
        move_to(end);
      } else if (view_[at_] == '\'' || view_[at_] == '"') {
        read_text();
      } else {
        read_operator(open);
      }
    }
    fail(cat("a tag ", is_block ? "{%" : "{{", " is not closed"));
  }

  void read_operator(std::string& open) {
    constexpr std::array kLong{"//"sv, "**"sv, "=="sv, "!="sv, ">="sv, "<="sv};
    std::size_t size = 1;
    if (std::any_of(kLong.begin(), kLong.end(), [&](std::string_view two) { return at_is(two); })) size = 2;
    const char c = view_[at_];
    if (size == 1 && "+-/*%~[](){}><=.:|,;"sv.find(c) == std::string_view::npos) {
      const auto code = static_cast<unsigned char>(c);
      fail(code < 0x20 || code >= 0x7F ? "found a character outside ASCII where code is expected"
                                       : cat("found \"", c, "\" where code is expected"));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(cat("found \"", c, "\" without its other half"));
      open.pop_back();
    }
    add(Kind::kOperator, std::string(view_.substr(at_, size)));
    move_to(at_ + size);
  }

  void read_number() {
    // Digits may be grouped by "_"; a number after a dot is an index ("x.0"), so it has no fraction.
    const bool after_dot =
        !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == "." && view_[at_ - 1] == '.';
    std::string digits;
    std::size_t end = at_;
    const auto take_digits = [&] {
      while (end < view_.size() && (is_digit(view_[end]) || (view_[end] == '_' && end + 1 < view_.size() && is_digit(view_[end + 1])))) {
        if (view_[end] != '_') digits += view_[end];
        ++end;
      }
    };
    take_digits();
    bool is_float = false;
    if (!after_dot && end + 1 < view_.size() && view_[end] == '.' && is_digit(view_[end + 1])) {
      is_float = true;
      digits += '.';
      ++end;
      take_digits();
    }
    if (!after_dot && end < view_.size() && (view_[end] == 'e' || view_[end] == 'E')) {
      const std::size_t sign = end + 1 < view_.size() && sign_at(end + 1) != ' ' ? 1 : 0;
      if (end + 1 + sign < view_.size() && is_digit(view_[end + 1 + sign])) {
        is_float = true;
        digits += view_.substr(end, 1 + sign);
        end += 1 + sign;
        take_digits();
      }
    }
    if (end < view_.size() && continues_name(view_[end])) fail("a number in another form than decimal digits is not supported");
    Token& token = add(is_float ? Kind::kFloat : Kind::kInteger);
    if (is_float) {
      token.number = std::strtod(digits.c_str(), nullptr);
      if (!std::isfinite(token.number)) fail("found a number that is too large");
    } else {
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.integer);
      if (error != std::errc() || stop != digits.data() + digits.size()) fail("found a whole number that is too large");
      if (digits.size() > 1 && digits[0] == '0' && token.integer != 0) fail(cat("found the number ", digits, ", which begins with 0"));
    }
    move_to(end);
  }

  /// A text in quotes, with Python's escapes.
  void read_text() {
    const char quote = view_[at_];
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < view_.size() && view_[i] != quote; ++i) {
      if (view_[i] != '\\') {
        value += view_[i];
        continue;
      }
      if (++i == view_.size()) break;
      i = read_escape(i, value);
    }
    if (i >= view_.size()) fail("a text in quotes is not closed");
    add(Kind::kText, std::move(value));
    move_to(i + 1);
  }

  /// Appends the escape whose letter is at `i`; the place of its last byte.
  std::size_t read_escape(std::size_t i, std::string& value) const {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kBytes = "\a\b\f\n\r\t\v\\'\"";
    const char letter = view_[i];
    if (const std::size_t at = kLetters.find(letter); at != std::string_view::npos) {
      value += kBytes[at];
      return i;
    }
    if (letter == '\n') return i;  // joins two lines
    if (letter >= '0' && letter <= '7') {
      std::size_t end = i;
      std::int32_t code = 0;
      while (end < view_.size() && end < i + 3 && view_[end] >= '0' && view_[end] <= '7') code = 8 * code + (view_[end++] - '0');
      append_character(value, code);
      return end - 1;
    }
    const std::size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits > 0) {
      std::uint32_t code = 0;
      const std::string_view hex = view_.substr(i + 1, digits);
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      if (error != std::errc() || hex.size() != digits || end != hex.data() + digits || code > 0x10FFFF ||
          (code >= 0xD800 && code < 0xE000))
        fail(cat("found the escape \"\\", letter, "\" without the ", digits, " hexadecimal digits of a character"));
      append_character(value, static_cast<std::int32_t>(code));
      return i + digits;
    }
    if (letter == 'N' || static_cast<unsigned char>(letter) >= 0x80) fail("this escape in a text is not supported");
    value += '\\';
    value += letter;
    return i;
  }

  std::string text_;
  std::string_view view_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::int32_t line_ = 1;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& text, const std::string& source) {
  return Lexer(text, source).run();
}

}  // namespace sluice::formats::jinja
