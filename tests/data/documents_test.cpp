#include "data/documents.hpp"

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/error.hpp"
#include "data/doubling_tokenizer.hpp"
#include "support/expect_error.hpp"
#include "support/mutations.hpp"
#include "support/temp_dir.hpp"

namespace sluice::data {
namespace {

using sluice::testing::expect_error;
using sluice::testing::TempDir;
using testing::DoublingTokenizer;
using ::testing::ElementsAre;

/// The texts of all documents, parts in () where they are only read, with the counts that came of it.
struct Texts {
  std::vector<std::string> texts;
  std::vector<std::string> places;
  DocumentCounts counts;
};

Texts read_all(const std::vector<std::string>& paths, const CorpusOptions& options = {}, std::int64_t largest = kLargestDocumentBytes) {
  const SourceFiles files = find_files(paths);
  DocumentReader reader(files, options, shape_of(files, options), nullptr, largest);
  Texts result;
  while (const std::optional<Document> document = reader.next()) {
    std::string text;
    for (const DocumentPart& part : document->parts) text += part.is_learned ? part.text : "(" + part.text + ")";
    result.texts.push_back(text);
    result.places.push_back(std::filesystem::path(document->place).filename().string());
  }
  EXPECT_EQ(reader.bytes_read(), files.bytes());
  result.counts = reader.counts();
  return result;
}

TEST(Documents, TextFilesStandAsTheyAreButForTheMark) {
  const TempDir dir;
  const Texts texts = read_all({dir.write("a.txt", "\xEF\xBB\xBFone\r\ntwo"), dir.write("b.txt", std::string("a\0b\n", 4)),
                                dir.write("c.txt", "\xEF\xBB\xBF"), dir.write("d.txt", "x\xEF\xBB\xBF")});
  EXPECT_THAT(texts.texts, ElementsAre("one\r\ntwo", std::string("a\0b\n", 4), "x\xEF\xBB\xBF"));
  EXPECT_THAT(texts.places, ElementsAre("a.txt", "b.txt", "d.txt"));
  EXPECT_EQ(texts.counts, (DocumentCounts{1, 0, 0}));
}

TEST(Documents, LinesAreTextsOrCompletions) {
  const TempDir dir;
  const std::string lines =
      "\xEF\xBB\xBF{\"text\": \"one\", \"id\": 7}\r\n"
      "\n"
      "  \t\n"
      "{\"text\": \"\"}\n"
      "{\"text\": \"t\\u0000wo\\ud83d\\ude00\\n\"}";  // no newline at the end
  const Texts texts = read_all({dir.write("a.jsonl", lines), dir.write("b.jsonl", "{\"text\": \"three\"}\n")});
  EXPECT_THAT(texts.texts, ElementsAre("one", std::string("t\0wo\xF0\x9F\x98\x80\n", 9), "three"));
  EXPECT_THAT(texts.places, ElementsAre("a.jsonl:1", "a.jsonl:5", "b.jsonl:1"));
  EXPECT_EQ(texts.counts.empty, 1);

  const std::string pairs = "{\"prompt\": \"Q: 1\", \"completion\": \" A\"}\n{\"completion\": \"only\", \"prompt\": \"\"}\n";
  EXPECT_THAT(read_all({dir.write("p.jsonl", pairs)}).texts, ElementsAre("(Q: 1) A", "()only"));

  CorpusOptions options;
  options.text_key = "body";
  EXPECT_THAT(read_all({dir.write("k.jsonl", "{\"body\": \"b\", \"text\": \"t\", \"messages\": []}\n")}, options).texts, ElementsAre("b"));
}

TEST(Documents, LinesOverPiecesOfTheFileAreWhole) {
  const TempDir dir;
  std::string file;
  std::vector<std::string> expected;
  for (const int length : {10, 1 << 20, 3, (3 << 20) + 17, 1}) {
    expected.push_back(std::string(static_cast<std::size_t>(length), static_cast<char>('a' + expected.size())));
    file += "{\"text\": \"" + expected.back() + "\"}\n";
  }
  EXPECT_EQ(read_all({dir.write("a.jsonl", file)}).texts, expected);
  file.pop_back();
  EXPECT_EQ(read_all({dir.write("a.jsonl", file)}).texts, expected) << "without the last newline";
}

TEST(Documents, BytesThatAreNoTextFollowThePolicy) {
  const TempDir dir;
  const std::string good = dir.write("a.txt", "good");
  const std::string bad = dir.write("b.txt",
                                    "line\nba\xFF"
                                    "d");
  expect_error<RequestError>([&] { read_all({good, bad}); }, {"b.txt:2:3", "0xFF", "UTF-8", "invalid_utf8"});
  expect_error<RequestError>([&] { read_all({dir.write("w.txt", std::string("\xFF\xFEh\0", 4))}); }, {"w.txt:1:1", "UTF-16", "iconv"});
  CorpusOptions options;
  options.invalid_utf8 = InvalidUtf8::kReplace;
  Texts texts = read_all({good, bad}, options);
  EXPECT_THAT(texts.texts, ElementsAre("good",
                                       "line\nba\xEF\xBF\xBD"
                                       "d"));
  EXPECT_EQ(texts.counts, (DocumentCounts{0, 0, 1}));
  options.invalid_utf8 = InvalidUtf8::kSkip;
  texts = read_all({bad, good}, options);
  EXPECT_THAT(texts.texts, ElementsAre("good"));
  EXPECT_EQ(texts.counts, (DocumentCounts{0, 1, 0}));

  const std::string lines =
      dir.write("c.jsonl", "{\"text\": \"one\"}\n{\"text\": \"t\xE2\x82wo\"}\n{\"text\": \"\\\\ud83d x\\ud83d\\n\"}\n");
  options = {};
  expect_error<RequestError>([&] { read_all({lines}); }, {"c.jsonl:2:12", "0xE2"});
  options.invalid_utf8 = InvalidUtf8::kReplace;
  texts = read_all({lines}, options);
  EXPECT_THAT(texts.texts, ElementsAre("one", "t\xEF\xBF\xBDwo", "\\ud83d x\xEF\xBF\xBD\n"));
  EXPECT_EQ(texts.counts.replaced, 2);
  options.invalid_utf8 = InvalidUtf8::kSkip;
  EXPECT_THAT(read_all({lines}, options).texts, ElementsAre("one"));
  const std::string half = dir.write("d.jsonl", "{\"text\": \"x\\udc00\"}\n");
  expect_error<RequestError>([&] { read_all({half}); }, {"d.jsonl:1:12", "\\udc00", "surrogate"});
}

TEST(Documents, LinesThatAreNoDocumentsAreNamed) {
  const TempDir dir;
  const auto refuse = [&](const std::string& lines) { read_all({dir.write("a.jsonl", lines)}); };
  expect_error<FormatError>([&] { refuse("{\"text\": \"one\"}\n{\"text\": oops}\n"); }, {"a.jsonl:2:10", "is not JSON"});
  expect_error<FormatError>([&] { refuse("{\"text\": \"one\"}\n{\"text\": \"cut"); }, {"a.jsonl:2", "is not JSON"});
  expect_error<FormatError>([&] { refuse("{\"text\": \"one\"}\n[1]\n"); }, {"a.jsonl:2:1", "array", "an object"});
  expect_error<FormatError>([&] { refuse("[{\"text\": \"one\"}]\n"); }, {"a.jsonl:1:1", "array", "jq"});
  expect_error<RequestError>([&] { refuse("{\"text\": \"one\"}\n{\"txet\": \"two\"}\n"); }, {"a.jsonl:2", "\"txet\"", "\"text\""});
  expect_error<RequestError>([&] { refuse("{\"txet\": \"one\"}\n"); },
                             {"a.jsonl:1", "\"txet\"", "\"completion\"", "\"messages\"", "text_key"});
  expect_error<RequestError>([&] { refuse("{\"text\": 5}\n"); }, {"a.jsonl:1", "text", "number"});
  expect_error<RequestError>([&] { refuse("{\"text\": \"one\"}\n{\"prompt\": \"p\", \"completion\": \"c\"}\n"); },
                             {"a.jsonl:2", "one shape"});
  expect_error<RequestError>([&] { refuse("\n \n"); }, {"a.jsonl", "no documents"});
}

/// ChatML, whose turns end with "$", the tokenizer's end.
formats::ChatTemplate chat_template() {
  return {
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.mood is defined %} ({{ m.mood }}){% endif %}$\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "test",
      {}};
}

TEST(Documents, ChatsGoThroughTheirTemplate) {
  const TempDir dir;
  const formats::ChatTemplate chat = chat_template();
  const auto read = [&](const std::string& lines) {
    const SourceFiles files = find_files({dir.write("c.jsonl", lines)});
    EXPECT_EQ(shape_of(files, {}), Shape::kChat);
    DocumentReader reader(files, {}, Shape::kChat, &chat);
    std::vector<std::string> texts;
    while (const std::optional<Document> document = reader.next()) {
      std::string text;
      for (const DocumentPart& part : document->parts) text += part.is_learned ? "[" + part.text + "]" : part.text;
      texts.push_back(text);
    }
    return texts;
  };
  const std::string turns =
      R"({"messages": [{"role": "user", "content": "q", "mood": "calm"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "weight": 1, "tool_calls": []}], "id": 3})";
  EXPECT_THAT(read(turns + "\n{\"messages\": []}\n"), ElementsAre("user: q (calm)$\nassistant: [a$\n]user: r$\nassistant: [b$\n]"));
  EXPECT_THAT(read(R"({"messages": [{"role": "user", "content": "only"}]})"), ElementsAre("user: only$\n"));

  const auto refuse = [&](const std::string& messages, const std::vector<std::string>& parts) {
    expect_error<RequestError>([&] { read("{\"messages\": " + messages + "}"); }, parts);
  };
  refuse("5", {"c.jsonl:1", "messages", "number", "array"});
  refuse("[5]", {"c.jsonl:1: messages[0]", "number", "role"});
  refuse(R"([{"role": "user"}])", {"messages[0]", "\"content\""});
  refuse(R"([{"role": "user", "content": ["a"]}])", {"messages[0]", "content", "array", "a text"});
  refuse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "a", "tool_calls": [{}]}])",
         {"messages[1]", "tool_calls", "array"});
  refuse(R"([{"role": "user", "content": "a"}], "tools": [{"name": "x"}])", {"c.jsonl:1", "tools"});
}

