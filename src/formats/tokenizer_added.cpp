#include "formats/tokenizer_added.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "formats/tokenizer_unicode.hpp"

namespace sluice::formats {
namespace {

/// Where the character before byte `end` begins.
std::size_t before(std::string_view text, std::size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u);
  return end;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8_at(text, before(text, text.size())).code);
}
bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8_at(text, 0).code);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, const std::vector<std::string>& patterns) : tokens_(tokens) {
  SLUICE_CHECK(tokens.size() == patterns.size(), tokens.size(), " tokens, ", patterns.size(), " patterns");
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    SLUICE_CHECK(!patterns[i].empty(), "added token ", i, " has no text");
    std::uint32_t node = 0;
    for (const char c : patterns[i]) {
      auto& children = nodes_[node].children;
      const auto at =
          std::lower_bound(children.begin(), children.end(), c, [](const auto& each, char wanted) { return each.first < wanted; });
      if (at != children.end() && at->first == c) {
        node = at->second;
        continue;
      }
      const auto created = static_cast<std::uint32_t>(nodes_.size());
      children.insert(at, {c, created});
      nodes_.emplace_back();
      node = created;
    }
    SLUICE_CHECK(nodes_[node].token < 0, "two added tokens look like ", patterns[i]);
    nodes_[node].token = static_cast<std::int32_t>(i);
    begins_[static_cast<unsigned char>(patterns[i][0])] = true;
  }
}

const std::uint32_t* AddedTokenFinder::child(std::uint32_t node, char c) const {
  const auto& children = nodes_[node].children;
  const auto at = std::lower_bound(children.begin(), children.end(), c, [](const auto& each, char wanted) { return each.first < wanted; });
  return at != children.end() && at->first == c ? &at->second : nullptr;
}

std::vector<AddedPart> AddedTokenFinder::split(std::string_view text) const {
  std::vector<AddedPart> parts;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    std::int32_t longest = -1;
    std::size_t end = at;
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      const std::uint32_t* next = child(node, text[i]);
      if (next == nullptr) break;
      node = *next;
      if (nodes_[node].token < 0) continue;
      longest = nodes_[node].token;
      end = i + 1;
    }
    if (longest < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(longest)];
    std::size_t start = at;
    std::size_t stop = end;
    at = end;  // what follows begins behind the token, also where the token takes the white space there
    if (token.single_word && (ends_with_word(text.substr(0, start)) || begins_with_word(text.substr(stop)))) continue;
    if (token.lstrip) {
      while (start > done) {
        const std::size_t previous = before(text, start);
        if (!is_white_space(utf8_at(text, previous).code)) break;
        start = previous;
      }
      start = std::max(start, done);
    }
    if (token.rstrip) {
      while (stop < text.size()) {
        const Utf8Char c = utf8_at(text, stop);
        if (!is_white_space(c.code)) break;
        stop += c.bytes;
      }
    }
    if (done < start) parts.push_back({done, start, -1});
    parts.push_back({start, stop, longest});
    done = stop;
  }
  if (done != text.size()) parts.push_back({done, text.size(), -1});
  return parts;
}

}  // namespace sluice::formats
