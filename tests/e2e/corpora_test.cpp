// The whole program from people's files: JSON lines, chats, token files, held-out documents, the store of tokens, the `data` verbs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

/// A few words, the same for the same number.
std::string speech(unsigned number, std::size_t bytes) {
  return sample_text(bytes, 1000 + number);
}

class CorporaRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    // A model directory with SmolLM2's kind of tokenizer (600 tokens) and its chat template.
    const fs::path golden = fs::path(SLUICE_SOURCE_DIR) / "tests" / "golden";
    json config = json::parse(read_all(area_->model() + "/config.json"));
    config["vocab_size"] = 608;
    area_->write("chatty/config.json", config.dump());
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      area_->write(std::string("chatty/") + name, read_all((golden / "tokenizers" / "smollm2" / name).string()));
    area_->write("chatty/chat_template.jinja", read_all((golden / "chat_templates" / "smollm2.jinja").string()));

    std::string chats, pairs;
    for (unsigned i = 0; i < 60; ++i) {
      json messages = json::array();
      for (unsigned turn = 0; turn < 1 + i % 3; ++turn) {
        messages.push_back({{"role", "user"}, {"content", speech(10 * i + turn, 5 + i)}});
        messages.push_back({{"role", "assistant"}, {"content", speech(10 * i + turn + 5, 10 + 2 * i)}});
      }
      chats += json{{"messages", messages}}.dump() + "\n";
    }
    area_->write("chats.jsonl", chats);
    // Completions from one byte to all of a row: ranks and micro-batches hold very different numbers of tokens with loss.
    for (unsigned i = 0; i < 120; ++i) {
      const unsigned length = 1 + i * 7 % 30;
      pairs += json{{"prompt", speech(i, 31 - length)}, {"completion", speech(500 + i, length)}}.dump() + "\n";
    }
    area_->write("pairs.jsonl", pairs);
  }
  static void TearDownTestSuite() { delete area_; }

  static std::string path(const std::string& name) { return *area_ / name; }
  static ProgramOutcome train(int ranks, const std::string& output, const std::vector<std::string>& more) {
    return run_program(area_->train(ranks, output, more));
  }
  static ProgramOutcome sluice(const std::vector<std::string>& words) { return run_program(area_->sluice(words)); }
  /// The only store of a run.
  static std::string store_of(const std::string& run) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path(run) + "/tokens")) names.push_back(entry.path().string());
    EXPECT_THAT(names, SizeIs(1));
    return names.empty() ? std::string() : names.front();
  }

  static RunArea* area_;
};
RunArea* CorporaRun::area_ = nullptr;

