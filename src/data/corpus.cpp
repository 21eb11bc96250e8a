#include "data/corpus.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "data/permutation.hpp"
#include "data/token_source.hpp"

namespace sluice::data {
namespace {

constexpr std::int64_t kPieceTokens = 256 << 10;  // of what is looked through

}  // namespace

struct Corpus::Impl {
  /// Consecutive documents of the source that this part holds.
  struct Run {
    std::int64_t source_document = 0;  // the first one
    std::int64_t document = 0;         // its number in this part
    std::int64_t source_token = 0;     // where it begins in the source
    std::int64_t token = 0;            // and in this part
  };
  std::shared_ptr<const TokenSource> source;
  SourceFiles files;
  std::string tokenizer;
  std::vector<Run> runs;  // of a whole corpus a single one
  std::int64_t tokens = 0;
  std::int64_t documents = 0;  // negative: unknown

  static std::unique_ptr<Impl> whole(std::shared_ptr<const TokenSource> source, const SourceFiles& files, std::string tokenizer) {
    auto impl = std::make_unique<Impl>();
    impl->tokens = source->tokens();
    impl->documents = source->documents();
    impl->source = std::move(source);
    impl->files = files;
    impl->tokenizer = std::move(tokenizer);
    impl->runs = {Run{}};
    return impl;
  }

  /// Adds documents [first, last) of the source.
  void add_run(std::int64_t first, std::int64_t last) {
    if (first == last) return;
    std::int64_t begin = 0, end = 0;
    source->read_begins(first, 1, &begin);
    source->read_begins(last, 1, &end);
    runs.push_back({first, documents, begin, tokens});
    tokens += end - begin;
    documents += last - first;
  }

  std::int64_t end_of(std::size_t run) const { return run + 1 < runs.size() ? runs[run + 1].token : tokens; }
  std::int64_t last_document_of(std::size_t run) const { return run + 1 < runs.size() ? runs[run + 1].document : documents; }

  std::size_t run_of(std::int64_t token) const {
    const auto after = std::upper_bound(runs.begin(), runs.end(), token, [](std::int64_t t, const Run& run) { return t < run.token; });
    return static_cast<std::size_t>(after - runs.begin()) - 1;
  }

  /// Calls part(source token, count, done) for what of [begin, begin + count) lies together in the source.
  template <typename Part>
  void for_parts(std::int64_t begin, std::int64_t count, Part part) const {
    SLUICE_CHECK(begin >= 0 && count >= 0 && begin <= tokens - count, count, " tokens from ", begin, " of ", tokens);
    if (count == 0) return;
    std::int64_t done = 0;
    for (std::size_t r = run_of(begin); done < count; ++r) {
      const std::int64_t at = begin + done;
      const std::int64_t n = std::min(count - done, end_of(r) - at);
      part(runs[r].source_token + at - runs[r].token, n, done);
      done += n;
    }
  }

  std::int64_t document_at(std::int64_t token) const {
    const Run& run = runs[run_of(token)];
    return run.document + source->document_at(run.source_token + token - run.token) - run.source_document;
  }

  void read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const {
    SLUICE_CHECK(documents >= 0 && first >= 0 && count >= 0 && first <= documents + 1 - count, "documents [", first, ", ", first + count,
                 ") of ", documents);
    const auto after = std::upper_bound(runs.begin(), runs.end(), first, [](std::int64_t d, const Run& run) { return d < run.document; });
    auto r = static_cast<std::size_t>(after - runs.begin()) - 1;
    while (count > 0) {
      if (first == documents) {
        *out = tokens;
        return;
      }
      const Run& run = runs[r];
      const std::int64_t n = std::min(count, last_document_of(r) - first);
      source->read_begins(run.source_document + first - run.document, n, out);
      for (std::int64_t i = 0; i < n; ++i) out[i] += run.token - run.source_token;
      first += n;
      count -= n;
      out += n;
      ++r;
    }
  }
};

Corpus::Corpus(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Corpus::Corpus(const std::vector<std::string>& patterns, std::int64_t vocabulary) : Corpus(find_files(patterns), vocabulary) {}

Corpus::Corpus(const SourceFiles& files, std::int64_t vocabulary)
    : impl_(Impl::whole(make_file_source(files, vocabulary), files,
                        files.kind == FileKind::kLlmc       ? "llmc"
                        : files.kind == FileKind::kMegatron ? "megatron"
                                                            : "bytes")) {}

Corpus::Corpus(const SourceFiles& files, std::shared_ptr<const TokenStore> store, std::string tokenizer)
    : impl_(Impl::whole(make_store_source(std::move(store)), files, std::move(tokenizer))) {}

Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;
Corpus::~Corpus() = default;

std::int64_t Corpus::tokens() const {
  return impl_->tokens;
}

std::vector<std::string> Corpus::files() const {
  std::vector<std::string> paths;
  for (const SourceFile& file : impl_->files.files) paths.push_back(file.path);
  return paths;
}

const std::string& Corpus::tokenizer() const {
  return impl_->tokenizer;
}

std::uint64_t Corpus::fingerprint() const {
  Hash hash;
  hash.add(impl_->tokenizer).add(static_cast<std::uint64_t>(impl_->tokens));
  for (const SourceFile& file : impl_->files.files) {
    hash.add(std::filesystem::path(file.path).filename().string()).add(static_cast<std::uint64_t>(file.bytes));
  }
  return hash.value();
}

void Corpus::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  impl_->for_parts(begin, count, [&](std::int64_t at, std::int64_t n, std::int64_t done) { impl_->source->read(at, n, out + done); });
}

void Corpus::check(std::int64_t begin, std::int64_t end) const {
  SLUICE_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens [", begin, ", ", end, ") of ", tokens());
  if (!impl_->source->needs_check()) return;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(kPieceTokens, end - begin)));
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t n = std::min(end - at, kPieceTokens);
    read(at, n, piece.data());
    at += n;
  }
}