TEST(Documents, DeepNestingNeedsNoStack) {
  const TempDir dir;
  constexpr std::size_t kDepth = 1'000'000;
  const std::string deep = "{\"text\": \"x\", \"deep\": " + std::string(kDepth, '[') + std::string(kDepth, ']') + "}\n";
  EXPECT_THAT(read_all({dir.write("a.jsonl", deep)}).texts, ElementsAre("x"));
  expect_error<FormatError>([&] { read_all({dir.write("a.jsonl", "{\"text\": " + std::string(kDepth, '[') + "\n")}); },
                            {"a.jsonl:1", "is not JSON"});
}

TEST(Documents, SizesHaveALimitThatIsTold) {
  const TempDir dir;
  expect_error<RequestError>([&] { read_all({dir.write("a.txt", std::string(101, 'x'))}, {}, 100); },
                             {"a.txt", "101 B", "100 B", "JSON lines"});
  EXPECT_EQ(read_all({dir.write("a.txt", std::string(100, 'x'))}, {}, 100).texts.size(), 1U);
  const std::string lines = "{\"text\": \"x\"}\n{\"text\": \"" + std::string(100, 'x') + "\"}\n";
  expect_error<RequestError>([&] { read_all({dir.write("a.jsonl", lines)}, {}, 100); }, {"a.jsonl:2", "100 B", "split"});
  // A line beyond the limit ends the reading at the limit, however long the file is.
  const std::string sparse = dir.write("s.jsonl", "{\"text\": \"x\"}\n");
  std::filesystem::resize_file(sparse, std::uintmax_t{3} << 30);
  expect_error<RequestError>([&] { read_all({sparse}, {}, 1 << 21); }, {"s.jsonl:2", "2.00 MiB"});
}