TEST_F(CorporaRun, ChatsAreTrainedOnWhatTheAssistantWrites) {
  const std::vector<std::string> words = {"--model", path("chatty"),
                                          "--data",  path("chats.jsonl"),
                                          "--plan",  area_->plan(),
                                          "--set",   "sluice.data.valid_fraction=0.1",
                                          "--set",   "sluice.evaluate.interval=10",
                                          "--set",   "sluice.checkpoint.keep=1"};
  std::vector<std::string> first = words;
  first.insert(first.end(), {"--steps", "20"});
  const ProgramOutcome outcome = train(2, "chats", first);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("tokenised 60 documents"));
  EXPECT_THAT(outcome.output, HasSubstr("60 documents (chats)"));
  EXPECT_THAT(outcome.output, HasSubstr("6 documents of 60 held out"));
  EXPECT_THAT(outcome.output, HasSubstr("first sample: 33 tokens"));
  EXPECT_THAT(outcome.output, HasSubstr("⟦"));
  EXPECT_THAT(read_all(path("chats/log/rank-00000.log")), HasSubstr("first sample: "));

  // The first sample in order is seen by the verb that looks at the data.
  const ProgramOutcome inspected = sluice({"data", "inspect", path("chats.jsonl"), "--tokenizer", path("chatty"), "--json"});
  ASSERT_TRUE(ended_with(inspected, 0));
  const json found = json::parse(inspected.output);
  EXPECT_EQ(found.at("shape"), "chats");
  EXPECT_EQ(found.at("documents"), 60);
  EXPECT_EQ(found.at("documents_with_end"), 60);
  EXPECT_EQ(found.at("tokenizer"), "bpe");
  const json& parts = found.at("first_sample").at("parts");
  EXPECT_FALSE(parts.at(0).at("loss").get<bool>());
  EXPECT_THAT(parts.at(0).at("text").get<std::string>(), ::testing::EndsWith("<|im_start|>assistant\n"));
  EXPECT_TRUE(parts.at(1).at("loss").get<bool>());
  EXPECT_EQ(parts.at(1).at("text"), speech(5, 10) + "<|im_end|>\n");

  // Every held-out token that has a loss was predicted, and nothing else.
  const json header = json::parse(read_all(store_of("chats") + "/header").substr(33));
  EXPECT_EQ(header.at("counts").at("tokens"), found.at("tokens"));
  EXPECT_EQ(header.at("counts").at("learned"), found.at("tokens_with_loss"));
  std::int64_t evaluated = 0;
  std::ifstream metrics(path("chats/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const json value = json::parse(line);
    if (value.at("kind") != "evaluate") continue;
    EXPECT_TRUE(evaluated == 0 || evaluated == value.at("tokens"));
    evaluated = value.at("tokens").get<std::int64_t>();
    EXPECT_NEAR(value.at("perplexity").get<double>(), std::exp(value.at("loss").get<double>()),
                1e-6 * value.at("perplexity").get<double>());
  }
  EXPECT_GT(evaluated, 0);
  EXPECT_LT(evaluated, found.at("tokens_with_loss").get<std::int64_t>() / 3);

  // The next attempt reads the same store.
  const auto before = snapshot(store_of("chats"));
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--steps", "25"});
  const ProgramOutcome again = train(2, "chats", more);
  ASSERT_TRUE(ended_with(again, 0));
  EXPECT_THAT(again.output, Not(HasSubstr("tokenis")));
  EXPECT_TRUE(has_each_step_once(path("chats"), 25));
  EXPECT_THAT(changed_files(before, snapshot(store_of("chats"))), ElementsAre());
}

TEST_F(CorporaRun, UnevenMasksGiveTheSameStepsOnAnyNumberOfRanks) {
  const auto run = [&](int ranks, std::int64_t micro, std::int64_t accumulation, const std::string& output, int steps) {
    EXPECT_TRUE(ended_with(train(ranks, output,
                                 {"--data", path("pairs.jsonl"), "--set", "sluice.data.packing=pad", "--set", "train_batch_size=12",
                                  "--steps", std::to_string(steps), "--plan",
                                  area_->plan({.ranks = ranks, .zero_stage = 2, .micro_batch = micro, .accumulation = accumulation})}),
                           0));
  };
  run(1, 12, 1, "pairs", 12);
  run(3, 2, 2, "pairs-moved", 8);
  run(2, 3, 2, "pairs-moved", 12);  // goes on where the three have stopped, into the second epoch
  const Records one = read_records(path("pairs")), moved = read_records(path("pairs-moved"));
  ASSERT_EQ(one.steps.size(), 12U);
  ASSERT_TRUE(has_each_step_once(path("pairs-moved"), 12));
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(moved.steps[i].loss_value(), one.steps[i].loss_value(), 1e-5 * one.steps[i].loss_value()) << "step " << i + 1;
    const double norm = std::stod(one.steps[i].grad_norm);
    EXPECT_NEAR(std::stod(moved.steps[i].grad_norm), norm, 1e-4 * norm) << "step " << i + 1;
  }
}

