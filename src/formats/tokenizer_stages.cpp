#include "formats/tokenizer_stages.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "formats/bpe.hpp"

namespace sluice::formats {
namespace {

using Segment = StageScratch::Segment;

/// `matches` and what lies between them, over all of `text`.
void cut_at_matches(std::string_view text, const std::vector<ByteRange>& matches, bool inverts, std::vector<Segment>& segments) {
  segments.clear();
  std::size_t done = 0;
  for (const ByteRange& match : matches) {
    if (done != match.begin) segments.push_back({{done, match.begin}, inverts});
    segments.push_back({match, !inverts});
    done = match.end;
  }
  if (done != text.size()) segments.push_back({{done, text.size()}, inverts});
}

/// Every character for which `is_delimiter` holds is a match of its own.
template <typename Predicate>
void cut_at_characters(std::string_view text, Predicate is_delimiter, std::vector<Segment>& segments) {
  segments.clear();
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (is_delimiter(c.code)) {
      if (done < i) segments.push_back({{done, i}, false});
      done = i + c.bytes;
      segments.push_back({{i, done}, true});
    }
    i += c.bytes;
  }
  if (done < text.size()) segments.push_back({{done, text.size()}, false});
}

/// Appends the pieces that a behaviour makes of the segments, `shift` further to the right; empty ones are left out.
void apply_behavior(const std::vector<Segment>& segments, SplitBehavior behavior, std::size_t shift, std::vector<ByteRange>& out) {
  const auto emit = [&](std::size_t begin, std::size_t end) {
    if (begin < end) out.push_back({begin + shift, end + shift});
  };
  const std::size_t first = out.size();
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Segment& each : segments) emit(each.range.begin, each.range.end);
      return;
    case SplitBehavior::kRemoved:
      for (const Segment& each : segments) {
        if (!each.is_match) emit(each.range.begin, each.range.end);
      }
      return;
    case SplitBehavior::kContiguous:
      for (const Segment& each : segments) {
        if (each.is_match == previous && out.size() > first) {
          out.back().end = each.range.end + shift;
        } else {
          out.push_back({each.range.begin + shift, each.range.end + shift});
        }
        previous = each.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Segment& each : segments) {
        if (each.is_match && !previous && out.size() > first) {
          out.back().end = each.range.end + shift;
        } else {
          out.push_back({each.range.begin + shift, each.range.end + shift});
        }
        previous = each.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto each = segments.rbegin(); each != segments.rend(); ++each) {
        if (each->is_match && !previous && out.size() > first) {
          out.back().begin = each->range.begin + shift;
        } else {
          out.push_back({each->range.begin + shift, each->range.end + shift});
        }
        previous = each->is_match;
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      break;
  }
  out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
                           [](const ByteRange& range) { return range.begin >= range.end; }),
            out.end());
}

/// Cuts each piece by `cut(text of the piece, segments)` and the behaviour.
template <typename Cut>
void split_pieces(Pieces& pieces, StageScratch& scratch, SplitBehavior behavior, Cut cut) {
  scratch.ranges.clear();
  for (const ByteRange& piece : pieces.ranges) {
    cut(std::string_view(pieces.section.text).substr(piece.begin, piece.end - piece.begin), scratch.segments);
    apply_behavior(scratch.segments, behavior, piece.begin, scratch.ranges);
  }
  pieces.ranges.swap(scratch.ranges);
}

void split_by_pattern(const Pattern& pattern, bool inverts, SplitBehavior behavior, Pieces& pieces, StageScratch& scratch) {
  split_pieces(pieces, scratch, behavior, [&](std::string_view text, std::vector<Segment>& segments) {
    find_pattern(pattern, text, scratch.regex, scratch.matches);
    cut_at_matches(text, scratch.matches, inverts, segments);
  });
}

/// Writes every piece anew by `write(text of the piece, comes from the start, out)`, one behind the other.
template <typename Write>
void rewrite_pieces(Pieces& pieces, Write write) {
  Section rewritten;
  rewritten.text.reserve(pieces.section.text.size());
  for (ByteRange& piece : pieces.ranges) {
    const std::size_t begin = rewritten.text.size();
    const bool from_start = piece.begin < pieces.section.from_start;
    write(std::string_view(pieces.section.text).substr(piece.begin, piece.end - piece.begin), from_start, rewritten.text);
    piece = {begin, rewritten.text.size()};
    if (from_start) rewritten.from_start = begin + 1;
  }
  pieces.section = std::move(rewritten);
}

