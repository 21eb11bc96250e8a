#include "formats/chat_template.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "formats/golden_chats.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::Pair;
using testing::TempDir;

std::vector<std::vector<ChatMessage>> conversations() {
  std::vector<std::vector<ChatMessage>> all;
  for (const nlohmann::json& chat : expected_chats()["conversations"]) all.push_back(messages_of(chat));
  return all;
}

class PublishedTemplate : public ::testing::TestWithParam<std::string> {
 protected:
  const nlohmann::json& entry() const { return expected_chats()["templates"].at(GetParam()); }
  ChatTemplate open() const {
    return {read_text(kChatFolder + GetParam() + ".jinja"), GetParam(), entry()["variables"].get<std::map<std::string, std::string>>()};
  }
};

TEST_P(PublishedTemplate, GivesTheTextsOfTransformers) {
  const ChatTemplate chat_template = open();
  const auto chats = conversations();
  ASSERT_EQ(chats.size(), entry()["texts"].size());
  ASSERT_GE(chats.size(), 30U);
  for (std::size_t i = 0; i < chats.size(); ++i) {
    for (const bool prompt : {false, true}) {
      const nlohmann::json& text = entry()["texts"][i][prompt ? 1 : 0];
      if (text.is_null()) {
        expect_error<RequestError>([&] { chat_template.render(chats[i], prompt); }, {GetParam() + ":"});
      } else {
        EXPECT_EQ(chat_template.render(chats[i], prompt), text.get<std::string>()) << "conversation " << i;
      }
    }
  }
}

TEST_P(PublishedTemplate, TellsTheAssistantsPart) {
  const ChatTemplate chat_template = open();
  EXPECT_EQ(chat_template.marks_generation(), GetParam().ends_with("_marked"));
  const auto chats = conversations();
  for (std::size_t i = 0; i < chats.size(); ++i) {
    const nlohmann::json& learned = entry()["learned"][i];
    if (learned.is_null()) {
      expect_error<RequestError>([&] { chat_template.render_for_training(chats[i]); }, {GetParam()});
      continue;
    }
    const RenderedChat rendered = chat_template.render_for_training(chats[i]);
    EXPECT_EQ(rendered.text, entry()["texts"][i][0].get<std::string>());
    std::vector<std::vector<std::int64_t>> spans;
    for (const TextSpan span : rendered.learned) spans.push_back({span.begin, span.end});
    EXPECT_EQ(nlohmann::json(spans), learned) << "conversation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(ChatTemplate, PublishedTemplate,
                         ::testing::Values("smollm2", "qwen2_5", "qwen3", "llama2", "llama3", "llama3_1", "mistral_v1", "mistral_v0_3",
                                           "zephyr", "plain", "chatml_marked", "llama3_marked"),
                         [](const auto& each) { return each.param; });

const std::vector<ChatMessage> kChat{{"user", "Hello", {}}, {"assistant", "Hi", {}}, {"user", "And?", {}}, {"assistant", "So", {}}};

std::vector<std::string> learned_texts(const RenderedChat& chat) {
  std::vector<std::string> texts;
  for (const TextSpan span : chat.learned)
    texts.push_back(chat.text.substr(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.end - span.begin)));
  return texts;
}

TEST(ChatTemplate, LearnsTheTurnWithItsEnd) {
  const std::string text =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const RenderedChat chat = ChatTemplate(text, "t", {}).render_for_training(kChat);
  EXPECT_EQ(chat.text, "<user>Hello</>\n<assistant>Hi</>\n<user>And?</>\n<assistant>So</>\n");
  EXPECT_THAT(learned_texts(chat), ElementsAre("Hi</>\n", "So</>\n"));
  // Without a generation prompt the role belongs to what is learned.
  const RenderedChat bare =
      ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "t", {}).render_for_training(kChat);
  EXPECT_THAT(learned_texts(bare), ElementsAre("<assistant>Hi", "<assistant>So"));
  EXPECT_THAT(learned_texts(ChatTemplate("{{ messages[0].content }}", "t", {}).render_for_training({kChat[0]})), ElementsAre());
}

