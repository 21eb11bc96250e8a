#include "app/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::app {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Command parse(const std::vector<std::string>& arguments) {
  return parse_command_line(arguments, "9.8.7");
}

/// The settings as "path=value (origin)".
std::vector<std::string> settings_of(const Command& command) {
  std::vector<std::string> lines;
  for (const Setting& each : command.request.settings) lines.push_back(each.path + "=" + each.value + " (" + each.origin + ")");
  return lines;
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(parse({"--version"}).text, "sluice 9.8.7\n");
  EXPECT_EQ(parse({"--version"}).verb, Verb::kText);
  const std::string overview = parse({"--help"}).text;
  for (const char* verb :
       {"train", "profile", "plan", "config check", "checkpoint list", "checkpoint show", "checkpoint verify", "generate", "doctor"}) {
    EXPECT_THAT(overview, HasSubstr(verb));
  }
  EXPECT_THAT(parse({"train", "--help"}).text, HasSubstr("Examples:\n  sluice train demo.json --data book.txt\n"));
  EXPECT_THAT(parse({"config", "check", "-h"}).text, HasSubstr("sluice config check ds_config.json"));
  EXPECT_THAT(parse({"generate", "--help"}).text, HasSubstr("--max-new-tokens"));
}

TEST(CommandLine, HelpOfAGroupListsItsVerbs) {
  for (const char* help : {"--help", "-h", "help"}) {
    const Command c = parse({"checkpoint", help});
    EXPECT_EQ(c.verb, Verb::kText);
    for (const char* verb : {"checkpoint list", "checkpoint show", "checkpoint verify", "checkpoint export"})
      EXPECT_THAT(c.text, HasSubstr(verb));
    EXPECT_THAT(c.text, ::testing::Not(HasSubstr("data inspect")));
  }
  EXPECT_THAT(parse({"config", "--help"}).text, HasSubstr("config check"));
  EXPECT_THAT(parse({"data", "--help"}).text, HasSubstr("data tokenize"));
}

TEST(CommandLine, WordsThatAdviceRepeats) {
  EXPECT_THAT(parse({"plan", "--model", "gpt2-micro", "--ranks", "2", "--train_batch_size=4", "--json", "--dump-graph", "--machine=m.json",
                     "--ranks-per-node=1", "--nvme-path", "/a b", "demo.json"})
                  .request_words,
              ElementsAre("--model", "gpt2-micro", "--train-batch-size=4", "--nvme-path", "/a b", "demo.json"));
}

TEST(CommandLine, TrainTakesFileAndFlags) {
  const Command c = parse({"train",
                           "demo.json",
                           "--model",
                           "gpt2-124m",
                           "--data",
                           "a",
                           "--data=b",
                           "--steps",
                           "20",
                           "--sequence_length=64",
                           "--output",
                           "out",
                           "--resume",
                           "never",
                           "--device-memory",
                           "200MiB",
                           "--pin",
                           "zero_optimization",
                           "--dry-run",
                           "--set",
                           "optimizer.params.lr=1e-4",
                           "--set=sluice.checkpoint.keep=2",
                           "--ignore",
                           "fp16",
                           "--ranks",
                           "4"});
  EXPECT_EQ(c.verb, Verb::kTrain);
  EXPECT_EQ(c.request.file, "demo.json");
  EXPECT_EQ(c.ranks, 4);
  EXPECT_THAT(
      settings_of(c),
      ElementsAre("sluice.model=gpt2-124m (--model)", "sluice.data.train=a (--data)", "sluice.data.train=b (--data)",
                  "sluice.steps=20 (--steps)", "sluice.sequence_length=64 (--sequence-length)", "sluice.output=out (--output)",
                  "sluice.resume=never (--resume)", "sluice.memory.device=200MiB (--device-memory)", "sluice.pin=zero_optimization (--pin)",
                  "sluice.ignore=fp16 (--ignore)", "sluice.dry_run=true (--dry-run)",
                  "optimizer.params.lr=1e-4 (--set optimizer.params.lr)", "sluice.checkpoint.keep=2 (--set sluice.checkpoint.keep)"));
  EXPECT_THAT(c.request.trainer, IsEmpty());
}

TEST(CommandLine, AnOptionTakesOneValueSoThatAFileMayFollow) {
  EXPECT_EQ(parse({"train", "--data", "a", "demo.json"}).request.file, "demo.json");
  EXPECT_EQ(parse({"train", "--set", "a=1", "demo.json"}).request.file, "demo.json");
}