/// Two documents fill a row exactly, so that eight packed rows are sixteen padded ones.
TEST_F(CorporaRun, DocumentsApartTrainAsRowsOfTheirOwn) {
  json config = json::parse(read_all(area_->model() + "/config.json"));
  for (const char* rate : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[rate] = 0.0;  // which counts rows
  area_->write("plain/config.json", config.dump());
  std::string lines;
  for (unsigned i = 0; i < 240; ++i) lines += json{{"text", speech(i, 15)}}.dump() + "\n";  // and an end
  const auto run = [&](int ranks, const std::string& output, const std::string& steps, const std::string& plan,
                       const std::vector<std::string>& settings) {
    std::vector<std::string> words{"--model", path("plain"), "--data", area_->write("short.jsonl", lines),
                                   "--steps", steps,         "--plan", plan};
    std::vector<std::string> all{"sluice.init=scratch", "sluice.data.tokenizer=bytes", "sluice.data.order=sequential",
                                 "sluice.data.valid_fraction=0.1", "sluice.evaluate.interval=4"};
    all.insert(all.end(), settings.begin(), settings.end());
    for (const std::string& setting : all) words.insert(words.end(), {"--set", setting});
    return train(ranks, output, words);
  };
  const std::string apart = "sluice.data.document_attention=true";
  const std::string alone = area_->plan({.ranks = 1, .zero_stage = 0, .micro_batch = 8, .accumulation = 1});
  ASSERT_TRUE(ended_with(run(1, "padded", "12", area_->plan({.ranks = 1, .zero_stage = 0, .micro_batch = 16, .accumulation = 1}),
                             {"sluice.data.packing=pad", "train_batch_size=16"}),
                         0));
  ASSERT_TRUE(ended_with(run(1, "joined", "1", alone, {}), 0));
  const ProgramOutcome outcome = run(2, "apart", "8", area_->plan({.zero_stage = 3, .rcache_elements = 65536}), {apart});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("attention and positions restart at each of 216 documents"));
  EXPECT_THAT(outcome.output, HasSubstr("first sample: 33 tokens, 30 predicted with loss")) << "not the first ones of documents";
  EXPECT_TRUE(refused_with(run(1, "apart", "12", alone, {}), 2, {"data.document_attention: true there, false asked"}));
  ASSERT_TRUE(ended_with(run(1, "apart", "12", alone, {apart}), 0));  // goes on as rows of one rank
  const Records rows = read_records(path("padded")), documents = read_records(path("apart"));
  ASSERT_TRUE(has_each_step_once(path("apart"), 12));
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(documents.steps[i].loss_value(), rows.steps[i].loss_value(), 1e-5 * rows.steps[i].loss_value()) << "step " << i + 1;
    const double norm = std::stod(rows.steps[i].grad_norm);
    EXPECT_NEAR(std::stod(documents.steps[i].grad_norm), norm, 1e-4 * norm) << "step " << i + 1;
  }
  ASSERT_EQ(rows.evaluations.size(), 3U);
  ASSERT_EQ(documents.evaluations.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(std::stod(documents.evaluations[i].second), std::stod(rows.evaluations[i].second), 1e-4);
  EXPECT_GT(std::abs(read_records(path("joined")).steps[0].loss_value() - rows.steps[0].loss_value()), 1e-4);

  const ProgramOutcome tokenised = sluice({"data", "tokenize", path("text.txt"), "--tokenizer", "bytes", "--output", path("apart.bin")});
  ASSERT_TRUE(ended_with(tokenised, 0));
  EXPECT_TRUE(refused_with(train(0, "apart-llmc", {"--data", path("apart.bin"), "--set", apart, "--steps", "1"}), 2,
                           {"apart.bin", "where documents begin", "document_attention"}));
}

TEST_F(CorporaRun, ChatsInWhichNobodyAnswersAreShownAndRefused) {
  const std::string file = area_->write("asked.jsonl", R"({"messages": [{"role": "user", "content": "anybody?"}]})"
                                                       "\n");
  for (const bool as_json : {false, true}) {
    std::vector<std::string> words{"data", "inspect", file, "--tokenizer", path("chatty")};
    if (as_json) words.push_back("--json");
    const ProgramOutcome outcome = sluice(words);
    EXPECT_TRUE(refused_with(outcome, 2, {"training data: no token of 1 document has a loss", "written by the assistant"}));
    EXPECT_THAT(outcome.output, HasSubstr("anybody?"));
  }
}

