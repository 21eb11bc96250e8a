#include "app/corpora.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include "app/corpora_impl.hpp"
#include "app/export.hpp"
#include "app/session.hpp"
#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/byte_tokenizer.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTellEveryNs = 10'000'000'000;
constexpr std::int64_t kLargestTemplateFile = 64 * kMiB;

bool is_file(const fs::path& path) {
  std::error_code ignored;  // what can't be asked isn't there for us
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const formats::Tokenizer> open_if_there(const std::string& folder) {
  return std::shared_ptr<const formats::Tokenizer>(formats::open_tokenizer(folder));
}

void check_vocabulary(const formats::Tokenizer& tokenizer, const std::string& folder, const spec::ModelSpec* model) {
  if (model == nullptr || tokenizer.vocabulary() <= model->vocab) return;
  if (folder.empty()) {
    throw RequestError(cat("the byte tokenizer for texts has ", tokenizer.vocabulary(), " tokens, the model's vocabulary has ",
                           model->vocab, "; use a model with at least as many"));
  }
  throw RequestError(cat(folder, ": the tokenizer has ", tokenizer.vocabulary(), " tokens, the model's embedding has ", model->vocab,
                         " rows; give the tokenizer that belongs to the model as --set sluice.data.tokenizer=DIR"));
}

/// The corpus options of a request, for one of its two lists of files.
data::CorpusOptions options_of(const Configuration& configuration, const std::vector<std::string>& patterns) {
  data::CorpusOptions options;
  options.patterns = patterns;
  options.tokenizer = configuration.tokenizer;
  options.chat_template = configuration.chat_template;
  options.packing = configuration.packing;
  options.overlong = configuration.overlong;
  options.invalid_utf8 = configuration.invalid_utf8;
  options.valid_fraction = configuration.valid_fraction;
  options.text_key = configuration.text_key;
  return options;
}

/// "35 %".
std::string percent(std::int64_t part, std::int64_t whole) {
  const double value = whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  return value > 0 && value < 1 ? std::string("under 1 %") : cat(std::lround(value), " %");
}

}  // namespace

TextTokenizer open_text_tokenizer(const Configuration& configuration, const spec::ModelSpec* model, const std::string& remedy) {
  const std::string meant = meant_tokenizer(configuration.tokenizer, configuration.model_path);
  TextTokenizer found;
  if (!meant.empty() && meant != "bytes") found = {open_if_there(meant), meant};
  if (!found.tokenizer && !configuration.tokenizer.empty() && meant != "bytes") {
    throw RequestError(
        cat("sluice.data.tokenizer: ", meant, ": has neither tokenizer.json nor tokenizer.model; give a directory that has, or \"bytes\""));
  }
  if (!found.tokenizer && !meant.empty() && meant != "bytes" && model != nullptr && model->vocab != formats::kByteVocabulary) {
    throw RequestError(cat(meant, ": has no tokenizer (tokenizer.json or tokenizer.model)", remedy));
  }
  if (!found.tokenizer) found = {formats::make_byte_tokenizer(), ""};
  check_vocabulary(*found.tokenizer, found.folder, model);
  return found;
}

void refuse_without_loss(const char* part, std::int64_t documents) {
  throw RequestError(cat(part, " data: no token of ", counted(documents, "document"),
                         " has a loss: nothing in them is a completion or written by the assistant; give others"));
}

Corpora::Impl::Impl(const Configuration& c, const spec::ModelSpec* m) : configuration(c) {
  if (m != nullptr) model = *m;
  vocabulary = model ? model->vocab : std::numeric_limits<std::int32_t>::max();
  find(training, c.train_data);
  if (!c.valid_data.empty()) find(validation.emplace(Part{"validation"}), c.valid_data);
  const bool has_text = !training.files.are_tokens() || (validation && !validation->files.are_tokens());
  if (has_text) {
    text = open_text_tokenizer(c, m,
                               ", and the data are text; give one as --set sluice.data.tokenizer=DIR (\"bytes\": a token a byte), "
                               "or token files as data");
  } else {
    open_for_showing();
  }
  for (Part* part : parts()) {
    if (part->files.are_tokens()) continue;
    part->shape = data::shape_of(part->files, part->options);
    // A byte is a token: such texts need no store, and begin anywhere at once.
    part->needs_store = text.tokenizer->kind() != "bytes" || part->shape != data::Shape::kFile;
    if (part->shape == data::Shape::kChat && !chat) open_template(*part);
  }
  for (Part* part : parts()) {
    if (!part->needs_store) continue;
    const std::uint64_t identity = data::store_identity(part->files, part->options, part->shape, *text.tokenizer,
                                                        part->shape == data::Shape::kChat ? chat_identity : 0);
    part->store_name = Hash::hex_of(identity);
  }
}

