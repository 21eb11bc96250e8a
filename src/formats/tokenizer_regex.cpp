#include "formats/tokenizer_regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "formats/tokenizer_unicode.hpp"

namespace sluice::formats {
namespace {

constexpr std::size_t kLongestPattern = 64 << 10;
constexpr std::size_t kDeepestGroup = 100;
constexpr std::uint32_t kMatchLimit = 50'000'000;  // steps of one match; a long run of blanks takes one a character
constexpr std::size_t kJitStackStart = 64 << 10;   // bytes
constexpr std::size_t kJitStackLimit = 256 << 20;  // bytes

/// Oniguruma's \w inside of a class: Alphabetic, marks, decimal digits and connectors. Outside of one it takes six superscripts and
/// fractions of Latin-1 too.
constexpr std::string_view kWordMembers =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
constexpr std::string_view kMoreWordMembers = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

std::string code_text(char32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "\\x{%X}", static_cast<unsigned>(code));
  return text.data();
}

/// Rewrites one pattern. Everything it doesn't know is refused.
class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& source, const std::string& where)
      : pattern_(pattern), source_(source), where_(where) {}

  std::string run() {
    if (pattern_.size() > kLongestPattern) refuse(cat("a pattern of ", pattern_.size(), " bytes (at most ", kLongestPattern, ")"));
    caseless_.push_back(false);
    if (take("(?i)")) {
      caseless_.back() = true;
      out_ += "(?i)";
    }
    while (at_ < pattern_.size()) item();
    if (caseless_.size() > 1) damaged("a group is never closed");
    return std::move(out_);
  }

 private:
  enum class After { kNothing, kAtom, kAssertion, kQuantifier };

  [[noreturn]] void refuse(const std::string& what) const {
    throw RequestError(cat(source_, ": ", where_, ": the regular expression holds ", what, " at byte ", at_, ", which is not supported"));
  }
  [[noreturn]] void damaged(const std::string& what) const {
    throw FormatError(source_, cat(where_, ": not a regular expression: ", what, " (byte ", at_, ")"));
  }

  bool take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

  void item() {
    const char c = peek();
    switch (c) {
      case '(':
        return open();
      case ')':
        if (caseless_.size() == 1) damaged("a group is closed that was never opened");
        ++at_;
        out_ += ')';
        caseless_.pop_back();
        after_ = assertion_.back() ? After::kAssertion : After::kAtom;
        assertion_.pop_back();
        previous_letter_ = 0;
        return;
      case '|':
        ++at_;
        out_ += '|';
        after_ = After::kNothing;
        previous_letter_ = 0;
        return;
      case '*':
      case '+':
      case '?':
        return simple_quantifier();
      case '{':
        if (interval()) return;
        return literal(take_char());
      case '^':
      case '$':
        ++at_;
        out_ += c;
        after_ = After::kAssertion;
        return;
      case '.':
        ++at_;
        out_ += c;
        return atom();
      case '[':
        return char_class();
      case '\\':
        return escape();
      default:
        return literal(take_char());
    }
  }

  void atom() {
    after_ = After::kAtom;
    previous_letter_ = 0;
  }

  char32_t take_char() {
    const Utf8Char c = utf8_at(pattern_, at_);
    at_ += c.bytes;
    return c.code;
  }

  void open() {
    if (caseless_.size() > kDeepestGroup) refuse(cat("groups nested more than ", kDeepestGroup, " deep"));
    bool caseless = caseless_.back();
    bool assertion = false;
    if (take("(?:") || take("(?i:") || take("(?-i:") || take("(?m:")) {
      const char kind = pattern_[at_ - 2];
      if (kind == '?') {
        out_ += "(?:";
      } else if (kind == 'm') {
        out_ += "(?s:";  // what Ruby calls multi-line: the dot matches line feeds
      } else {
        caseless = pattern_[at_ - 3] != '-';
        out_ += caseless ? "(?i:" : "(?-i:";
      }
    } else if (take("(?=") || take("(?!")) {
      assertion = true;
      out_ += pattern_.substr(at_ - 3, 3);
    } else if (take("(?<=") || take("(?<!")) {
      assertion = true;
      out_ += pattern_.substr(at_ - 4, 4);
    } else if (take("(?>")) {
      out_ += "(?>";
    } else if (pattern_.substr(at_, 2) == "(?") {
      refuse(in_quotes(pattern_.substr(at_, 3)));
    } else {
      ++at_;
      out_ += "(?:";  // nothing refers to what a group caught
    }
    caseless_.push_back(caseless);
    assertion_.push_back(assertion);
    after_ = After::kNothing;
    previous_letter_ = 0;
  }

  void check_quantifiable(const std::string& what) const {
    if (after_ == After::kNothing) damaged(cat("nothing stands before ", what));
    if (after_ != After::kAtom) refuse(cat(what, " behind a quantifier or an assertion"));
  }

  void simple_quantifier() {
    check_quantifiable(std::string(1, peek()));
    out_ += pattern_[at_++];
    if (peek() == '?' || peek() == '+') out_ += pattern_[at_++];
    after_ = After::kQuantifier;
    previous_letter_ = 0;
  }

  /// {n}, {n,}, {,m}, {n,m}, lazy or not; false (and nothing taken) where the brace is a letter like any other.
  bool interval() {
    std::size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      const std::size_t begin = i;
      std::uint32_t value = 0;
      while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9' && i - begin < 6) {
        value = value * 10 + static_cast<std::uint32_t>(pattern_[i++] - '0');
      }
      return i == begin ? std::nullopt : std::optional(value);
    };
    const std::optional<std::uint32_t> low = number();
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) ++i;
    const std::optional<std::uint32_t> high = comma ? number() : low;
    if (i >= pattern_.size() || pattern_[i] != '}' || (!low && !high)) return false;
    const std::string shown(pattern_.substr(at_, i + 1 - at_));
    check_quantifiable(shown);
    if (caseless_.back()) refuse(cat(shown, " where case is ignored"));
    if (low.value_or(0) > 1000 || high.value_or(0) > 1000) refuse(cat(shown, " (at most 1000 times)"));
    if (high && low.value_or(0) > *high) refuse(shown);
    at_ = i + 1;
    out_ += cat('{', low.value_or(0));
    if (comma) out_ += ',';
    if (comma && high) out_ += cat(*high);
    out_ += '}';
    // Ruby reads a{2}? as (a{2})? and a{1,2}+ as (a{1,2})+.
    if (peek() == '+' || (peek() == '?' && !comma)) refuse(cat(shown, peek()));
    if (peek() == '?') out_ += pattern_[at_++];
    after_ = After::kQuantifier;
    previous_letter_ = 0;
    return true;
  }

  void literal(char32_t code) {
    if (caseless_.back()) check_caseless(code);
    note_range(code, code);
    const bool plain = (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
    out_ += plain ? std::string(1, static_cast<char>(code)) : code_text(code);
    after_ = After::kAtom;
    previous_letter_ = code;
  }

  /// Oniguruma folds "ss" with U+00DF and the like, and classes otherwise than PCRE2; what is left is alike in both.
  void check_caseless(char32_t code) const {
    if (code >= 0x80) refuse("a character beyond ASCII where case is ignored");
    const auto lower = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c + 0x20 : c; };
    const char32_t a = lower(previous_letter_);
    const char32_t b = lower(code);
    if ((a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'))) {
      refuse(cat("\"", static_cast<char>(a), static_cast<char>(b), "\" where case is ignored"));
    }
  }

  /// A character or range that stands in the pattern itself must not part a newer character from what stands in for it.
  void note_range(char32_t first, char32_t last) const {
    if (last < 0x80) return;
    const auto inside = [&](char32_t c) { return c >= first && c <= last; };
    for (const StandIn* row = stand_ins_begin(); row != stand_ins_end(); ++row) {
      const bool cut = row->first <= last && row->last >= first && !(inside(row->first) && inside(row->last));
      if (cut || inside(row->first) != inside(row->instead)) {
        refuse(cat("a range with only one of ", code_text(row->first), " and ", code_text(row->instead)));
      }
    }
  }

  /// \p{..} behind its backslash; appends it in PCRE2's spelling.
  void property(bool negated) {
    if (caseless_.back()) refuse("a property where case is ignored");
    if (!take("{")) refuse(cat("\\", negated ? 'P' : 'p', " without braces"));
    if (take("^")) negated = !negated;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) damaged("\\p{ is never closed");
    std::string name;
    for (const char c : pattern_.substr(at_, end - at_)) {
      if (c == ' ' || c == '_' || c == '-') continue;
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 0x20 : c);
    }
    static constexpr auto kCategories = std::to_array<std::string_view>(
        {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
         "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"});
    static constexpr auto kLongNames = std::to_array<std::pair<std::string_view, std::string_view>>(
        {{"letter", "L"}, {"mark", "M"}, {"number", "N"}, {"punctuation", "P"}, {"symbol", "S"}, {"separator", "Z"}, {"other", "C"}});
    // Those whose members stand_in() keeps apart.
    static constexpr auto kScripts =
        std::to_array<std::string_view>({"Bengali", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai"});
    const auto same = [&](std::string_view known) {
      return known.size() == name.size() && std::equal(known.begin(), known.end(), name.begin(),
                                                       [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 0x20 : a) == b; });
    };
    std::string spelt;
    for (const std::string_view each : kCategories) {
      if (same(each)) spelt = each;
    }
    for (const auto& [known, category] : kLongNames) {
      if (same(known)) spelt = category;
    }
    for (const std::string_view each : kScripts) {
      // Since 10.40 a bare name means the script's extensions too.
      if (same(each)) spelt = (PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "") + std::string(each);
    }
    if (spelt.empty()) refuse(cat("\\p with ", in_quotes(pattern_.substr(at_, end - at_))));
    at_ = end + 1;
    out_ += cat('\\', negated ? 'P' : 'p', '{', spelt, '}');
  }

  /// The character that an escape behind its backslash names; absent (and nothing taken) where it names a set or something else.
  std::optional<char32_t> escaped_char() {
    const char c = peek();
    switch (c) {
      case 't':
        return ++at_, U'\t';
      case 'n':
        return ++at_, U'\n';
      case 'v':
        return ++at_, U'\v';
      case 'f':
        return ++at_, U'\f';
      case 'r':
        return ++at_, U'\r';
      case 'a':
        return ++at_, U'\a';
      case 'e':
        return ++at_, char32_t{0x1B};
      case 'u':
        ++at_;
        return hexadecimal(4, 4);
      case 'x': {
        ++at_;
        if (!take("{")) {
          const char32_t code = hexadecimal(1, 2);
          if (code >= 0x80) refuse("a byte that is no character of its own");
          return code;
        }
        const char32_t code = hexadecimal(1, 6);
        if (!take("}")) damaged("\\x{ is never closed");
        return code;
      }
      default:
        break;
    }
    const bool is_letter_or_digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (at_ >= pattern_.size()) damaged("it ends with a backslash");
    if (is_letter_or_digit) return std::nullopt;
    return take_char();
  }

  char32_t hexadecimal(std::size_t least, std::size_t most) {
    char32_t value = 0;
    std::size_t digits = 0;
    for (; digits < most && at_ < pattern_.size(); ++digits, ++at_) {
      const char c = pattern_[at_];
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if (c >= 'A' && c <= 'F') {
        value = value * 16 + static_cast<char32_t>(c - 'A' + 10);
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + static_cast<char32_t>(c - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) damaged("a character by its number");
    return value;
  }

  /// A set that an escape behind its backslash names, for inside or outside of a class; false (and nothing taken) where it names none.
  bool escaped_set(bool in_class) {
    const char c = peek();
    switch (c) {
      case 's':
      case 'S':
      case 'd':
      case 'D':
        ++at_;
        out_ += cat('\\', c);
        return true;
      case 'w':
        ++at_;
        out_ += in_class ? std::string(kWordMembers) : cat('[', kWordMembers, kMoreWordMembers, ']');
        return true;
      case 'W':
        if (in_class) refuse("\\W inside of a class");
        ++at_;
        out_ += cat("[^", kWordMembers, kMoreWordMembers, ']');
        return true;
      case 'p':
      case 'P':
        ++at_;
        property(c == 'P');
        return true;
      default:
        return false;
    }
  }

  void escape() {
    ++at_;
    if (const std::optional<char32_t> code = escaped_char()) return literal(*code);
    if (escaped_set(false)) return atom();
    const char c = peek();
    const std::string word = cat('[', kWordMembers, kMoreWordMembers, ']');
    if (c == 'b') {
      out_ += cat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))");
    } else if (c == 'B') {
      out_ += cat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
    } else if (c == 'A' || c == 'z' || c == 'Z') {
      out_ += cat('\\', c);
    } else {
      refuse(cat("\\", c));
    }
    ++at_;
    after_ = After::kAssertion;
    previous_letter_ = 0;
  }

  void char_class() {
    ++at_;
    out_ += '[';
    if (take("^")) out_ += '^';
    if (peek() == ']') refuse("a class that begins with ]");
    bool any = false;
    while (true) {
      if (at_ >= pattern_.size()) damaged("a class is never closed");
      if (take("]")) break;
      if (peek() == '[') refuse("a class inside of a class");
      if (pattern_.substr(at_, 2) == "&&") refuse("an intersection of classes");
      const std::optional<char32_t> first = class_char();
      if (first) {
        char32_t last = *first;
        if (peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
          ++at_;
          if (peek() == '[') refuse("a class inside of a class");
          const std::optional<char32_t> end = class_char();
          if (!end) refuse("a range that ends with a set");
          last = *end;
          if (last < *first) damaged("a range that runs backwards");
          if (*first == '-') refuse("a range that begins with -");
        }
        if (caseless_.back() && last >= 0x80) refuse("a class beyond ASCII where case is ignored");
        note_range(*first, last);
        out_ += code_text(*first);
        if (last != *first) out_ += cat('-', code_text(last));
      } else if (peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        refuse("a - behind a set");
      }
      any = true;
    }
    if (!any) damaged("an empty class");
    out_ += ']';
    atom();
  }

  /// One character of a class; absent where a set stood there, which is then written already.
  std::optional<char32_t> class_char() {
    if (!take("\\")) return take_char();
    if (const std::optional<char32_t> code = escaped_char()) return code;
    if (!escaped_set(true)) refuse(cat("\\", peek(), " inside of a class"));
    return std::nullopt;
  }

  std::string_view pattern_;
  const std::string& source_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<bool> caseless_;   // of the open groups, the whole pattern first
  std::vector<bool> assertion_;  // whether an open group is a look-around
  After after_ = After::kNothing;
  char32_t previous_letter_ = 0;  // the literal just before, 0 where none is
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct ContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct DataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct StackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

}  // namespace