TEST_F(CorporaRun, AStepWithoutATokenThatCountsIsSkippedWithAWarning) {
  // The first eight documents have a completion that lies beyond the row.
  std::string lines;
  for (unsigned i = 0; i < 16; ++i) {
    lines += json{{"prompt", speech(i, i < 8 ? 60 : 5)}, {"completion", speech(500 + i, 9)}}.dump() + "\n";
  }
  const ProgramOutcome outcome =
      train(2, "masked",
            {"--data", area_->write("masked.jsonl", lines), "--set", "sluice.data.packing=pad", "--set", "sluice.data.overlong=truncate",
             "--set", "sluice.data.order=sequential", "--steps", "4", "--plan", area_->plan()});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("8 documents of 16 cut at 33 tokens"));
  EXPECT_THAT(outcome.errors, HasSubstr("step 1 changes nothing: none of its tokens counts"));
  EXPECT_THAT(outcome.errors, HasSubstr("step 3 changes nothing"));
  const json manifest = json::parse(read_all(path("masked/checkpoints/step-00000004/manifest.json")));
  EXPECT_EQ(manifest.at("progress").at("step"), 4);
  EXPECT_EQ(manifest.at("progress").at("samples"), 32);
  EXPECT_EQ(manifest.at("progress").at("adam_count"), 2);
}

TEST_F(CorporaRun, ADamagedStoreAndLeftoversAreMadeAnew) {
  const std::vector<std::string> words = {"--data", path("pairs.jsonl"), "--plan", area_->plan({.ranks = 1, .micro_batch = 4})};
  std::vector<std::string> first = words;
  first.insert(first.end(), {"--steps", "3"});
  ASSERT_TRUE(ended_with(train(0, "damaged", first), 0));
  const std::string store = store_of("damaged");
  const auto whole = snapshot(store);
  {
    std::fstream ids(store + "/ids", std::ios::in | std::ios::out | std::ios::binary);
    ids.seekp(100);
    ids.put('\x55');
  }
  fs::create_directories(store + ".tmp.1");
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--steps", "6"});
  const ProgramOutcome outcome = train(0, "damaged", more);
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.errors, HasSubstr("the tokenised data are damaged and are made anew"));
  EXPECT_THAT(changed_files(whole, snapshot(store_of("damaged"))), ElementsAre());
  EXPECT_TRUE(has_each_step_once(path("damaged"), 6));
}

TEST_F(CorporaRun, AWishToStopIsHeardWhileTextsAreTokenised) {
  area_->write("stopped/STOP", "");
  const std::vector<std::string> words = {"--data", path("pairs.jsonl"), "--plan", area_->plan(), "--steps", "3"};
  const ProgramOutcome outcome = train(2, "stopped", words);
  EXPECT_TRUE(refused_with(outcome, 75, {"asked to stop", "tokenised", "the same command"}));
  const RunStatus status = read_run_status(path("stopped"));
  EXPECT_EQ(status.state, "stopped");
  EXPECT_TRUE(status.retriable);
  EXPECT_TRUE(fs::is_empty(path("stopped/tokens")));
  fs::remove(path("stopped/STOP"));
  ASSERT_TRUE(ended_with(train(2, "stopped", words), 0));
  EXPECT_EQ(read_run_status(path("stopped")).attempt, 2);
}