/// Rust's Regex "\w+|[^\w\s]+": runs of word characters and runs of others, without white space.
void split_words(Pieces& pieces, StageScratch& scratch) {
  enum class Class { kSpace, kWord, kOther };
  const auto class_of = [](char32_t code) { return is_word(code) ? Class::kWord : is_white_space(code) ? Class::kSpace : Class::kOther; };
  scratch.ranges.clear();
  for (const ByteRange& piece : pieces.ranges) {
    std::size_t begin = piece.begin;
    Class current = Class::kSpace;
    for (std::size_t i = piece.begin; i < piece.end;) {
      const Utf8Char c = utf8_at(pieces.section.text, i);
      const Class next = class_of(c.code);
      if (next != current) {
        if (current != Class::kSpace) scratch.ranges.push_back({begin, i});
        begin = i;
        current = next;
      }
      i += c.bytes;
    }
    if (current != Class::kSpace) scratch.ranges.push_back({begin, piece.end});
  }
  pieces.ranges.swap(scratch.ranges);
}

void byte_level(const PreTokenizer& stage, bool writes_bytes, Pieces& pieces, StageScratch& scratch) {
  const std::string& text = pieces.section.text;
  if (stage.adds_prefix_space &&
      std::any_of(pieces.ranges.begin(), pieces.ranges.end(), [&](const ByteRange& piece) { return text[piece.begin] != ' '; })) {
    rewrite_pieces(pieces, [](std::string_view piece, bool, std::string& out) {
      if (piece[0] != ' ') out += ' ';
      out += piece;
    });
  }
  if (stage.pattern.regex) split_by_pattern(stage.pattern, false, SplitBehavior::kIsolated, pieces, scratch);
  if (!writes_bytes) return;
  rewrite_pieces(pieces, [](std::string_view piece, bool, std::string& out) {
    for (const char c : piece) out += byte_level_character(static_cast<unsigned char>(c));
  });
}

void metaspace(const PreTokenizer& stage, Pieces& pieces, StageScratch& scratch) {
  rewrite_pieces(pieces, [&](std::string_view piece, bool from_start, std::string& out) {
    const bool prepends = stage.scheme == PrependScheme::kAlways || (stage.scheme == PrependScheme::kFirst && from_start);
    if (prepends && piece[0] != ' ' && !piece.starts_with(stage.replacement)) out += stage.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += stage.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!stage.splits) return;
  split_by_pattern({.literal = stage.replacement, .regex = nullptr}, false, SplitBehavior::kMergedWithNext, pieces, scratch);
}

std::optional<unsigned char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    // Rust's from_str_radix takes a leading plus.
    if (c == '+' && value == 0 && &c == token.data() + 3) continue;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<unsigned char>(value);
}

std::string replaced_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    out += text.substr(done, at - done);
    out += by;
    done = at + what.size();
  }
  out += text.substr(done);
  return out;
}

}  // namespace

void find_pattern(const Pattern& pattern, std::string_view text, RegexScratch& scratch, std::vector<ByteRange>& matches) {
  if (pattern.regex) return pattern.regex->find_all(text, scratch, matches);
  matches.clear();
  for (std::size_t at = text.find(pattern.literal); at != std::string_view::npos;) {
    matches.push_back({at, at + pattern.literal.size()});
    at = text.find(pattern.literal, at + pattern.literal.size());
  }
}