struct RegexScratch::Impl {
  std::unique_ptr<pcre2_match_data, DataFree> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, ContextFree> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, StackFree> stack;
  std::string substitute;  // the text with its stand-ins
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {
  SLUICE_CHECK(impl_->data && impl_->context, "PCRE2 gave no memory");
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
}
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

struct TokenizerRegex::Impl {
  std::unique_ptr<pcre2_code, CodeFree> code;
  bool is_compiled_to_machine_code = false;
  std::string source;
  std::string where;
};

TokenizerRegex::TokenizerRegex(const std::string& pattern, const std::string& source, const std::string& where)
    : impl_(std::make_unique<Impl>()) {
  const std::string rewritten = Rewriter(pattern, source, where).run();
  impl_->source = source;
  impl_->where = where;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(pcre2_compile_context_create(nullptr),
                                                                                              &pcre2_compile_context_free);
  SLUICE_CHECK(context, "PCRE2 gave no memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                  &error, &place, context.get()));
  if (!impl_->code) throw FormatError(source, cat(where, ": not a regular expression that PCRE2 takes: ", pcre2_message(error)));
  impl_->is_compiled_to_machine_code = pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}
TokenizerRegex::TokenizerRegex(TokenizerRegex&&) noexcept = default;
TokenizerRegex& TokenizerRegex::operator=(TokenizerRegex&&) noexcept = default;
TokenizerRegex::~TokenizerRegex() = default;

void TokenizerRegex::find_all(std::string_view text, RegexScratch& scratch, std::vector<ByteRange>& matches) const {
  matches.clear();
  RegexScratch::Impl& work = *scratch.impl_;
  // All characters with stand-ins have three bytes or four, and a stand-in has as many as its character.
  bool substituted = false;
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {
      ++i;
      continue;
    }
    const Utf8Char c = utf8_at(text, i);
    const char32_t instead = stand_in(c.code);
    if (instead != c.code) {
      if (!substituted) work.substitute.assign(text);
      substituted = true;
      std::string bytes;
      append_utf8(instead, bytes);
      work.substitute.replace(i, c.bytes, bytes);
    }
    i += c.bytes;
  }
  if (substituted) text = work.substitute;

  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](std::size_t from) {
    return impl_->is_compiled_to_machine_code
               ? pcre2_jit_match(impl_->code.get(), subject, text.size(), from, 0, work.data.get(), work.context.get())
               : pcre2_match(impl_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, work.data.get(), work.context.get());
  };
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    int found = match(from);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !work.stack) {
      work.stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr));
      SLUICE_CHECK(work.stack, "PCRE2 gave no memory");
      pcre2_jit_stack_assign(work.context.get(), nullptr, work.stack.get());
      found = match(from);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw RequestError(cat(impl_->source, ": ", impl_->where, ": the regular expression fails at byte ", from, " of a text of ",
                             text.size(), " bytes: ", pcre2_message(found)));
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(work.data.get());
    const ByteRange range{place[0], place[1]};
    if (range.begin == range.end && range.end == last_end) {  // an empty match just behind the last one doesn't count
      if (from >= text.size()) break;
      from += utf8_bytes(text[from]);
      continue;
    }
    matches.push_back(range);
    from = range.end;
    last_end = range.end;
  }
}

}  // namespace sluice::formats
