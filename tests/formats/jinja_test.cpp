#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "formats/golden_chats.hpp"
#include "formats/jinja_functions.hpp"
#include "formats/jinja_text.hpp"
#include "support/expect_error.hpp"
#include "support/mutations.hpp"

// The language of chat templates, through the one door that the program uses.

namespace sluice::formats {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;

const std::vector<ChatMessage> kChat{{"user", "Hello", {}}, {"assistant", "Hi", {}}};

std::string rendered(const std::string& text, const std::vector<ChatMessage>& chat = kChat) {
  return ChatTemplate(text, "t", {}).render(chat, false);
}

TEST(Jinja, SnippetsGiveWhatJinjaGives) {
  const nlohmann::json all = expected_chats();
  const std::vector<ChatMessage> chat = messages_of(all["snippet_chat"]);
  int texts = 0;
  for (const nlohmann::json& snippet : all["snippets"]) {
    const auto text = snippet["template"].get<std::string>();
    std::string found;
    try {
      found = ChatTemplate(text, "snippet", {{"bos_token", "<s>"}}).render(chat, true);
    } catch (const RequestError& error) {
      EXPECT_TRUE(snippet["text"].is_null()) << text << "\n" << error.what();
      EXPECT_THAT(error.what(), HasSubstr("snippet:"));
      continue;
    }
    if (snippet["text"].is_null()) {
      ADD_FAILURE() << text << "\nis refused by Jinja, gave " << found;
    } else {
      EXPECT_EQ(found, snippet["text"].get<std::string>()) << text;
      ++texts;
    }
  }
  EXPECT_GT(texts, 80);
}

TEST(Jinja, RefusesWhatItLacksByNameAndLineWhenItIsRead) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<RequestError>([&] { ChatTemplate t("\n" + text, "t", {}); }, pieces);
  };
  refuse("{% include 'x' %}", {"t:2:", "{% include %}", "not supported"});
  refuse("{% block x %}{% endblock %}", {"t:2:", "{% block %}"});
  refuse("{% call m() %}{% endcall %}", {"{% call %}"});
  refuse("{% with a = 1 %}{% endwith %}", {"{% with %}"});
  refuse("{% do x.append(1) %}", {"{% do %}"});
  refuse("{% for x in y recursive %}{% endfor %}", {"recursive"});
  refuse("{% set x | trim %}a{% endset %}", {"filter", "{% set %}"});
  refuse("{{ 2 ** 3 }}", {"t:2:", "**"});
  refuse("\n{{ x | tojson(sort_keys=true) }}", {"t:3:", "tojson", "sort_keys"});
  refuse("{{ x | safe }}", {"t:2:", "filter \"safe\"", "supported: capitalize, count"});
  refuse("{{ x is lower }}", {"test \"lower\""});
  refuse("{{ x.format(1) }}", {"method \"format\"", "capitalize, endswith"});
  refuse("{{ x | map('round') }}", {"filter \"round\""});
  refuse("{{ x | selectattr('a', 'sameas', 1) }}", {"test \"sameas\""});
  refuse("{{ cycler(1, 2) }}", {"\"cycler\""});
  refuse("{{ today() }}", {"function \"today\""});
  refuse("{{ m(*x) }}", {"*x"});
  refuse("{{ f()() }}", {"a call of something else"});
  refuse("{{ x | join('a', 'b', 'c') }}", {"filter \"join\"", "found 3 arguments"});
  refuse("{{ x is divisibleby }}", {"divisibleby", "found 0 arguments, expected 1"});
  refuse("{{ x.get() }}", {"method \"get\"", "found 0 arguments, expected at least 1"});
  refuse("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}", {"{% generation %}", "{% macro %}"});
  refuse("{% set x %}{% generation %}a{% endgeneration %}{% endset %}", {"{% generation %}", "{% set %}"});
  refuse("{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}", {"{% generation %} within {% generation %}"});
  refuse("{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", {"{% break %} outside"});
  refuse("{% if true %}\n{% for x in y %}", {"t:3:", "expected {% endfor %}"});
  refuse("{{ 99999999999999999999 }}", {"too large"});
  refuse("{{ '\\ud83d' }}", {"escape"});
  // A macro or variable of that name is another thing.
  EXPECT_EQ(rendered("{% macro cycler(a) %}{{ a }}{% endmacro %}{{ cycler(1) }}{% set self = 2 %}{{ self }}"), "12");
}

