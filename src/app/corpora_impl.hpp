#pragma once
// What Corpora is made of: for the sources corpora*.cpp alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/corpora.hpp"
#include "data/corpus.hpp"
#include "data/documents.hpp"
#include "data/files.hpp"
#include "data/sampler.hpp"
#include "data/token_store.hpp"
#include "formats/chat_template.hpp"

namespace sluice::app {

struct Corpora::Impl {
  /// Training or validation data.
  struct Part {
    const char* name;  // "training", "validation"
    data::SourceFiles files;
    data::CorpusOptions options;
    data::Shape shape = data::Shape::kFile;  // of texts
    bool needs_store = false;
    std::string store_name;
    bool has_store = false;  // whole, as has_stores() found it
    std::shared_ptr<const data::TokenStore> store;
  };

  Impl(const Configuration& configuration, const spec::ModelSpec* model);

  std::vector<Part*> parts();
  void find(Part& part, const std::vector<std::string>& patterns) const;
  /// Token files need no tokenizer; one that can be used shows them as text.
  void open_for_showing();
  void open_template(const Part& part);
  std::unique_ptr<data::DocumentReader> reader_of(const Part& part) const;
  /// False: stopped.
  bool make_store(const Part& part, const std::string& path, Log& log, const std::function<bool()>& stop) const;
  void open_part(Part& part, std::optional<data::Corpus>& corpus, const std::string& directory) const;
  /// Throws RequestError where attention and positions can't restart at documents, or would leave nothing to predict.
  static void check_documents(const char* part, const data::Corpus& corpus);
  /// Whether attention and positions restart at documents, which is then known of these.
  bool keeps_apart(const data::Corpus& corpus) const;

  const Configuration& configuration;
  std::int64_t vocabulary = 0;
  std::optional<spec::ModelSpec> model;
  Part training{"training"};
  std::optional<Part> validation;
  TextTokenizer text;  // null where there is none and none is needed
  std::unique_ptr<formats::ChatTemplate> chat;
  std::uint64_t chat_identity = 0;
  std::optional<data::Corpus> train, valid;
  std::optional<data::TrainingSampler> sampler;
  std::optional<data::EvaluationSampler> valid_sampler;
};

}  // namespace sluice::app
