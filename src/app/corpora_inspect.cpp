// Looking at data without preparing them for training.

#include <algorithm>
#include <limits>

#include "app/corpora.hpp"
#include "app/corpora_impl.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::app {

data::Preview Corpora::first_preview() const {
  const Impl& impl = *impl_;
  const auto wanted = static_cast<std::size_t>(impl.configuration.training.batch.sequence_length) + 1;
  data::EncodedDocument sample;
  if (!impl.training.needs_store) {
    const data::Corpus corpus(impl.training.files, impl.vocabulary);
    return data::preview_of(corpus, {0, std::min<std::int64_t>(static_cast<std::int64_t>(wanted), corpus.tokens()) - 1},
                            impl.text.tokenizer.get(), impl.keeps_apart(corpus));
  }
  const auto reader = impl.reader_of(impl.training);
  data::EncodedDocument encoded;
  while (sample.ids.size() < wanted) {
    const std::optional<data::Document> document = reader->next();
    if (!document) break;
    data::encode(*document, *impl.text.tokenizer, encoded);
    if (impl.configuration.training.document_attention && !sample.ids.empty() && !encoded.ids.empty()) encoded.learned.front() = 0;
    sample.ids.insert(sample.ids.end(), encoded.ids.begin(), encoded.ids.end());
    sample.learned.insert(sample.learned.end(), encoded.learned.begin(), encoded.learned.end());
    if (impl.configuration.packing == data::Packing::kPad && !sample.ids.empty()) break;
  }
  sample.ids.resize(std::min(sample.ids.size(), wanted));
  sample.learned.resize(sample.ids.size());
  return data::preview_of(sample, impl.text.tokenizer.get());
}

Inspection Corpora::inspect() const {
  const Impl& impl = *impl_;
  const Impl::Part& part = impl.training;
  const formats::Tokenizer* tokenizer = impl.text.tokenizer.get();
  Inspection found;
  found.kind = data::name_of(part.files.kind);
  if (!part.files.are_tokens()) found.shape = data::name_of(part.shape);
  found.tokenizer = tokenizer != nullptr ? tokenizer->kind() : "none";
  found.folder = impl.text.folder;
  found.files = static_cast<std::int64_t>(part.files.files.size());
  found.bytes = part.files.bytes();
  const std::optional<std::int32_t> end = tokenizer != nullptr ? tokenizer->end_of_document() : std::nullopt;
  const auto add = [&](std::int64_t tokens, bool is_ended) {
    ++found.documents;
    found.tokens += tokens;
    found.longest = std::max(found.longest, tokens);
    if (is_ended) ++found.ended;
  };
  if (part.needs_store) {
    const auto reader = impl.reader_of(part);
    data::EncodedDocument encoded;
    std::int64_t tokenless = 0;
    while (const std::optional<data::Document> document = reader->next()) {
      data::encode(*document, *tokenizer, encoded);
      if (encoded.ids.empty()) {
        ++tokenless;
        continue;
      }
      add(static_cast<std::int64_t>(encoded.ids.size()), end.has_value());  // encode() sees to it
      found.learned += std::count(encoded.learned.begin(), encoded.learned.end(), std::uint8_t{1});
    }
    found.left = reader->counts();
    found.left.empty += tokenless;
  } else {
    const data::Corpus corpus(part.files, impl.vocabulary);
    corpus.check(0, corpus.tokens());
    if (corpus.knows_documents()) {
      corpus.for_documents([&](std::int64_t /*document*/, std::int64_t begin, std::int64_t tokens) {
        std::int32_t last = -1;
        if (tokens > 0) corpus.read(begin + tokens - 1, 1, &last);
        add(tokens, last == end);
      });
    } else {
      found.tokens = corpus.tokens();
      found.documents = found.longest = found.ended = -1;
    }
    found.learned = found.tokens;
  }
  if (!end) found.ended = -1;
  return found;
}

void Corpora::for_documents(const std::function<void(std::span<const std::int32_t>)>& take) const {
  const Impl& impl = *impl_;
  if (impl.training.needs_store) {
    const auto reader = impl.reader_of(impl.training);
    data::EncodedDocument encoded;
    while (const std::optional<data::Document> document = reader->next()) {
      data::encode(*document, *impl.text.tokenizer, encoded);
      if (std::find(encoded.learned.begin(), encoded.learned.end(), std::uint8_t{0}) != encoded.learned.end()) {
        throw RequestError(cat(document->place,
                               ": has tokens without loss, which token files can't tell; train on the JSON lines themselves, "
                               "which are tokenised once"));
      }
      if (!encoded.ids.empty()) take(encoded.ids);
    }
    return;
  }
  const data::Corpus corpus(impl.training.files, impl.vocabulary);
  std::vector<std::int32_t> ids;
  const auto give = [&](std::int64_t /*document*/, std::int64_t begin, std::int64_t tokens) {
    ids.resize(static_cast<std::size_t>(tokens));
    corpus.read(begin, tokens, ids.data());
    if (!ids.empty()) take(ids);
  };
  if (corpus.knows_documents()) {
    corpus.for_documents(give);
  } else {
    give(0, 0, corpus.tokens());
  }
}

std::int64_t Corpora::vocabulary() const {
  if (!impl_->training.files.are_tokens()) return impl_->text.tokenizer->vocabulary();
  return impl_->training.files.kind == data::FileKind::kLlmc ? std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1
                                                             : impl_->vocabulary;
}

std::string describe_sample(const data::Preview& preview, bool colour) {
  const bool is_masked =
      std::any_of(preview.parts.begin(), preview.parts.end(), [](const data::ShownPart& part) { return !part.is_learned; });
  return cat("first sample: ", counted(preview.tokens, "token"), ", ", preview.predicted, " predicted with loss",
             !is_masked ? ""
             : colour   ? " (dim: without)"
                        : " (in ⟦⟧: without)",
             ": ", data::describe(preview, colour));
}

}  // namespace sluice::app
