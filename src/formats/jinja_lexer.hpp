#pragma once
// The pieces of a template's text, with Jinja's rules of white space: trim_blocks and lstrip_blocks on, as transformers has them.
// Source of the rules: Jinja 3.1, jinja2/lexer.py.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::formats::jinja {

struct Token {
  enum class Kind : std::uint8_t { kData, kPrintBegin, kPrintEnd, kBlockBegin, kBlockEnd, kName, kText, kInteger, kFloat, kOperator, kEnd };
  Kind kind = Kind::kEnd;
  std::int32_t line = 1;
  std::string text;  // of kText: without quotes and escapes
  std::int64_t integer = 0;
  double number = 0;
};

/// All of them, kEnd last. Throws RequestError "SOURCE:LINE: ...".
std::vector<Token> tokens_of(const std::string& text, const std::string& source);

}  // namespace sluice::formats::jinja