std::vector<Corpora::Impl::Part*> Corpora::Impl::parts() {
  std::vector<Part*> list{&training};
  if (validation) list.push_back(&*validation);
  return list;
}

void Corpora::Impl::find(Part& part, const std::vector<std::string>& patterns) const {
  part.options = options_of(configuration, patterns);
  const bool is_validation = validation && &part == &*validation;
  part.files = named_input(is_validation ? configuration.valid_key : configuration.train_key, "give files that are there and may be read",
                           [&] { return data::find_files(patterns); });
}

void Corpora::Impl::open_for_showing() {
  try {
    const std::string& given = configuration.tokenizer;
    const std::string folder = exported_tokenizer(given, configuration.model_path);
    if (!folder.empty()) text = {open_if_there(folder), folder};
    const bool is_bytes = given == "bytes" || (given.empty() && vocabulary == formats::kByteVocabulary);
    if (!text.tokenizer && is_bytes) text = {formats::make_byte_tokenizer(), ""};
  } catch (const Error& error) {
    if (error.code() == ExitCode::kDefect) throw;
    text = {};  // one that can't be used is as good as none: tokens are shown as numbers
  }
}

void Corpora::Impl::open_template(const Part& part) {
  Hash identity;
  const auto add_file = [&](const fs::path& path) {
    if (is_file(path)) identity.add(read_text(path.string(), kLargestTemplateFile));
  };
  if (!configuration.chat_template.empty()) {
    // The byte tokenizer's end of document has no text, so a template can't write it.
    auto variables = text.folder.empty() ? std::map<std::string, std::string>() : formats::special_tokens(text.folder);
    const std::string& path = configuration.chat_template;
    const std::string source = named_input("sluice.data.chat_template", "give a file with a chat template in it",
                                           [&] { return read_text(path, kLargestTemplateFile); });
    chat = std::make_unique<formats::ChatTemplate>(source, path, variables);
    add_file(path);
  } else if (!text.folder.empty()) {
    chat = formats::open_chat_template(text.folder);
  }
  if (!chat) {
    throw RequestError(cat(part.files.files.front().path, ": holds chats (\"messages\"), and ",
                           text.folder.empty() ? std::string("the byte tokenizer") : text.folder,
                           " has no chat template; give a file as --set sluice.data.chat_template=FILE"));
  }
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"}) {
    if (!text.folder.empty()) add_file(fs::path(text.folder) / name);
  }
  chat_identity = identity.value();
}

std::unique_ptr<data::DocumentReader> Corpora::Impl::reader_of(const Part& part) const {
  return std::make_unique<data::DocumentReader>(part.files, part.options, part.shape, chat.get());
}

bool Corpora::Impl::make_store(const Part& part, const std::string& path, Log& log, const std::function<bool()>& stop) const {
  const std::int64_t begin = now_ns(), total = part.files.bytes();
  std::int64_t told = begin;
  log.note(cat("tokenising ", format_bytes(total), " of ", part.name, " data once (", text.tokenizer->kind(), "), into ", path));
  data::TokeniseProgress last;
  const bool is_made = data::make_store(path, *reader_of(part), total, *text.tokenizer, [&](const data::TokeniseProgress& now) {
    last = now;
    const std::int64_t time = now_ns();
    if (time - told >= kTellEveryNs) {
      told = time;
      const double seconds = static_cast<double>(time - begin) * 1e-9;
      const double left =
          seconds * static_cast<double>(now.bytes_total - now.bytes) / static_cast<double>(std::max<std::int64_t>(now.bytes, 1));
      log.note(cat("tokenising: ", percent(now.bytes, now.bytes_total), ", ", format_count(now.documents), " documents, ",
                   format_count(now.tokens), " tokens, ", format_seconds(left), " left"));
    }
    return !stop();
  });
  if (is_made) {
    log.note(cat("tokenised ", counted(last.documents, "document"), " to ", format_count(last.tokens), " tokens in ",
                 format_seconds(static_cast<double>(now_ns() - begin) * 1e-9)));
  }
  return is_made;
}

void Corpora::Impl::open_part(Part& part, std::optional<data::Corpus>& corpus, const std::string& directory) const {
  if (part.needs_store) {
    part.store = std::make_shared<data::TokenStore>(directory + "/" + part.store_name, false);
    corpus.emplace(part.files, part.store, text.tokenizer->kind());
  } else {
    corpus.emplace(part.files, vocabulary);
  }
  if (corpus->learned() == 0) refuse_without_loss(part.name, corpus->documents());
}