TEST(ChatTemplate, SaysWhyTheAssistantsPartCantBeTold) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    const ChatTemplate t(text, "dir: chat_template", {});
    expect_error<RequestError>([&] { t.render_for_training(kChat); }, pieces);
  };
  refuse("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
         {"dir: chat_template", "turn 2 of the chat", "generation prompt (7 bytes) doesn't begin", "(7 bytes)", "{% generation %}"});
  refuse("{% for m in messages %}{{ m.content }}{% if loop.last %}!{% endif %}{% endfor %}", {"turn 2", "doesn't begin"});
  refuse("{% for m in messages %}{% if m.role == 'assistant' and loop.last %}think{% endif %}{{ m.content }}{% endfor %}",
         {"turn 2", "otherwise when more turns follow", "reasoning"});
  refuse("{% if messages|length < 3 %}{{ raise_exception('too short') }}{% endif %}", {"too short", "the first 1 of 4 turns", "turn 2"});
  const ChatTemplate t("x", "t", {});
  expect_error<RequestError>([&] { t.render({}, true); }, {"t:", "without messages"});
  expect_error<RequestError>([&] { t.render_for_training({}); }, {"t:", "without messages"});
}

TEST(ChatTemplate, SeesFieldsVariablesAndReasoning) {
  const auto render = [](const std::string& text, const ChatMessage& message) {
    return ChatTemplate(text, "t", {{"bos_token", "<s>"}, {"date_string", "1 Jan 2025"}}).render({message}, true);
  };
  EXPECT_EQ(render("{{ bos_token }}{{ date_string }}{{ eos_token }}|{{ tools }}{{ add_generation_prompt }}{{ messages[0].name }}",
                   {"user", "x", {{"name", "Ann"}}}),
            "<s>1 Jan 2025|NoneTrueAnn");
  const std::string reasoning = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}|{{ messages[0].reasoning }}";
  EXPECT_EQ(render(reasoning, {"user", "", {}}), "||");
  EXPECT_EQ(render(reasoning, {"user", "", {{"thinking", "a"}}}), "a|a|");
  EXPECT_EQ(render(reasoning, {"user", "", {{"reasoning", "a"}}}), "a|a|a");
  EXPECT_EQ(render(reasoning, {"user", "", {{"reasoning_content", "a"}, {"thinking", "b"}}}), "a|b|");
}

TEST(ChatTemplate, MovesLeaveNothingBehind) {
  ChatTemplate a("{{ messages[0].content }}", "a", {});
  ChatTemplate b = std::move(a);
  EXPECT_EQ(b.render(kChat, false), "Hello");
  a = std::move(b);
  EXPECT_EQ(a.render(kChat, false), "Hello");
}

TEST(OpenChatTemplate, ReadsADirectory) {
  const TempDir dir;
  EXPECT_EQ(open_chat_template(dir.path()), nullptr);
  dir.write("tokenizer_config.json", R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": null, "model_max_length": 1e30})");
  EXPECT_EQ(open_chat_template(dir.path()), nullptr);
  EXPECT_THAT(special_tokens(dir.path()), ElementsAre(Pair("bos_token", "<b>")));
  dir.write("special_tokens_map.json", R"({"bos_token": "other", "eos_token": "<e>"})");
  EXPECT_THAT(special_tokens(dir.path()), ElementsAre(Pair("bos_token", "<b>"), Pair("eos_token", "<e>")));
  const std::string body = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages[0].content }}";
  dir.write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}, "chat_template": ")" + body + "\"}");
  EXPECT_EQ(open_chat_template(dir.path())->render(kChat, false), "<b><e>Hello");
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]})");
  EXPECT_EQ(open_chat_template(dir.path())->render(kChat, false), "yes");
  dir.write("chat_template.jinja", "file{{ eos_token }}\n");
  EXPECT_EQ(open_chat_template(dir.path())->render(kChat, false), "file<e>");
}

TEST(OpenChatTemplate, RefusesDamage) {
  const TempDir dir;
  const auto damaged = [&](const std::string& text, const std::vector<std::string>& pieces) {
    dir.write("tokenizer_config.json", text);
    expect_error<FormatError>([&] { open_chat_template(dir.path()); }, pieces);
  };
  damaged("{", {"tokenizer_config.json"});
  damaged("[]", {"tokenizer_config.json", "found array, expected an object"});
  damaged(R"({"chat_template": 3})", {"\"chat_template\"", "found number"});
  damaged(R"({"chat_template": [{"name": "default"}]})", {"\"chat_template\"", "\"template\""});
  damaged(R"({"chat_template": "x", "bos_token": 3})", {"\"bos_token\"", "found number"});
  dir.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  expect_error<RequestError>([&] { open_chat_template(dir.path()); }, {"templates rag", "default"});
  dir.write("tokenizer_config.json", "{\"chat_template\": \"a\\n{% include 'x' %}\"}");
  expect_error<RequestError>([&] { open_chat_template(dir.path()); }, {"tokenizer_config.json: chat_template:2:", "include"});
}

}  // namespace
}  // namespace sluice::formats