TEST_F(CorporaRun, TokenFilesMadeOfATextTrainAsTheTextDoes) {
  const std::string text = path("text.txt");
  for (const char* output : {"text.bin", "text-tokens"}) {
    const ProgramOutcome made = sluice({"data", "tokenize", text, "--model", path("chatty"), "--output", path(output), "--json"});
    ASSERT_TRUE(ended_with(made, 0));
    EXPECT_EQ(json::parse(made.output).at("documents"), 1);
  }
  const auto run = [&](const std::string& output, const std::string& data) {
    EXPECT_TRUE(ended_with(
        train(0, output,
              {"--model", path("chatty"), "--data", data, "--steps", "5", "--plan", area_->plan({.ranks = 1, .micro_batch = 4})}),
        0));
  };
  run("of-text", text);
  run("of-llmc", path("text.bin"));
  run("of-megatron", path("text-tokens.bin"));
  EXPECT_TRUE(has_each_step_once(path("of-text"), 5));
  EXPECT_TRUE(same_bits(path("of-llmc"), path("of-text")));
  EXPECT_TRUE(same_bits(path("of-megatron"), path("of-text")));
  EXPECT_FALSE(fs::exists(path("of-llmc/tokens"))) << "token files need no store";

  const ProgramOutcome inspected = sluice({"data", "inspect", path("text-tokens.bin"), "--model", path("chatty")});
  ASSERT_TRUE(ended_with(inspected, 0));
  EXPECT_THAT(inspected.output, HasSubstr("Megatron tokens"));
  EXPECT_THAT(inspected.output, HasSubstr("1 of 1 documents end"));
  EXPECT_THAT(inspected.output, HasSubstr(read_all(text).substr(0, 40)));
  EXPECT_TRUE(refused_with(sluice({"data", "tokenize", path("pairs.jsonl"), "--tokenizer", "bytes", "--output", path("p")}), 2,
                           {"pairs.jsonl:1", "without loss"}));
  EXPECT_FALSE(fs::exists(path("p.bin")));
}

TEST_F(CorporaRun, TheBestCheckpointOutlivesItsTurn) {
  // The validation text is nothing like the training text, so that its loss soon rises.
  std::string noise;
  std::minstd_rand random(3);
  for (int i = 0; i < 600; ++i) noise += static_cast<char>('A' + random() % 26);
  const ProgramOutcome outcome =
      train(0, "best",
            {"--steps", "60", "--plan", area_->plan({.ranks = 1, .micro_batch = 4}), "--set",
             "sluice.data.valid=[\"" + area_->write("noise.txt", noise) + "\"]", "--set", "sluice.evaluate.interval=5", "--set",
             "sluice.checkpoint.interval=5", "--set", "sluice.checkpoint.keep=2"});
  ASSERT_TRUE(ended_with(outcome, 0));
  const Records records = read_records(path("best"));
  std::int64_t best = 0;
  double lowest = 1e9;
  for (const auto& [step, loss] : records.evaluations) {
    if (std::stod(loss) >= lowest) continue;
    lowest = std::stod(loss);
    best = step;
  }
  ASSERT_LT(best, 50) << "the test's own premise";
  char name[32];
  std::snprintf(name, sizeof name, "step-%08d", static_cast<int>(best));
  EXPECT_THAT(checkpoint_names(path("best")), ElementsAre(name, "step-00000055", "step-00000060"));
  EXPECT_EQ(json::parse(read_all(path("best/status.json"))).at("best_checkpoint"), name);
  const json manifest = json::parse(read_all(path("best/checkpoints/step-00000060/manifest.json")));
  EXPECT_EQ(manifest.at("progress").at("best").at("step"), best);
  EXPECT_DOUBLE_EQ(manifest.at("progress").at("best").at("loss").get<double>(), lowest);

  // On other validation data the old loss means nothing: the next checkpoint that is evaluated is the best there is.
  ASSERT_TRUE(
      ended_with(train(0, "best",
                       {"--steps", "65", "--plan", area_->plan({.ranks = 1, .micro_batch = 4}), "--set",
                        "sluice.data.valid=[\"" + area_->write("noise.txt", noise + noise) + "\"]", "--set", "sluice.evaluate.interval=5",
                        "--set", "sluice.checkpoint.interval=5", "--set", "sluice.checkpoint.keep=2"}),
                 0));
  EXPECT_EQ(json::parse(read_all(path("best/status.json"))).at("best_checkpoint"), "step-00000065");
  EXPECT_THAT(checkpoint_names(path("best")), ElementsAre("step-00000060", "step-00000065"));
}