void Corpora::Impl::check_documents(const char* part, const data::Corpus& corpus) {
  if (!corpus.knows_documents()) {
    throw RequestError(cat(corpus.files().front(),
                           ": llm.c's token files don't say where documents begin, so attention can't restart there; remove "
                           "sluice.data.document_attention, or give texts or Megatron's token files"));
  }
  if (corpus.tokens() > corpus.documents()) return;  // one of them at least has two tokens
  std::int64_t longest = 0;
  corpus.for_documents([&](std::int64_t, std::int64_t, std::int64_t tokens) { longest = std::max(longest, tokens); });
  if (longest < 2) {
    throw RequestError(cat(part, " data: found ", counted(corpus.documents(), "document"),
                           ", none with at least 2 tokens, so with sluice.data.document_attention nothing is predicted; give others"));
  }
}

bool Corpora::Impl::keeps_apart(const data::Corpus& corpus) const {
  return configuration.training.document_attention && corpus.knows_documents();
}

Corpora::Corpora(const Configuration& configuration, const spec::ModelSpec* model) : impl_(std::make_unique<Impl>(configuration, model)) {}

Corpora::~Corpora() = default;

std::string Corpora::tokenizer_used() const {
  if (impl_->training.files.are_tokens()) return {};
  return impl_->text.folder.empty() ? "bytes" : fs::absolute(impl_->text.folder).lexically_normal().string();
}

bool Corpora::needs_stores() const {
  return impl_->training.needs_store || (impl_->validation && impl_->validation->needs_store);
}

std::string Corpora::describe_files() const {
  const Impl::Part& part = impl_->training;
  const std::int64_t bytes = part.files.bytes(), id_bytes = impl_->text.tokenizer->vocabulary() <= 65536 ? 2 : 4;
  // As if each byte were a token, which holds the ids, the mask and, mostly, what a chat template adds.
  return cat(format_bytes(bytes), " of ", data::name_of(part.files.kind), " (", data::name_of(part.shape), ") in ",
             counted(static_cast<std::int64_t>(part.files.files.size()), "file"), ", tokenised (", impl_->text.tokenizer->kind(),
             ") before step 1 into about ", format_bytes(bytes * id_bytes + bytes / 8), " on disk");
}

namespace {

std::vector<std::string> paths_of(const data::SourceFiles& files) {
  std::vector<std::string> paths;
  for (const data::SourceFile& file : files.files) paths.push_back(file.path);
  return paths;
}

}  // namespace

std::vector<std::string> Corpora::train_files() const {
  return paths_of(impl_->training.files);
}

std::vector<std::string> Corpora::valid_files() const {
  return impl_->validation ? paths_of(impl_->validation->files) : std::vector<std::string>{};
}

bool Corpora::has_stores(const std::string& directory, Log& log) {
  bool has_all = true;
  for (Impl::Part* part : impl_->parts()) {
    if (!part->needs_store) continue;
    const std::string path = directory + "/" + part->store_name;
    if (exists(path)) {
      try {
        const data::TokenStore store(path, true);
        part->has_store = true;
      } catch (const Error& error) {
        log.warn(cat(error.what(), ": the tokenised data are damaged and are made anew"));
      }
    }
    has_all = has_all && part->has_store;
  }
  return has_all;
}

bool Corpora::make_stores(const std::string& directory, Log& log, const std::function<bool()>& stop) {
  std::vector<std::string> kept;
  for (const Impl::Part* part : impl_->parts()) {
    if (!part->needs_store) continue;
    const std::string path = directory + "/" + part->store_name;
    // The same files may be given for training and validation.
    const bool is_there = part->has_store || std::find(kept.begin(), kept.end(), path) != kept.end();
    if (!is_there && !impl_->make_store(*part, path, log, stop)) return false;
    kept.push_back(path);
  }
  data::remove_other_stores(directory, kept);
  return true;
}

std::string Corpora::store_names() const {
  std::string names;
  for (const Impl::Part* part : impl_->parts()) names += part->store_name + "\n";
  return names;
}

void Corpora::use_stores(const std::string& names) {
  std::istringstream lines(names);
  for (Impl::Part* part : impl_->parts()) std::getline(lines, part->store_name);
}