std::string Corpus::place(std::int64_t token) const {
  SLUICE_CHECK(token >= 0 && token < tokens(), "token ", token, " of ", tokens());
  const Impl::Run& run = impl_->runs[impl_->run_of(token)];
  return impl_->source->place(run.source_token + token - run.token);
}

bool Corpus::has_mask() const {
  return impl_->source->has_mask();
}

void Corpus::read_mask(std::int64_t begin, std::int64_t count, std::uint8_t* out) const {
  impl_->for_parts(begin, count, [&](std::int64_t at, std::int64_t n, std::int64_t done) { impl_->source->read_mask(at, n, out + done); });
}

std::int64_t Corpus::learned() const {
  if (!has_mask()) return tokens();
  if (tokens() == impl_->source->tokens()) return impl_->source->learned();
  std::vector<std::uint8_t> piece(static_cast<std::size_t>(std::min(kPieceTokens, tokens())));
  std::int64_t sum = 0;
  for (std::int64_t at = 0; at < tokens(); at += kPieceTokens) {
    const std::int64_t n = std::min(tokens() - at, kPieceTokens);
    read_mask(at, n, piece.data());
    sum += std::count(piece.begin(), piece.begin() + n, std::uint8_t{1});
  }
  return sum;
}

bool Corpus::knows_documents() const {
  return impl_->documents >= 0;
}

std::int64_t Corpus::documents() const {
  SLUICE_CHECK(knows_documents(), "the documents of ", tokenizer(), " tokens are unknown");
  return impl_->documents;
}

void Corpus::read_begins(std::int64_t first, std::int64_t count, std::int64_t* out) const {
  impl_->read_begins(first, count, out);
}

std::vector<std::int64_t> Corpus::begins_within(std::int64_t begin, std::int64_t end) const {
  SLUICE_CHECK(begin >= 0 && begin <= end && end <= tokens(), "documents of tokens [", begin, ", ", end, ") of ", tokens());
  constexpr std::int64_t kPiece = 64;
  std::vector<std::int64_t> found;
  if (begin == end) return found;
  std::int64_t piece[kPiece];
  for (std::int64_t document = impl_->document_at(begin); document < documents();) {
    const std::int64_t count = std::min(kPiece, documents() - document);
    read_begins(document, count, piece);
    for (std::int64_t i = 0; i < count; ++i) {
      if (piece[i] >= end) return found;
      const bool is_known = !found.empty() && found.back() == piece[i];  // by a document before it without a token
      if (piece[i] >= begin && !is_known) found.push_back(piece[i]);
    }
    document += count;
  }
  return found;
}

void Corpus::for_documents(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& see) const {
  constexpr std::int64_t kPiece = 64 << 10;
  std::vector<std::int64_t> begins(static_cast<std::size_t>(std::min(documents(), kPiece)) + 1);
  for (std::int64_t first = 0; first < documents(); first += kPiece) {
    const std::int64_t count = std::min(documents() - first, kPiece);
    read_begins(first, count + 1, begins.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = begins[static_cast<std::size_t>(i)];
      see(first + i, begin, begins[static_cast<std::size_t>(i) + 1] - begin);
    }
  }
}

std::pair<Corpus, Corpus> Corpus::split(double fraction, std::uint64_t seed) const {
  SLUICE_CHECK(fraction > 0 && fraction < 1 && impl_->runs.size() == 1, "a fraction of ", fraction, " of ", impl_->runs.size(), " runs");
  if (!knows_documents()) {
    throw RequestError(cat(files().front(),
                           ": llm.c's token files don't say where documents begin, so no fraction of them can be held out; ",
                           "give files as sluice.data.valid instead of valid_fraction"));
  }
  const std::int64_t all = documents();
  if (all < 2) {
    throw RequestError(
        cat("sluice.data.valid_fraction ", fraction, ": found ", all, " document", all == 1 ? "" : "s",
            " in the training data, expected at least 2, since whole documents are held out; give files as sluice.data.valid"));
  }
  const std::int64_t held = std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(all)), 1, all - 1);
  const Permutation order(all, seed, -1);  // epochs count from 0, so no epoch's order is this one
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < held; ++i) chosen.push_back(order(i));
  std::sort(chosen.begin(), chosen.end());
  const auto empty_part = [&] {
    auto part = std::make_unique<Impl>();
    part->source = impl_->source;
    part->files = impl_->files;
    part->tokenizer = impl_->tokenizer;
    return part;
  };
  auto kept = empty_part(), held_out = empty_part();
  std::int64_t next = 0;  // first document that isn't in a part yet
  for (std::size_t i = 0; i < chosen.size();) {
    std::size_t last = i;  // of the chosen ones that follow each other
    while (last + 1 < chosen.size() && chosen[last + 1] == chosen[last] + 1) ++last;
    kept->add_run(next, chosen[i]);
    held_out->add_run(chosen[i], chosen[last] + 1);
    next = chosen[last] + 1;
    i = last + 1;
  }
  kept->add_run(next, all);
  return {Corpus(std::move(kept)), Corpus(std::move(held_out))};
}

}  // namespace sluice::data