TEST_F(CorporaRun, ADryRunShowsTheFirstSampleAndMakesNothing) {
  const ProgramOutcome outcome = train(0, "dry", {"--model", path("chatty"), "--data", path("chats.jsonl"), "--steps", "3", "--dry-run"});
  ASSERT_TRUE(ended_with(outcome, 0));
  EXPECT_THAT(outcome.output, HasSubstr("JSON lines (chats) in 1 file, tokenised (bpe) before step 1"));
  EXPECT_THAT(outcome.output, HasSubstr("first sample: 33 tokens"));
  EXPECT_THAT(outcome.output, HasSubstr("⟦<|im_start|>system\\nYou are"));
  EXPECT_FALSE(fs::exists(path("dry")));
}

TEST_F(CorporaRun, TextIsContinuedWithTheTokenizerThatTheRunUsed) {
  const auto generated = [](const std::string& model) {
    return sluice({"generate", "--model", path(model), "--prompt", "a word", "--max-new-tokens", "3", "--temperature", "0", "--json"});
  };
  // A run without an export, as one that was stopped, has no tokenizer of its own.
  const std::vector<std::string> chat{"--model", path("chatty"), "--data", path("chats.jsonl"), "--steps", "1"};
  std::vector<std::string> bare = chat;
  bare.insert(bare.end(), {"--set", "sluice.export=false"});
  ASSERT_TRUE(ended_with(train(0, "exported", chat), 0));
  ASSERT_TRUE(ended_with(train(0, "bare", bare), 0));
  const ProgramOutcome from_export = generated("exported");
  ASSERT_TRUE(ended_with(from_export, 0));
  for (const char* part : {"bare", "bare/checkpoints/", "bare/checkpoints/step-00000001"}) {
    EXPECT_EQ(generated(part).output, from_export.output) << part;
  }
  EXPECT_EQ(json::parse(read_all(path("bare/run.json"))).at("configuration").at("data").at("tokenizer"), path("chatty"));
  // Bytes, though the model has more tokens than bytes.
  ASSERT_TRUE(ended_with(
      train(0, "bytes", {"--model", path("chatty"), "--data", path("text.txt"), "--steps", "1", "--set", "sluice.data.tokenizer=bytes"}),
      0));
  EXPECT_TRUE(ended_with(generated("bytes"), 0));
}

TEST_F(CorporaRun, DataThatCanNotBeUsedAreRefusedWithWhatToDo) {
  const auto refused = [&](const std::vector<std::string>& more, int code, const std::vector<std::string>& parts, int ranks = 0) {
    std::vector<std::string> words = {"--steps", "3"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_TRUE(refused_with(train(ranks, "refused", words), code, parts));
    fs::remove_all(path("refused"));
  };
  const std::string chatty = path("chatty"), text = path("text.txt");
  json config = json::parse(read_all(chatty + "/config.json"));
  area_->write("mute/config.json", config.dump());
  refused({"--model", path("mute"), "--data", text}, 2, {"mute", "no tokenizer", "sluice.data.tokenizer=DIR", "token files"}, 2);
  config["vocab_size"] = 599;
  area_->write("narrow/config.json", config.dump());
  refused({"--model", path("narrow"), "--data", text, "--set", "sluice.data.tokenizer=" + chatty}, 2,
          {"chatty", "has 600 tokens", "has 599 rows"});
  refused({"--data", path("chats.jsonl")}, 2, {"chats.jsonl", "chat template", "chat_template=FILE"});
  refused({"--data", area_->write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\xFF\"}\n")}, 2,
          {"bad.jsonl:2:12", "0xFF", "invalid_utf8"}, 2);
  refused({"--data", area_->write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n")}, 4, {"bad.jsonl:2", "is not JSON"}, 2);
  refused({"--data", path("pairs.jsonl"), "--set", "sluice.data.packing=pad", "--set", "sluice.sequence_length=16"}, 2,
          {"documents too long for a row", "sluice.data.overlong"});
  refused({"--data", text, "--set", "sluice.data.valid_fraction=0.5"}, 2, {"found 1 document", "sluice.data.valid"});
  refused({"--data", text, "--data", path("pairs.jsonl")}, 2, {"pairs.jsonl", "one kind"});
}

}  // namespace
}  // namespace sluice::testing