TEST(CommandLine, UnderscoresAndDashesAreOne) {
  const Command c =
      parse({"train", "--sequence_length", "8", "--train_batch_size=4", "--learning-rate", "1e-3", "--per_device_train_batch_size", "2"});
  EXPECT_THAT(settings_of(c), ElementsAre("sluice.sequence_length=8 (--sequence-length)", "train_batch_size=4 (--train-batch-size)"));
  EXPECT_EQ(c.request.trainer, (std::map<std::string, std::string>{{"learning_rate", "1e-3"}, {"per_device_train_batch_size", "2"}}));
}

TEST(CommandLine, DeepSpeedsThreeSpellings) {
  EXPECT_EQ(parse({"train", "--deepspeed", "ds.json"}).request.file, "ds.json");
  EXPECT_EQ(parse({"train", "--deepspeed_config", "ds.json"}).request.file, "ds.json");
  EXPECT_EQ(parse({"train", "--deepspeed", "--deepspeed_config", "ds.json"}).request.file, "ds.json");
  EXPECT_EQ(parse({"train", "--deepspeed_config=ds.json", "--deepspeed"}).request.file, "ds.json");
  EXPECT_EQ(parse({"train", "ds.json", "--deepspeed_config=ds.json"}).request.file, "ds.json");
  EXPECT_EQ(parse({"--local_rank=1", "train", "ds.json"}).request.file, "ds.json");
  EXPECT_EQ(parse({"train", "--local_rank", "3", "ds.json"}).request.file, "ds.json");
  expect_error<RequestError>([] { parse({"train", "a.json", "--deepspeed", "b.json"}); }, {"two configuration files", "a.json", "b.json"});
}

TEST(CommandLine, TrainerNames) {
  const Command c = parse(
      {"train", "--max_steps", "5", "--output_dir", "o", "--save_steps", "7", "--bf16", "True", "--fp16=false", "--adam_beta1", "0.8"});
  EXPECT_THAT(settings_of(c), IsEmpty());
  EXPECT_EQ(c.request.trainer,
            (std::map<std::string, std::string>{
                {"max_steps", "5"}, {"output_dir", "o"}, {"save_steps", "7"}, {"bf16", "True"}, {"fp16", "false"}, {"adam_beta1", "0.8"}}));
  // transformers' flags stand alone, before a value, or with no- before them.
  EXPECT_EQ(parse({"train", "--group_by_length", "--no_dataloader_pin_memory", "--tf32", "0", "demo.json"}).request.trainer,
            (std::map<std::string, std::string>{{"group_by_length", "true"}, {"dataloader_pin_memory", "false"}, {"tf32", "0"}}));
  EXPECT_EQ(parse({"train", "--gradient_checkpointing", "demo.json"}).request.file, "demo.json");
  EXPECT_THAT(parse({"train", "--help"}).text, HasSubstr("--per-device-train-batch-size N"));
  EXPECT_THAT(parse({"train", "--help"}).text, ::testing::Not(HasSubstr("--hub-token")));
  expect_error<RequestError>(
      [] {
        parse({"train", "--learning_rate", "1", "--learning-rate", "2"});
      },
      {"--learning_rate is given twice", "1", "2"});
}

