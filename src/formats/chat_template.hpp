#pragma once
// A chat as the text a model was trained on: Hugging Face's chat templates, a subset of Jinja (jinja_program.hpp says which).

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

/// Parsed once, rendered often; thread-safe. A template is code from elsewhere: steps, text and nesting of a rendering are bounded.
///
/// It finds messages, tools and documents (none), add_generation_prompt and the variables it was opened with. There is no
/// strftime_now: a training text must not depend on the day. Templates that ask whether it is defined take their own fixed date
/// or the variable date_string; calling it is refused. Reasoning in ChatMessage::more is found under the names transformers gives it
/// (reasoning_content and thinking, whichever of these and reasoning the message has).
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
  /// message where it calls raise_exception, for a chat without messages, and for what else goes wrong, with the template's line.
  std::string render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const;
  /// The text of a whole chat and which of its bytes the assistant writes: from {% generation %} blocks where the template has them, else
  /// the difference of two renderings (up to before the turn with a generation prompt, and with the turn). Throws RequestError where
  /// neither works, saying why.
  ///
  /// By the difference, turn i of role "assistant" is [render(messages before i, with prompt).size, render(messages up to i,
  /// without).size): all that its rendering adds to the prompt, so the content, the end-of-turn token and what the template puts behind it
  /// (ChatML's line end). The first must begin the second, and the second the whole text. Blocks of {% generation %} are taken as they are.
  /// The time by the difference grows with the square of the number of turns.
  RenderedChat render_for_training(const std::vector<ChatMessage>& messages) const;
  /// Whether the template marks the assistant's part itself.
  bool marks_generation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What templates find by the names bos_token, eos_token, unk_token, sep_token, pad_token, cls_token and mask_token: the special tokens of
/// a Hugging Face directory (tokenizer_config.json, else special_tokens_map.json). Absent where it names none. Throws FormatError.
std::map<std::string, std::string> special_tokens(const std::string& directory);

/// The template of a Hugging Face directory (chat_template.jinja, else tokenizer_config.json's chat_template, the one named "default" of a
/// list) with its special tokens. Null where there is none. Throws as the constructor, FormatError for damaged JSON.
std::unique_ptr<ChatTemplate> open_chat_template(const std::string& directory);

}  // namespace sluice::formats
