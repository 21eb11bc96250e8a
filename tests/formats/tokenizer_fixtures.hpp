#pragma once
// The tokenizers of tests/golden/tokenizers (make_tokenizers.py says what their files hold), and small ones written in a test.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer.hpp"

namespace sluice::formats {

inline std::string golden_tokenizer(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/golden/tokenizers/" + name;
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("no file " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Reads LEB128 numbers and texts.
class GoldenReader {
 public:
  explicit GoldenReader(const std::string& path) : bytes_(file_bytes(path)) {}
  bool is_done() const { return at_ == bytes_.size(); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string text() {
    const std::size_t size = number();
    std::string text = bytes_.substr(at_, size);
    at_ += size;
    return text;
  }
  std::vector<std::int32_t> ids() {
    std::vector<std::int32_t> ids(number());
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(number());
    return ids;
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

inline std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (GoldenReader reader(golden_tokenizer("texts.bin")); !reader.is_done();) texts.push_back(reader.text());
  return texts;
}

inline std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace sluice::formats