TEST(CommandLine, OtherVerbs) {
  EXPECT_EQ(parse({"profile", "d.json"}).verb, Verb::kProfile);
  const Command plan = parse({"plan", "d.json", "--machine", "m.json", "--ranks", "512", "--ranks-per-node=8", "--json"});
  EXPECT_EQ(plan.verb, Verb::kPlan);
  EXPECT_EQ(plan.machine, "m.json");
  EXPECT_EQ(plan.ranks, 512);
  EXPECT_EQ(plan.ranks_per_node, 8);
  EXPECT_TRUE(plan.json);
  EXPECT_EQ(parse({"config", "check", "d.json"}).verb, Verb::kConfigCheck);
  EXPECT_EQ(parse({"checkpoint", "list", "runs/x", "--json"}).verb, Verb::kCheckpointList);
  EXPECT_EQ(parse({"checkpoint", "show", "runs/x"}).path, "runs/x");
  EXPECT_TRUE(parse({"checkpoint", "verify", "runs/x", "--quick"}).quick);
  EXPECT_TRUE(parse({"doctor", "--json"}).json);
  EXPECT_THAT(parse({"doctor", "--nvme-path", "/a", "--nvme_path=/b"}).nvme_paths, ElementsAre("/a", "/b"));
  EXPECT_THAT(settings_of(parse({"train", "--nvme_path", "/a", "--nvme-path", "/b", "--nvme-space", "2GiB", "--nvme-network"})),
              ElementsAre("sluice.nvme_path=/a (--nvme-path)", "sluice.nvme_path=/b (--nvme-path)",
                          "sluice.memory.nvme=2GiB (--nvme-space)", "sluice.nvme_network=true (--nvme-network)"));
  const Command g = parse({"generate", "--model", "runs/x", "--prompt-tokens", "4,5", "--temperature", "0", "--top_k", "3",
                           "--max_new_tokens", "9", "--seed", "2"});
  EXPECT_EQ(g.verb, Verb::kGenerate);
  const Command inspect = parse({"data", "inspect", "a.txt", "b.txt", "--data", "c.txt", "--tokenizer", "bytes", "--json"});
  EXPECT_EQ(inspect.verb, Verb::kDataInspect);
  EXPECT_TRUE(inspect.json);
  EXPECT_THAT(settings_of(inspect), ElementsAre("sluice.data.train=a.txt (FILE)", "sluice.data.train=b.txt (FILE)",
                                                "sluice.data.train=c.txt (--data)", "sluice.data.tokenizer=bytes (--tokenizer)"));
  const Command tokenize = parse({"data", "tokenize", "a.jsonl", "--set", "sluice.data.text_key=body", "--output", "x.bin"});
  EXPECT_EQ(tokenize.verb, Verb::kDataTokenize);
  EXPECT_EQ(tokenize.path, "x.bin");
  EXPECT_THAT(settings_of(tokenize),
              ElementsAre("sluice.data.train=a.jsonl (FILE)", "sluice.data.text_key=body (--set sluice.data.text_key)"));
  EXPECT_EQ(g.generate.model, "runs/x");
  EXPECT_THAT(g.generate.prompt_tokens, ElementsAre(4, 5));
  EXPECT_EQ(g.generate.temperature, 0);
  EXPECT_EQ(g.generate.top_k, 3);
  EXPECT_EQ(g.generate.max_new_tokens, 9);
  EXPECT_EQ(g.generate.seed, 2u);
  const Command empty = parse({"generate", "--model", "m", "--prompt", "", "--json"});
  EXPECT_THAT(empty.generate.prompt, IsEmpty());
  EXPECT_TRUE(empty.json);
}

TEST(CommandLine, RefusalsNameTheNearestAndWhereHelpIs) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::vector<std::string>& pieces) {
    expect_error<RequestError>([&] { parse(arguments); }, pieces);
  };
  refused({}, {"no verb is given", "train, profile", "sluice --help"});
  refused({"trian"}, {"\"trian\" is no verb", "nearest is \"train\""});
  refused({"launch"}, {"launch is not in this version", "train, profile"});
  refused({"data"}, {"data needs a second word"});
  refused({"data", "tokenize", "a.txt"}, {"data tokenize: ", "--output"});
  refused({"report"}, {"report is not in this version"});
  refused({"checkpoint", "import", "x"}, {"checkpoint import is not in this version"});
  refused({"simulate", "demo.json"}, {"simulate is part of plan", "sluice plan --help"});
  refused({"checkpoint"}, {"needs a second word"});
  refused({"checkpoint", "verfy", "x"}, {"\"checkpoint verfy\" is no verb", "nearest is \"checkpoint verify\""});
  refused({"checkpoint", "list"}, {"path is required", "sluice checkpoint list --help"});
  refused({"--steps", "3", "train"}, {"found --steps before a verb"});
  refused({"train", "--stpes", "3"}, {"unknown option --stpes", "nearest is --steps", "see sluice train --help"});
  refused({"train", "--stpes=3"}, {"unknown option --stpes"});
  refused({"doctor", "--steps", "3"}, {"doctor: unknown option --steps"});
  refused({"train", "a.json", "b.json"}, {"train: ", "b.json", "sluice train --help"});
  refused({"train", "--steps"}, {"--steps", "sluice train --help"});
  refused({"train", "--set", "oops"}, {"--set", "\"oops\"", "KEY.PATH=VALUE"});
  refused({"plan", "--ranks", "0"}, {"--ranks"});
  refused({"generate", "--model", "m"}, {"one of --prompt and --prompt-tokens"});
  refused({"generate", "--prompt", "p"}, {"--model is required"});
  refused({"generate", "--model", "m", "--chat", "--prompt-tokens", "4"}, {"--chat", "--prompt-tokens"});
  refused({"generate", "--model", "m", "--prompt", "p", "--temperature", "nan"},
          {"--temperature: found nan, expected a number of at least 0"});
  refused({"generate", "--model", "m", "--prompt", "p", "--top-p", "1.5"}, {"--top-p: found 1.5, expected a number above 0 and at most 1"});
  refused({"generate", "--model", "m", "--prompt", "p", "--max-new-tokens", "0"},
          {"--max-new-tokens: found 0, expected a number above 0;"});
  refused({"config", "check"}, {"needs a file or options"});
  // What training takes without a file can be checked without one.
  EXPECT_EQ(parse({"config", "check", "--learning_rate", "1e-4"}).request.trainer.at("learning_rate"), "1e-4");
}

}  // namespace
}  // namespace sluice::app