TEST(Jinja, RefusesWhatItLacksWhenItShows) {
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    const ChatTemplate t("\n\n" + text, "t", {});
    expect_error<RequestError>([&] { t.render(kChat, false); }, pieces);
  };
  refuse("{{ [1] | select }}", {"t:3:", "printing a generator"});
  refuse("{{ range(3) }}", {"printing a range"});
  refuse("{{ namespace(a=1) }}", {"printing a namespace"});
  refuse("{% macro m() %}{% endmacro %}{{ m }}", {"printing a macro"});
  refuse("{{ [namespace()] }}", {"a namespace within a list"});
  refuse("{% for x in [1] %}{% set y = [loop] %}{% endfor %}", {"loop within a list"});
  refuse("{% macro m() %}{% endmacro %}{% set n = namespace(a=m) %}", {"a macro within"});
  refuse("{{ 'ﬁ' | upper }}", {"case"});
  refuse("{{ 'Σ' | lower }}", {"case"});
  refuse("{{ 'é'.title() }}", {"case"});
  refuse("{{ 9223372036854775807 + 1 }}", {"too large"});
  refuse("{{ strftime_now('%d') }}", {"strftime_now", "day"});
  refuse("{{ raise_exception('line\nbreak') }}", {"t:3: the template refuses this chat: line break"});
  refuse("{{ [1] | map(sort='x') | list }}", {"map", "\"sort\""});
  refuse("{{ [1] | map | list }}", {"map", "expected the name"});
  refuse("{{ [1] | selectattr | list }}", {"the name of an attribute"});
  refuse("{{ [1] | map(messages[0].role) | list }}", {"filter \"user\""});
  EXPECT_EQ(rendered("{{ strftime_now is defined }}"), "False");
}