EncodedDocument encoded(const std::vector<DocumentPart>& parts, Shape shape, const DoublingTokenizer& tokenizer) {
  EncodedDocument result;
  encode({parts, shape, "here"}, tokenizer, result);
  return result;
}

TEST(Encode, DocumentsBeginAndEndAsTheTokenizerSays) {
  DoublingTokenizer tokenizer;
  constexpr std::int32_t kAa = 256 + 'a';
  EncodedDocument document = encoded({{"aab", true}}, Shape::kText, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre(kAa, 'b', 512));
  EXPECT_THAT(document.learned, ElementsAre(1, 1, 1));
  tokenizer.has_begin = true;
  document = encoded({{"aab", true}}, Shape::kFile, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre(513, kAa, 'b', 512));
  EXPECT_THAT(document.learned, ElementsAre(1, 1, 1, 1));
  tokenizer.has_end = false;
  EXPECT_THAT(encoded({{"aab", true}}, Shape::kText, tokenizer).ids, ElementsAre(513, kAa, 'b'));
}

TEST(Encode, LossIsOnTheCompletionAndItsEndAndNoTokenCrossesTheBorder) {
  DoublingTokenizer tokenizer;
  tokenizer.has_begin = true;
  const EncodedDocument document = encoded({{"xa", false}, {"ab", true}}, Shape::kCompletion, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre(513, 'x', 'a', 'a', 'b', 512));
  EXPECT_THAT(document.learned, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(encoded({{"", false}, {"b", true}}, Shape::kCompletion, tokenizer).learned, ElementsAre(0, 1, 1));
  EXPECT_THAT(encoded({{"x", false}, {"", true}}, Shape::kCompletion, tokenizer).learned, ElementsAre(0, 0, 1))
      << "the end is to be learned";
}

TEST(Encode, ChatsBeginAndEndAsTheirTemplateSays) {
  DoublingTokenizer tokenizer;
  tokenizer.has_begin = true;
  // The template wrote the end itself, and white space after it.
  EncodedDocument document = encoded({{"u:", false}, {"hi$", true}, {" \n", false}}, Shape::kChat, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre('u', ':', 'h', 'i', 512, ' ', '\n'));
  EXPECT_THAT(document.learned, ElementsAre(0, 0, 1, 1, 1, 0, 0));
  // It closes turns by something else: the end follows, read only.
  document = encoded({{"u:", false}, {"hi", true}, {"/", false}}, Shape::kChat, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre('u', ':', 'h', 'i', '/', 512));
  EXPECT_THAT(document.learned, ElementsAre(0, 0, 1, 1, 0, 0));
  // It leaves the turn open: the end is what the assistant has to say next.
  EXPECT_THAT(encoded({{"u:", false}, {"hi", true}}, Shape::kChat, tokenizer).learned, ElementsAre(0, 0, 1, 1, 1));
}

TEST(Encode, BordersAreThoseOfTheWholeTextWhereItHasThem) {
  DoublingTokenizer tokenizer;
  tokenizer.adds_space = true;
  EncodedDocument document = encoded({{"xy", false}, {"ab", true}}, Shape::kCompletion, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre(' ', 'x', 'y', 'a', 'b', 512)) << "no second space";
  EXPECT_THAT(document.learned, ElementsAre(0, 0, 0, 1, 1, 1));
  document = encoded({{"xa", false}, {"ab", true}}, Shape::kCompletion, tokenizer);
  EXPECT_THAT(document.ids, ElementsAre(' ', 'x', 'a', ' ', 'a', 'b', 512)) << "a token of the whole crosses the border, so they are apart";
  EXPECT_THAT(document.learned, ElementsAre(0, 0, 0, 1, 1, 1, 1));
}

TEST(Documents, MutatedLinesEndInDocumentsOrErrorsOfOurs) {
  const TempDir dir;
  const std::string seeds[] = {"{\"text\": \"caf\\u00e9 \\ud83d\\ude00 \xE2\x82\xAC\", \"n\": [1, {\"a\": null}]}\n{\"text\": \"two\"}\n",
                               "{\"prompt\": \"p\\n\", \"completion\": \"c\"}\r\n{\"prompt\": \"\", \"completion\": \"d\"}\n",
                               R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "mood": "b"}]})"
                               "\n"};
  const formats::ChatTemplate chat = chat_template();
  std::mt19937 random(5);
  int documents = 0, errors = 0;
  const int rounds = sluice::testing::mutation_rounds();
  for (int round = 0; round < rounds; ++round) {
    std::string text = seeds[round % 3];
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
        default:
          text.insert(at, 1, "{}[]\",:\\\n"[random() % 9]);
      }
      if (text.empty()) text = " ";
    }
    CorpusOptions options;
    options.invalid_utf8 = static_cast<InvalidUtf8>(random() % 3);
    try {
      const SourceFiles files = find_files({dir.write("m.jsonl", text)});
      DocumentReader reader(files, options, shape_of(files, options), &chat);
      EncodedDocument out;
      while (const std::optional<Document> document = reader.next()) {
        encode(*document, DoublingTokenizer(), out);
        ASSERT_EQ(out.ids.size(), out.learned.size());
        ++documents;
      }
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ExitCode::kDefect) << error.what() << "\n" << text;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(documents, rounds / 10);
  EXPECT_GT(errors, rounds / 10);
}

}  // namespace
}  // namespace sluice::data
