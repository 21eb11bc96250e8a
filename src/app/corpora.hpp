#pragma once
// The data of a request: files, tokenizer, chat template, and what they become: corpora, samples, a first look at them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/configuration.hpp"
#include "base/log.hpp"
#include "data/corpus.hpp"
#include "data/preview.hpp"
#include "data/sampler.hpp"
#include "formats/chat_template.hpp"
#include "formats/tokenizer.hpp"
#include "spec/model_spec.hpp"

namespace sluice::app {

/// What a request's texts are tokenised with.
struct TextTokenizer {
  std::shared_ptr<const formats::Tokenizer> tokenizer;
  std::string folder;  // that it came from; empty: bytes
};

/// sluice.data.tokenizer where it is given; else the one of the model's directory, or what the model's run used; else bytes, where the
/// model is a preset or has the bytes' vocabulary. `model`: null where the request names none. Throws RequestError where a model's
/// directory has none that can be used, ending with `remedy` (what to do), or where its vocabulary is larger than the model's;
/// FormatError for a damaged one.
TextTokenizer open_text_tokenizer(const Configuration& configuration, const spec::ModelSpec* model, const std::string& remedy);

/// What a look through the training data finds.
struct Inspection {
  std::string kind;       // "text", "JSON lines", "llm.c tokens", "Megatron tokens"
  std::string shape;      // "files", "text", "prompt and completion", "chats"; empty for token files
  std::string tokenizer;  // "bytes", "bpe", "sentencepiece", "none"
  std::string folder;     // that the tokenizer came from; empty: bytes, or none
  std::int64_t files = 0;
  std::int64_t bytes = 0;  // of the files
  std::int64_t tokens = 0;
  std::int64_t learned = 0;    // predicted with loss
  std::int64_t documents = 0;  // -1: unknown
  std::int64_t longest = 0;    // tokens of a document; -1: unknown
  std::int64_t ended = 0;      // documents that end with the token for it (in chats white space may follow); -1: not known
  data::DocumentCounts left;
};

/// Throws RequestError: of the `documents` of this part ("training") no token has a loss.
[[noreturn]] void refuse_without_loss(const char* part, std::int64_t documents);

/// Training and validation data, from files to samples. Texts that aren't one token a byte are tokenised once, into stores that all ranks
/// read; until then they are known by their files alone.
class Corpora {
 public:
  /// Asks for the files, opens tokenizer and template where they are needed, reads the first record of JSON lines. `model`: null where the
  /// request names none (`data` verbs). Throws RequestError, EnvironmentError, FormatError.
  Corpora(const Configuration& configuration, const spec::ModelSpec* model);
  Corpora(const Corpora&) = delete;
  Corpora& operator=(const Corpora&) = delete;
  ~Corpora();

  /// What the training texts are tokenised with, as sluice.data.tokenizer says it: "bytes" or a folder's whole path; empty for token files.
  std::string tokenizer_used() const;
  bool needs_stores() const;
  /// Of texts that are still to be tokenised: "12.3 MiB of JSON lines (chats) in 2 files, tokenised (bpe) before step 1 into about 26 MiB
  /// on disk".
  std::string describe_files() const;
  std::vector<std::string> train_files() const;
  std::vector<std::string> valid_files() const;

  /// Whether all stores stand in `directory`, made from the same data; reads them, and warns of a damaged one. Before make_stores().
  bool has_stores(const std::string& directory, Log& log);
  /// Makes those that don't, and removes others. Says in the log what it does, and every ten seconds how far it is. `stop` is asked after
  /// each document. One rank alone, which owns the directory. False: stopped.
  bool make_stores(const std::string& directory, Log& log, const std::function<bool()>& stop);
  /// The names of the stores, for ranks whose copies of the files have other times than those that the stores were made from.
  std::string store_names() const;
  void use_stores(const std::string& names);
  /// Opens the corpora, from stores in `directory` where they need any, and makes the samples. Every rank, once. Throws RequestError for
  /// data that are too short, or in which nothing is learned.
  void open(const std::string& directory);

  // ---- after open()

  const data::Corpus& train() const;
  const data::Corpus* valid() const;  // null: none
  const data::TrainingSampler& sampler() const;
  const data::EvaluationSampler* valid_sampler() const;
  /// What people should know of the data, a line each.
  std::vector<std::string> describe() const;
  /// The sample with this running number.
  data::Preview preview(std::int64_t number) const;

  // ---- without it

  /// The first sample in the order of the files. Reads and tokenises no more than that needs.
  data::Preview first_preview() const;
  /// Reads all of the training data, tokenising texts on the way.
  Inspection inspect() const;
  /// Calls take(tokens) for all documents of the training data in order; token files that don't say where theirs begin are one. Throws
  /// RequestError for what has tokens without loss, which token files can't tell.
  void for_documents(const std::function<void(std::span<const std::int32_t> tokens)>& take) const;
  /// The tokenizer's vocabulary; where there is none, what the token files may hold.
  std::int64_t vocabulary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "first sample: 33 tokens, 12 of them with loss (without: ⟦⟧): ...".
std::string describe_sample(const data::Preview& preview, bool colour);

}  // namespace sluice::app