void normalize(const Normalizer& normalizer, Section& section, StageScratch& scratch) {
  const std::string_view text = section.text;
  switch (normalizer.kind) {
    case Normalizer::Kind::kForm:
      section.text = normalized(text, normalizer.form);
      return;
    case Normalizer::Kind::kLowercase: {
      // Whole characters come from the start, so their lower cases do.
      const std::size_t from_start = lower_cased(text.substr(0, section.from_start)).size();
      section.text = lower_cased(text);
      section.from_start = from_start;
      return;
    }
    case Normalizer::Kind::kPrepend:
      if (text.empty()) return;
      if (section.from_start > 0) section.from_start += normalizer.content.size();
      section.text.insert(0, normalizer.content);
      return;
    case Normalizer::Kind::kStrip: {
      std::size_t begin = 0;
      std::size_t end = text.size();
      while (normalizer.strips_left && begin < end && is_white_space(utf8_at(text, begin).code)) begin += utf8_bytes(text[begin]);
      while (normalizer.strips_right && begin < end) {
        std::size_t last = end - 1;
        while ((static_cast<unsigned char>(text[last]) & 0xC0u) == 0x80u) --last;
        if (!is_white_space(utf8_at(text, last).code)) break;
        end = last;
      }
      section.from_start = section.from_start > begin ? std::min(section.from_start, end) - begin : 0;
      section.text = std::string(text.substr(begin, end - begin));
      return;
    }
    case Normalizer::Kind::kReplace: {
      find_pattern(normalizer.pattern, text, scratch.regex, scratch.matches);
      if (scratch.matches.empty()) return;
      Section out;
      out.text.reserve(text.size());
      const auto keep = [&](std::size_t begin, std::size_t end) {
        out.text += text.substr(begin, end - begin);
        if (begin < section.from_start) out.from_start += std::min(end, section.from_start) - begin;
      };
      std::size_t done = 0;
      for (const ByteRange& match : scratch.matches) {
        keep(done, match.begin);
        out.text += normalizer.content;
        // What is written in comes from where the character before its end did.
        if (match.end == 0 || match.end - 1 < section.from_start) out.from_start += normalizer.content.size();
        done = match.end;
      }
      keep(done, text.size());
      section = std::move(out);
      return;
    }
  }
}

void pre_tokenize(const PreTokenizer& stage, bool writes_bytes, Pieces& pieces, StageScratch& scratch) {
  switch (stage.kind) {
    case PreTokenizer::Kind::kByteLevel:
      return byte_level(stage, writes_bytes, pieces, scratch);
    case PreTokenizer::Kind::kSplit:
      return split_by_pattern(stage.pattern, stage.inverts, stage.behavior, pieces, scratch);
    case PreTokenizer::Kind::kDigits:
      return split_pieces(pieces, scratch, stage.behavior,
                          [](std::string_view text, std::vector<Segment>& segments) { cut_at_characters(text, is_numeric, segments); });
    case PreTokenizer::Kind::kPunctuation:
      return split_pieces(pieces, scratch, stage.behavior,
                          [](std::string_view text, std::vector<Segment>& segments) { cut_at_characters(text, is_punctuation, segments); });
    case PreTokenizer::Kind::kWhitespaceSplit:
      return split_pieces(pieces, scratch, SplitBehavior::kRemoved,
                          [](std::string_view text, std::vector<Segment>& segments) { cut_at_characters(text, is_white_space, segments); });
    case PreTokenizer::Kind::kWhitespace:
      return split_words(pieces, scratch);
    case PreTokenizer::Kind::kMetaspace:
      return metaspace(stage, pieces, scratch);
  }
}

void decode_tokens(const Decoder& decoder, std::vector<std::string>& tokens) {
  switch (decoder.kind) {
    case Decoder::Kind::kByteLevel: {
      std::string bytes;
      for (const std::string& token : tokens) bytes += byte_level_bytes(token).value_or(token);
      tokens.assign(1, bytes);
      return;
    }
    case Decoder::Kind::kReplace:
      for (std::string& token : tokens) token = replaced_all(token, decoder.literal, decoder.content);
      return;
    case Decoder::Kind::kByteFallback:
      for (std::string& token : tokens) {
        if (const std::optional<unsigned char> byte = fallback_byte(token)) token.assign(1, static_cast<char>(*byte));
      }
      return;
    case Decoder::Kind::kFuse: {
      std::string all;
      for (const std::string& token : tokens) all += token;
      tokens.assign(1, all);
      return;
    }
    case Decoder::Kind::kStrip:
      for (std::string& token : tokens) {
        std::size_t begin = 0;
        std::size_t end = token.size();
        const std::size_t width = decoder.literal.size();
        for (std::size_t i = 0; i < decoder.start && token.compare(begin, width, decoder.literal) == 0; ++i) begin += width;
        for (std::size_t i = 0; i < decoder.stop && end >= begin + width && token.compare(end - width, width, decoder.literal) == 0; ++i) {
          end -= width;
        }
        token = token.substr(begin, end - begin);
      }
      return;
    case Decoder::Kind::kMetaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = replaced_all(tokens[i], decoder.literal, i == 0 && decoder.strips_first ? "" : " ");
      }
      return;
  }
}

}  // namespace sluice::formats
