#include "formats/chat_template.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/jinja_program.hpp"
#include "formats/jinja_render.hpp"
#include "formats/jinja_value.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using jinja::Value;
using nlohmann::json;

// What a rendering may cost (jinja::Budget): a thousand times what a long chat takes, seconds at most.
constexpr std::int64_t kSteps = 10'000'000;
constexpr std::int64_t kStepsPerByte = 64;

/// Has steps of its own for the few values of a chat, which can't be too many.
class Unlimited final : public jinja::Budget {
 public:
  void spend(std::int64_t) override {}
  RequestError error(const std::string& what) const override { return RequestError(cat("a chat: ", what)); }
};

Value message_value(const ChatMessage& message) {
  std::vector<std::pair<Value, Value>> fields{{std::string("role"), message.role}, {std::string("content"), message.content}};
  for (const auto& [name, text] : message.more) fields.emplace_back(name, text);
  // Reasoning goes by three names; templates find it under the two that transformers fills in.
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto reasoning = message.more.find(name);
    if (reasoning == message.more.end()) continue;
    if (!message.more.contains("thinking")) fields.insert(fields.begin(), {std::string("thinking"), reasoning->second});
    if (!message.more.contains("reasoning_content")) fields.emplace_back(std::string("reasoning_content"), reasoning->second);
    break;
  }
  Unlimited budget;
  return jinja::make_dict(budget, std::move(fields));
}

std::string counted(std::size_t i) {
  return cat("turn ", i + 1, " of the chat");
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Program program;
  std::map<std::string, std::string> variables;

  jinja::Rendering render(const std::vector<Value>& messages, std::int64_t bytes, bool add_generation_prompt) const {
    Unlimited budget;
    std::vector<std::pair<std::string, Value>> names;
    for (const auto& [name, text] : variables) names.emplace_back(name, text);
    names.emplace_back("messages", jinja::make_list(budget, messages));
    names.emplace_back("tools", jinja::None{});
    names.emplace_back("documents", jinja::None{});
    names.emplace_back("add_generation_prompt", add_generation_prompt);
    return jinja::render(program, names, kSteps + kStepsPerByte * bytes);
  }

  [[noreturn]] void refuse(const std::string& what) const { throw RequestError(cat(program.source, ": ", what)); }
};

