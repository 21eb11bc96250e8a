#include "app/generate_command.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/corpora.hpp"
#include "app/session.hpp"
#include "app/weights.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/local/local_communicator.hpp"
#include "train/engine.hpp"
#include "train/generate.hpp"

namespace sluice::app {
namespace {

/// Bytes of `text` that are whole characters: a character whose last bytes are still to come stays out.
std::size_t whole_characters(const std::string& text) {
  const std::size_t n = text.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, n); ++back) {
    const auto byte = static_cast<unsigned char>(text[n - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a character
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? n - back : n;
  }
  return n;
}

/// Prints the text of tokens as it becomes known. All of them are decoded each time, since a token's text may depend on those before.
class TextOut {
 public:
  explicit TextOut(const formats::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(std::int32_t token) {
    tokens_.push_back(token);
    const std::string text = formats::decode_for_show(tokenizer_, tokens_, true);
    print(text, whole_characters(text));
  }
  void finish() {
    const std::string text = formats::decode_for_show(tokenizer_, tokens_, true);
    print(text, text.size());
    std::fputc('\n', stdout);
  }

 private:
  void print(const std::string& text, std::size_t end) {
    if (end <= printed_) return;
    std::fwrite(text.data() + printed_, 1, end - printed_, stdout);
    std::fflush(stdout);
    printed_ = end;
  }
  const formats::Tokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;
  std::size_t printed_ = 0;
};

/// The prompt's text as the model reads it.
std::string framed(const GenerateOptions& wanted, const TextTokenizer& text) {
  if (!wanted.chat) return wanted.prompt;
  const auto chat = text.folder.empty() ? nullptr : formats::open_chat_template(text.folder);
  if (!chat) throw RequestError(cat(wanted.model, ": has no chat template; leave out --chat"));
  return chat->render({{"user", wanted.prompt, {}}}, true);
}

std::vector<std::int32_t> tokens_of_prompt(const GenerateOptions& wanted, const TextTokenizer& text) {
  std::vector<std::int32_t> prompt;
  const std::string framed_text = framed(wanted, text);
  // A chat template writes the beginning itself.
  if (const auto begin = text.tokenizer->begin_of_document(); begin && !wanted.chat) prompt.push_back(*begin);
  text.tokenizer->encode(framed_text, prompt);
  // With nothing to continue the model begins where a document would: after the end of the one before.
  if (prompt.empty()) {
    const auto end = text.tokenizer->end_of_document();
    if (!end)
      throw RequestError(cat(wanted.model, ": its tokenizer names no token that ends a document; give a --prompt that isn't empty"));
    prompt.push_back(*end);
  }
  return prompt;
}

}  // namespace

int generate_command(const Command& command) {
  const GenerateOptions& wanted = command.generate;
  Configuration configuration;
  configuration.model_path = wanted.model;
  const spec::ModelSpec model = resolve_model(configuration);
  TextTokenizer text;
  std::vector<std::int32_t> prompt;
  for (const std::int64_t token : wanted.prompt_tokens) {
    if (token < 0 || token >= model.vocab) throw RequestError(cat("prompt token ", token, " is outside the vocabulary of ", model.vocab));
    prompt.push_back(static_cast<std::int32_t>(token));
  }
  const bool as_text = prompt.empty();
  if (as_text) {
    text = open_text_tokenizer(configuration, &model, "; put the model's tokenizer there, or give the prompt as --prompt-tokens");
    prompt = tokens_of_prompt(wanted, text);
  }
  // No longer than what will be there, since every token takes a pass over the whole row.
  const std::int64_t row = std::min(model.context, round_up(static_cast<std::int64_t>(prompt.size()) + wanted.max_new_tokens, 16));

  const auto world = comm::make_single_rank();
  const auto device = device::make_cpu_device();
  train::EngineSetup setup;
  setup.model = model;
  setup.training.batch = {1, 1, 1, row};
  setup.trains = false;
  const device::CpuFacts facts = device::read_cpu_facts();
  setup.plan.threads = threads_per_rank(wanted.threads, 1, facts.cores, facts);
  setup.plan.chunk_elements = 1 << 22;
  setup.plan.activations.assign(static_cast<std::size_t>(2 * model.layers + 2), spec::Activation::kKeep);
  setup.group = world.get();
  setup.device = device.get();
  train::Engine engine(setup);
  load_weights(engine, source_of_weights(wanted.model));

  train::GenerateOptions options;
  options.max_tokens = wanted.max_new_tokens;
  options.temperature = wanted.temperature;
  options.top_k = wanted.top_k;
  options.top_p = wanted.top_p;
  options.seed = wanted.seed;
  for (const std::int64_t token : model.eos_tokens) options.stop_tokens.push_back(static_cast<std::int32_t>(token));
  if (text.tokenizer && text.tokenizer->end_of_document()) options.stop_tokens.push_back(*text.tokenizer->end_of_document());

  std::vector<std::int32_t> drawn;
  std::optional<TextOut> out;
  if (as_text && !command.json) {
    out.emplace(*text.tokenizer);
    if (!wanted.chat) std::fputs(wanted.prompt.c_str(), stdout);
    std::fflush(stdout);
  }
  train::generate(engine, row, prompt, options, [&](std::int32_t token) {
    drawn.push_back(token);
    if (out) out->add(token);
  });
  if (out) {
    out->finish();
  } else if (command.json) {
    nlohmann::ordered_json json{{"tokens", drawn}};
    // Text that ends inside a character is no JSON; what can't be shown is replaced.
    if (as_text) json["text"] = formats::decode_for_show(*text.tokenizer, drawn, true);
    std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::string list;
    for (const std::int32_t token : drawn) list += cat(list.empty() ? "" : ", ", token);
    std::printf("%s\n", list.c_str());
  }
  return 0;
}

}  // namespace sluice::app
