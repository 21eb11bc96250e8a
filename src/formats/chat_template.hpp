#pragma once
// A chat as the text a model was trained on: Hugging Face's chat templates, a subset of Jinja.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sluice::formats {

/// One `messages` entry: role, content, and any further string fields by name.
struct ChatMessage {
  std::string role;
  std::string content;
  std::map<std::string, std::string> more;
};

/// Bytes [begin, end) of a rendered text.
struct TextSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> learned;  // what the assistant writes, end-of-turn token included where the template puts it there; ascending
};

/// Parsed once, rendered often; thread-safe.
class ChatTemplate {
 public:
  /// `source` names the template in errors ("tokenizer_config.json: chat_template"). `variables`: bos_token, eos_token and the like.
  /// Throws RequestError naming construct and line of what isn't in the subset.
  ChatTemplate(const std::string& text, const std::string& source, std::map<std::string, std::string> variables);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  ~ChatTemplate();

  /// As transformers' apply_chat_template(messages, tokenize=False, add_generation_prompt=...). Throws RequestError with the template's own
  /// message where it calls raise_exception.
  std::string render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const;
  /// The text of a whole chat and which of its bytes the assistant writes: from {% generation %} blocks where the template has them, else the
  /// difference of two renderings (up to before the turn with a generation prompt, and with the turn). Throws RequestError where neither works, saying why.
  RenderedChat render_for_training(const std::vector<ChatMessage>& messages) const;
  /// Whether the template marks the assistant's part itself.
  bool marks_generation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The template of a Hugging Face directory (chat_template.jinja, else tokenizer_config.json's chat_template, the one named "default" of a
/// list) with its special tokens. Null where there is none. Throws as the constructor, FormatError for damaged JSON.
std::unique_ptr<ChatTemplate> open_chat_template(const std::string& directory);

}  // namespace sluice::formats