TEST(Jinja, BoundsTimeTextAndStack) {
  const auto begin = std::chrono::steady_clock::now();
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<RequestError>([&] { rendered(text); }, pieces);
  };
  const auto repeated = [](const std::string& piece, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += piece;
    return all;
  };
  refuse("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {"t:1:", "work in each other"});
  refuse("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", {"too many steps"});
  refuse("{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", {"too many steps"});
  refuse("{% set n = namespace(x=[]) %}{% for a in range(1000) %}{% set n.x = [n.x] %}{% endfor %}", {"deep in each other"});
  refuse("{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == n.x | list }}",
         {"too many steps"});
  refuse("{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}", {"too many steps"});
  refuse("{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
         {"too many steps"});
  refuse("{{ 'a' * 1000000000000 }}", {"too many steps"});
  refuse("{{ '' * 1000000000000 }}{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}", {"too many steps"});
  refuse("{{ ('a' * 10000000).find('a' * 5000000 ~ 'b') }}", {"too many steps"});
  refuse("{{ ('a' * 100000).strip('b' * 100000) }}", {"stripping a set"});
  refuse("{{ " + repeated("(", 2000) + "1" + repeated(")", 2000) + " }}", {"levels"});
  refuse("{{ " + repeated("[", 2000) + repeated("]", 2000) + " }}", {"levels"});
  refuse("{{ " + repeated("-", 2000) + "1 }}", {"levels"});
  refuse("{{ " + repeated("not ", 2000) + "1 }}", {"levels"});
  refuse("{{ 1" + repeated(" + 1", 2000) + " }}", {"levels"});
  refuse("{{ 1" + repeated(" if 1 else 1", 2000) + " }}", {"levels"});
  refuse("{{ x" + repeated(".x", 2000) + " }}", {"levels"});
  refuse("{{ x" + repeated("|trim", 2000) + " }}", {"levels"});
  refuse(repeated("{% if 1 %}", 2000), {"levels"});
  refuse(std::string(2 << 20, 'a'), {"2.00 MiB", "1.00 MiB"});
  EXPECT_EQ(rendered(repeated("{% if 1 %}", 50) + "a" + repeated("{% endif %}", 50)), "a");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Jinja, MutatedTemplatesAreRenderedOrRefused) {
  std::vector<std::string> texts;
  for (const char* name : {"smollm2", "qwen2_5", "qwen3", "llama3_1", "mistral_v0_3", "zephyr", "llama3_marked"})
    texts.push_back(read_text(kChatFolder + name + ".jinja"));
  const nlohmann::json all = expected_chats();
  for (const nlohmann::json& snippet : all["snippets"]) texts.push_back(snippet["template"].get<std::string>());
  const std::vector<std::string> pieces{"{%",
                                        "%}",
                                        "{{",
                                        "}}",
                                        "{#",
                                        "-%}",
                                        "{%-",
                                        "|",
                                        ".",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        ",",
                                        "~",
                                        "+",
                                        "::",
                                        "-",
                                        "messages",
                                        "loop",
                                        "loop.last",
                                        " in ",
                                        " is ",
                                        " not ",
                                        " if ",
                                        " else ",
                                        "{% endif %}",
                                        "{% endfor %}",
                                        "{% for m in messages %}",
                                        "{% if x %}",
                                        "namespace()",
                                        "|list",
                                        "|length",
                                        "|join",
                                        "|tojson",
                                        "|map",
                                        "'",
                                        "\"",
                                        "\\",
                                        "[-1]",
                                        "[0]",
                                        ".content",
                                        ".items()",
                                        ".split()",
                                        "none",
                                        "range(9)",
                                        "99999999999",
                                        "{% generation %}",
                                        "{% endgeneration %}",
                                        "{% set x = ",
                                        "\xff",
                                        "\xe4\xb8"};
  const std::vector<ChatMessage> chat{
      {"system", " s ", {}}, {"user", "Grüße \xff", {{"name", "x"}}}, {"assistant", "a</think>b", {}}, {"user", "", {}}};
  int rendered_count = 0;
  int refused = 0;
  for (int round = 0; round < testing::mutation_rounds(); ++round) {
    const auto seed = static_cast<std::uint64_t>(round);
    const std::string text = testing::mutated(texts[seed % texts.size()], seed, pieces);
    try {
      const ChatTemplate t(text, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
      t.render(chat, true);
      const RenderedChat whole = t.render_for_training(chat);
      std::int64_t end = 0;
      for (const TextSpan span : whole.learned) {
        ASSERT_GE(span.begin, end) << text;
        ASSERT_GT(span.end, span.begin) << text;
        end = span.end;
      }
      ASSERT_LE(end, static_cast<std::int64_t>(whole.text.size())) << text;
      ++rendered_count;
    } catch (const RequestError& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  // Neither all nor none: the mutations reach the inside.
  EXPECT_GT(rendered_count, testing::mutation_rounds() / 20);
  EXPECT_GT(refused, testing::mutation_rounds() / 20);
}

TEST(JinjaText, CutsAndStripsCharactersNotBytes) {
  using jinja::Side;
  EXPECT_EQ(jinja::count_characters("aé世🌍"), 4);
  EXPECT_EQ(jinja::count_characters("a\xff\xfe"), 3);
  EXPECT_EQ(jinja::strip("\u3000 a\u00a0", Side::kBoth), "a");
  EXPECT_EQ(jinja::strip("世a世", Side::kRight, "世"), "世a");
  EXPECT_EQ(jinja::strip("\xb8 a \xe4", Side::kBoth), "\xb8 a \xe4") << "bytes that aren't UTF-8 are no white space";
  EXPECT_THAT(jinja::split("a b\u2003c", std::nullopt, -1, Side::kRight), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_EQ(jinja::quoted("\xff"), "'\xff'");
}

TEST(JinjaText, QuotesOneLineInErrors) {
  EXPECT_EQ(jinja::one_line("a\nb\tc\x01\x7f"
                            "é"),
            "a b c  é");
  std::string longer(1999, 'a');
  longer += "éé";
  EXPECT_EQ(jinja::one_line(longer), std::string(1999, 'a') + "...");
  expect_error<RequestError>([&] { rendered("{{ raise_exception('\n' * 5000 ~ 'x') }}"); }, {"refuses this chat:", "..."});
  expect_error<RequestError>([&] { rendered("{{ x | map('\n') }}"); }, {"filter \" \""});
}

TEST(JinjaFunctions, TablesAreSorted) {
  // They are searched by halving.
  for (const std::string& names : {jinja::filter_names(), jinja::test_names(), jinja::method_names()}) {
    std::vector<std::string> all;
    std::istringstream stream(names);
    for (std::string name; std::getline(stream >> std::ws, name, ',');) all.push_back(name);
    EXPECT_GT(all.size(), 15U);
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end())) << names;
  }
  EXPECT_NE(jinja::find_filter("capitalize"), nullptr);
  EXPECT_NE(jinja::find_filter("upper"), nullptr);
  EXPECT_EQ(jinja::find_filter("zzz"), nullptr);
}

}  // namespace
}  // namespace sluice::formats
