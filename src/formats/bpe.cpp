#include "formats/bpe.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/text.hpp"
#include "formats/tokenizer_unicode.hpp"

namespace sluice::formats {
namespace {

/// Characters for bytes, and bytes (or -1) for the characters below U+0144.
struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<std::int16_t, 0x144> bytes{};

  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(code, characters[static_cast<std::size_t>(byte)]);
      bytes[code] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

/// The finaliser of MurmurHash3.
std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  return x;
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::string fallback_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return cat("<0x", kDigits[static_cast<std::size_t>(byte / 16)], kDigits[static_cast<std::size_t>(byte % 16)], '>');
}

}  // namespace

const std::string& byte_level_character(unsigned char byte) {
  return byte_alphabet().characters[byte];
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const Utf8Char c = utf8_at(token, i);
    if (c.code >= byte_alphabet().bytes.size() || byte_alphabet().bytes[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_alphabet().bytes[c.code]);
    i += c.bytes;
  }
  return bytes;
}

Bpe::Bpe(BpeSettings settings) : settings_(std::move(settings)) {
  const auto& vocabulary = settings_.vocabulary;
  ids_.reserve(vocabulary.size());
  places_.reserve(vocabulary.size());
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const auto& [token, id] = vocabulary[i];
    ids_.emplace(token, id);
    places_.emplace(id, i);
    end_id_ = std::max(end_id_, std::int64_t{id} + 1);
    if (!settings_.ignores_merges) continue;
    if (std::optional<std::string> bytes = byte_level_bytes(token)) whole_words_.emplace(std::move(*bytes), id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_.push_back(id_of(byte_level_character(static_cast<unsigned char>(byte))).value_or(-1));
    fallback_ids_.push_back(settings_.byte_fallback ? id_of(fallback_token(byte)).value_or(-1) : -1);
  }

  std::size_t slots = 16;
  while (slots < 2 * settings_.merges.size()) slots *= 2;
  merges_.resize(slots);
  std::string merged;
  for (std::size_t rank = 0; rank < settings_.merges.size(); ++rank) {
    const auto& [left, right] = settings_.merges[rank];
    merged = left + right;
    const auto known = [&](const std::string& token) {
      const std::optional<std::int32_t> id = id_of(token);
      if (!id) throw FormatError(settings_.source, cat("model.merges[", rank, "]: ", in_quotes(token), " is not in model.vocab"));
      return *id;
    };
    insert_merge({pair_of(known(left), known(right)), static_cast<std::uint32_t>(rank), known(merged)});
  }
  settings_.merges = {};
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Bpe::token_of(std::int32_t id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &settings_.vocabulary[found->second].first;
}

void Bpe::insert_merge(const Merge& merge) {
  std::size_t slot = mixed(merge.pair) & (merges_.size() - 1);
  while (merges_[slot].pair != kNoPair && merges_[slot].pair != merge.pair) slot = (slot + 1) & (merges_.size() - 1);
  merges_[slot] = merge;
}

const Bpe::Merge* Bpe::merge_of(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = mixed(pair) & (merges_.size() - 1);
  while (merges_[slot].pair != pair) {
    if (merges_[slot].pair == kNoPair) return nullptr;
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return &merges_[slot];
}

void Bpe::add_symbol(std::int32_t id, Scratch& scratch) const {
  const auto place = static_cast<std::int32_t>(scratch.symbols.size());
  if (place > 0) scratch.symbols.back().next = place;
  scratch.symbols.push_back({id, place - 1, -1});
}

void Bpe::add_character(std::string_view character, Scratch& scratch, bool& pending) const {
  const auto unknown_id = [&] {
    const std::optional<std::int32_t> id = id_of(*settings_.unknown);
    if (!id) {
      throw RequestError(cat(settings_.source, ": model.unk_token ", in_quotes(*settings_.unknown),
                             " is not in model.vocab, but the text holds ", in_quotes(character), ", which needs it"));
    }
    return *id;
  };
  if (const std::optional<std::int32_t> id = id_of(character)) {
    if (pending) add_symbol(unknown_id(), scratch);
    pending = false;
    add_symbol(*id, scratch);
    return;
  }
  const bool has_bytes = settings_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                                [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)] >= 0; });
  if (has_bytes) {  // a pending unknown token comes behind them: so do the tokenizers
    for (const char c : character) add_symbol(fallback_ids_[static_cast<unsigned char>(c)], scratch);
    return;
  }
  if (!settings_.unknown) return;
  const std::int32_t id = unknown_id();
  if (pending && !settings_.fuses_unknown) add_symbol(id, scratch);
  pending = true;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const {
  if (word.empty()) return;
  if (settings_.ignores_merges) {
    if (const std::optional<std::int32_t> id = id_of(word)) {
      out.push_back(*id);
      return;
    }
  }
  if (word.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw RequestError(cat("a word of ", word.size(), " bytes can't be encoded; split the text"));
  }
  scratch.symbols.clear();
  bool pending = false;
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t bytes = utf8_bytes(word[i]);
    add_character(word.substr(i, bytes), scratch, pending);
    i += bytes;
  }
  if (pending) add_symbol(*id_of(*settings_.unknown), scratch);
  merge_all(scratch, out);
}

void Bpe::encode_bytes(std::string_view bytes, Scratch& scratch, std::vector<std::int32_t>& out) const {
  if (bytes.empty()) return;
  if (settings_.ignores_merges) {
    if (const auto whole = whole_words_.find(std::string(bytes)); whole != whole_words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw RequestError(cat("a word of ", bytes.size(), " bytes can't be encoded; split the text"));
  }
  scratch.symbols.clear();
  bool pending = false;
  for (const char c : bytes) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0 && !pending) {
      add_symbol(id, scratch);
    } else {
      add_character(byte_level_character(static_cast<unsigned char>(c)), scratch, pending);
    }
  }
  if (pending) add_symbol(*id_of(*settings_.unknown), scratch);
  merge_all(scratch, out);
}

void Bpe::merge_all(Scratch& scratch, std::vector<std::int32_t>& out) const {
  constexpr std::int32_t kRemoved = -1;
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) { return a.order > b.order; };
  const auto queue = [&](std::int32_t left) {
    const std::int32_t right = symbols[static_cast<std::size_t>(left)].next;
    if (right < 0) return false;
    const Merge* merge = merge_of(symbols[static_cast<std::size_t>(left)].id, symbols[static_cast<std::size_t>(right)].id);
    if (merge == nullptr) return false;
    heap.push_back({std::uint64_t{merge->rank} << 32 | static_cast<std::uint32_t>(left), merge->merged});
    ++scratch.candidates;
    return true;
  };
  heap.clear();
  for (std::size_t i = 0; i < symbols.size(); ++i) queue(static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    const auto place = static_cast<std::int32_t>(top.order & 0xFFFFFFFFu);
    Scratch::Symbol& left = symbols[static_cast<std::size_t>(place)];
    if (left.id == kRemoved || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    const Merge* merge = merge_of(left.id, right.id);
    if (merge == nullptr || merge->merged != top.merged) continue;  // one of the two has been merged since
    left.id = top.merged;
    left.next = right.next;
    right.id = kRemoved;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = place;
    if (left.previous >= 0 && queue(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (queue(place)) std::push_heap(heap.begin(), heap.end(), later);
  }
  for (const Scratch::Symbol& symbol : symbols) {
    if (symbol.id != kRemoved) out.push_back(symbol.id);
  }
}

}  // namespace sluice::formats