void Corpora::open(const std::string& directory) {
  Impl& impl = *impl_;
  const spec::TrainingSpec& training = impl.configuration.training;
  const data::Packing packing = impl.configuration.packing;
  impl.open_part(impl.training, impl.train, directory);
  if (impl.validation) impl.open_part(*impl.validation, impl.valid, directory);
  if (!impl.validation && impl.configuration.valid_fraction > 0) {
    auto [train, valid] = impl.train->split(impl.configuration.valid_fraction, training.seed);
    impl.train.emplace(std::move(train));
    impl.valid.emplace(std::move(valid));
    if (impl.valid->learned() == 0) {
      throw RequestError(cat("sluice.data.valid_fraction ", impl.configuration.valid_fraction, ": no token of the ",
                             counted(impl.valid->documents(), "document"), " held out has a loss; hold out more"));
    }
  }
  if (training.document_attention) {
    Impl::check_documents("training", *impl.train);
    if (impl.valid) Impl::check_documents("validation", *impl.valid);
  }
  const auto order = impl.configuration.order == DataOrder::kShuffled ? data::Order::kShuffled : data::Order::kSequential;
  const std::int64_t sequence = training.batch.sequence_length;
  if (packing == data::Packing::kPad) {
    impl.sampler.emplace(*impl.train, sequence, order, training.seed, impl.configuration.overlong);
  } else {
    impl.sampler.emplace(impl.train->tokens(), sequence, order, training.seed);
  }
  if (impl.valid) impl.valid_sampler.emplace(*impl.valid, sequence, packing);
}

const data::Corpus& Corpora::train() const {
  return *impl_->train;
}
const data::Corpus* Corpora::valid() const {
  return impl_->valid ? &*impl_->valid : nullptr;
}
const data::TrainingSampler& Corpora::sampler() const {
  return *impl_->sampler;
}
const data::EvaluationSampler* Corpora::valid_sampler() const {
  return impl_->valid_sampler ? &*impl_->valid_sampler : nullptr;
}

std::vector<std::string> Corpora::describe() const {
  const Impl& impl = *impl_;
  std::vector<std::string> lines;
  for (const Impl::Part* part : impl_->parts()) {
    if (!part->store) continue;
    const data::StoreCounts& counts = part->store->counts();
    const std::string mask =
        counts.learned < counts.tokens ? cat(", ", percent(counts.learned, counts.tokens), " of the tokens with loss") : std::string();
    lines.push_back(cat(part->name, " data: ", counted(counts.documents, "document"), " (", data::name_of(part->shape), "), ",
                        format_count(counts.tokens), " tokens, the longest ", counts.longest, mask));
    const data::DocumentCounts& left = counts.left;
    if (left.empty > 0) lines.push_back(cat(part->name, " data: ", counted(left.empty, "empty document"), " left out"));
    if (left.skipped > 0)
      lines.push_back(cat(part->name, " data: ", counted(left.skipped, "document"), " left out, since they aren't UTF-8"));
    if (left.replaced > 0) {
      lines.push_back(cat(part->name, " data: ", counted(left.replaced, "document"), " with bytes that aren't UTF-8, now U+FFFD"));
    }
    if (!impl.text.tokenizer->end_of_document()) {
      lines.push_back(
          cat(part->name, " data: the tokenizer names no token for the end of a document, so they follow each other without one"));
    }
  }
  if (!impl.validation && impl.valid) {
    lines.push_back(cat("validation: ", counted(impl.valid->documents(), "document"), " of ",
                        impl.valid->documents() + impl.train->documents(), " held out, ", format_count(impl.valid->tokens()), " tokens"));
  }
  if (impl.configuration.training.document_attention) {
    lines.push_back(cat("rows: attention and positions restart at each of ", counted(impl.train->documents(), "document"),
                        "; the first token of one is not predicted"));
  }
  const data::PadCounts& pad = impl.sampler->pad_counts();
  const std::int64_t row = impl.configuration.training.batch.sequence_length + 1;
  if (pad.truncated > 0) lines.push_back(cat("rows: ", counted(pad.truncated, "document"), " of ", pad.rows, " cut at ", row, " tokens"));
  if (pad.skipped > 0) lines.push_back(cat("rows: ", counted(pad.skipped, "document"), " of more than ", row, " tokens left out"));
  if (pad.too_short > 0) lines.push_back(cat("rows: ", counted(pad.too_short, "document"), " of a single token left out"));
  return lines;
}

data::Preview Corpora::preview(std::int64_t number) const {
  const data::RowRange range = impl_->sampler->range(*impl_->train, impl_->sampler->sample_at(number));
  return data::preview_of(*impl_->train, range, impl_->text.tokenizer.get(), impl_->keeps_apart(*impl_->train));
}

}  // namespace sluice::app