namespace {

struct Chat {
  std::vector<Value> messages;
  std::int64_t bytes = 0;
};

Chat chat_of(const std::vector<ChatMessage>& messages) {
  Chat chat;
  for (const ChatMessage& message : messages) {
    chat.messages.push_back(message_value(message));
    chat.bytes += static_cast<std::int64_t>(message.content.size());
    for (const auto& field : message.more) chat.bytes += static_cast<std::int64_t>(field.second.size());
  }
  return chat;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& text, const std::string& source, std::map<std::string, std::string> variables)
    : impl_(std::make_unique<Impl>(Impl{jinja::parse(text, source), std::move(variables)})) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const {
  if (messages.empty()) impl_->refuse("found a chat without messages");
  const Chat chat = chat_of(messages);
  return impl_->render(chat.messages, chat.bytes, add_generation_prompt).text;
}

RenderedChat ChatTemplate::render_for_training(const std::vector<ChatMessage>& messages) const {
  if (messages.empty()) impl_->refuse("found a chat without messages");
  const Chat chat = chat_of(messages);
  jinja::Rendering whole = impl_->render(chat.messages, chat.bytes, false);
  RenderedChat rendered;
  rendered.text = std::move(whole.text);
  if (marks_generation()) {
    for (const auto& [begin, end] : whole.generated) rendered.learned.push_back({begin, end});
    return rendered;
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const auto rendering_of = [&](std::size_t count, bool prompt) {
      try {
        return impl_->render({chat.messages.begin(), chat.messages.begin() + static_cast<std::ptrdiff_t>(count)}, chat.bytes, prompt).text;
      } catch (const RequestError& error) {
        throw RequestError(cat(error.what(), " (rendering the first ", count, " of ", messages.size(), " turns, to see what of ",
                               counted(i), " the assistant writes; a template with {% generation %} needs no such comparison)"));
      }
    };
    const std::string before = rendering_of(i, true);
    const std::string after = i + 1 == messages.size() ? rendered.text : rendering_of(i + 1, false);
    if (!after.starts_with(before)) {
      impl_->refuse(cat("which part of ", counted(i), " the assistant writes can't be told: the text up to it with a generation prompt (",
                        before.size(), " bytes) doesn't begin the text with it (", after.size(),
                        " bytes); use a template that marks the assistant's part by {% generation %}"));
    }
    if (!rendered.text.starts_with(after)) {
      impl_->refuse(
          cat("which part of ", counted(i),
              " the assistant writes can't be told: the template renders it otherwise when more turns follow, as templates do that drop "
              "the reasoning of earlier turns; train on chats that end with it, or use a template that marks the assistant's part by "
              "{% generation %}"));
    }
    if (after.size() > before.size())
      rendered.learned.push_back({static_cast<std::int64_t>(before.size()), static_cast<std::int64_t>(after.size())});
  }
  return rendered;
}

bool ChatTemplate::marks_generation() const {
  return impl_->program.marks_generation;
}

namespace {

constexpr std::int64_t kFileLimit = 16 * kMiB;
constexpr std::array kSpecialTokens{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// An object, or nothing where there is no such file.
json read_object(const std::string& path) {
  if (!std::filesystem::exists(path)) return nullptr;
  const std::string text = read_text(path, kFileLimit);
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(path, problem);
  json object = json::parse(text);
  if (!object.is_object()) throw FormatError(path, cat("found ", object.type_name(), ", expected an object {...}"));
  return object;
}

/// A special token is a text or an object that holds its text.
void take_special_tokens(const json& object, const std::string& path, std::map<std::string, std::string>& tokens) {
  for (const char* name : kSpecialTokens) {
    const auto at = object.find(name);
    if (at == object.end() || at->is_null() || tokens.contains(name)) continue;
    const json& text = at->is_object() && at->contains("content") ? at->at("content") : *at;
    if (!text.is_string()) throw FormatError(path, cat("key \"", name, "\": found ", text.type_name(), ", expected a text"));
    tokens[name] = text.get<std::string>();
  }
}

/// The template of tokenizer_config.json; nothing where it has none.
std::optional<std::string> template_of(const json& config, const std::string& path) {
  const auto held = config.find("chat_template");
  if (held == config.end() || held->is_null()) return std::nullopt;
  if (held->is_string()) return held->get<std::string>();
  if (!held->is_array())
    throw FormatError(path, cat("key \"chat_template\": found ", held->type_name(), ", expected a text or a list of templates"));
  std::string names;
  for (const json& each : *held) {
    if (!each.is_object() || !each.contains("name") || !each["name"].is_string() || !each.contains("template") ||
        !each["template"].is_string())
      throw FormatError(path, "key \"chat_template\": found an item without the texts \"name\" and \"template\"");
    if (each["name"] == "default") return each["template"].get<std::string>();
    names += cat(names.empty() ? "" : ", ", each["name"].get<std::string>());
  }
  throw RequestError(
      cat(path, ": key \"chat_template\": found templates ", names.empty() ? "of no name" : names, ", expected one named default"));
}

}  // namespace

std::map<std::string, std::string> special_tokens(const std::string& directory) {
  std::map<std::string, std::string> tokens;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    const json object = read_object(path);
    if (object.is_object()) take_special_tokens(object, path, tokens);
  }
  return tokens;
}

std::unique_ptr<ChatTemplate> open_chat_template(const std::string& directory) {
  const std::filesystem::path folder(directory);
  const std::string file_path = (folder / "chat_template.jinja").string();
  std::optional<std::string> text;
  std::string source;
  if (std::filesystem::exists(file_path)) {
    text = read_text(file_path, kFileLimit);
    source = file_path;
  } else {
    const std::string config_path = (folder / "tokenizer_config.json").string();
    const json config = read_object(config_path);
    if (config.is_object()) text = template_of(config, config_path);
    source = cat(config_path, ": chat_template");
  }
  if (!text) return nullptr;
  return std::make_unique<ChatTemplate>(*text, source, special_tokens(directory));
}

}  // namespace sluice::formats
