// The names of the Trainer on the command line, alone and beside a DeepSpeed file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/configuration.hpp"
#include "app/key_rules.hpp"
#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::app {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;
using Names = std::map<std::string, std::string>;

Examination examined(const Names& trainer, const std::string& file = {}) {
  const TempDir directory;
  ConfigurationRequest request{.trainer = trainer};
  if (!file.empty()) request.file = directory.write("demo.json", file);
  return examine(request, 2);
}

KeyReport report_of(const Examination& examination, const std::string& path) {
  for (const KeyReport& key : examination.configuration.keys) {
    if (key.path == path) return key;
  }
  ADD_FAILURE() << path << " is not reported";
  return {};
}

TEST(TrainerNames, StandAlone) {
  const Examination e = examined({{"model_name_or_path", "models/qwen/"},
                                  {"train_file", "chat.jsonl"},
                                  {"validation_file", "held.jsonl"},
                                  {"output_dir", "out"},
                                  {"num_train_epochs", "2"},
                                  {"per_device_train_batch_size", "4"},
                                  {"gradient_accumulation_steps", "8"},
                                  {"learning_rate", "2e-5"},
                                  {"weight_decay", "0.1"},
                                  {"warmup_ratio", "0.1"},
                                  {"lr_scheduler_type", "cosine"},
                                  {"max_grad_norm", "0.5"},
                                  {"bf16", "true"},
                                  {"max_seq_length", "512"},
                                  {"save_total_limit", "2"},
                                  {"logging_steps", "10"},
                                  {"dataloader_num_workers", "4"},
                                  {"report_to", "wandb"}});
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_THAT(e.missing_for_plan, IsEmpty());
  EXPECT_THAT(e.missing_for_training, IsEmpty());
  const Configuration& c = e.configuration;
  EXPECT_EQ(c.model_path, "models/qwen/");
  EXPECT_EQ(c.init, Init::kWeights);
  EXPECT_THAT(c.train_data, ElementsAre("chat.jsonl"));
  EXPECT_THAT(c.valid_data, ElementsAre("held.jsonl"));
  EXPECT_EQ(c.output, "out");
  EXPECT_EQ(c.epochs, 2);
  EXPECT_EQ(c.training.batch, (spec::BatchSpec{64, 4, 8, 512}));
  EXPECT_EQ(c.training.optimizer, (spec::OptimizerSpec{.weight_decay = 0.1, .gradient_clipping = 0.5}));
  EXPECT_EQ(c.training.precision, spec::Precision::kBf16);
  EXPECT_EQ(c.training.schedule.kind, spec::ScheduleKind::kCosine);
  EXPECT_EQ(c.warmup_ratio, 0.1);
  EXPECT_EQ(c.checkpoint_keep, 2);
  EXPECT_EQ(c.print_interval, 10);
  EXPECT_EQ(report_of(e, "--report_to").key_class, KeyClass::kPerformanceOnly);
  EXPECT_EQ(report_of(e, "--learning_rate").key_class, KeyClass::kHonoured);
  EXPECT_THAT(c.notes, Contains("not needed here, since they change no result: --dataloader_num_workers, --report_to"));
}

TEST(TrainerNames, WhatChangesResultsIsRefusedUnlessIgnored) {
  const Names names = {{"label_smoothing_factor", "0.1"},
                       {"neftune_noise_alpha", "5"},
                       {"group_by_length", "True"},
                       {"push_to_hub", "false"},
                       {"average_tokens_across_devices", "True"}};
  EXPECT_THAT(examined(names).problems,
              ElementsAre(HasSubstr("--group_by_length: found True, which changes results: not supported; remove it (or --ignore "
                                    "group_by_length)"),
                          HasSubstr("--label_smoothing_factor: found 0.1"), HasSubstr("--neftune_noise_alpha: found 5")));
  ConfigurationRequest request{.trainer = names};
  for (const char* name : {"label_smoothing_factor", "--neftune-noise-alpha", "group_by_length"}) {
    request.settings.push_back({"sluice.ignore", name, "--ignore", Setting::Kind::kAppend});
  }
  const Examination e = examine(request, 1);
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_EQ(report_of(e, "--label_smoothing_factor").key_class, KeyClass::kIgnored);
}

TEST(TrainerNames, OpenValuesTakeTheTrainersDefaultsWhereItsNamesAreSpoken) {
  const char* file = R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "sluice": {"model": {"path": "m"}, "data": {"train": "d"}, "steps": 10}})";
  const Examination e = examined({{"per_device_train_batch_size", "4"}}, file);
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_THAT(e.missing_for_plan, IsEmpty());
  EXPECT_THAT(e.missing_for_training, IsEmpty());
  EXPECT_EQ(e.configuration.training.batch, (spec::BatchSpec{8, 4, 1, 0}));
  EXPECT_EQ(e.configuration.training.optimizer, (spec::OptimizerSpec{.decay_on = spec::DecayOn::kAll}));
  EXPECT_EQ(e.configuration.training.schedule.peak, 5e-5);
  EXPECT_EQ(e.configuration.training.schedule.warmup_steps, 2);
  EXPECT_THAT(e.configuration.notes,
              Contains("gradient_accumulation_steps is \"auto\": 1, --gradient_accumulation_steps's default in the Trainer"));
  EXPECT_THAT(e.configuration.notes, Contains(HasSubstr("optimizer.params.lr is \"auto\": 5e-05")));
  // A batch nobody gave is asked for.
  EXPECT_THAT(examined({{"learning_rate", "1e-4"}}, file).missing_for_plan,
              ElementsAre(HasSubstr("train_micro_batch_size_per_gpu is \"auto\" and nothing fills it")));
}

TEST(TrainerNames, MismatchesAreListedTogether) {
  const Examination e = examined({{"learning_rate", "1"}, {"max_grad_norm", "2"}, {"per_device_train_batch_size", "3"}, {"optim", "sgd"}},
                                 R"({"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1, "train_batch_size": 8,
                                     "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}})");
  EXPECT_THAT(e.problems,
              Contains("file and command line disagree: train_micro_batch_size_per_gpu is 4 and --per_device_train_batch_size "
                       "says 3; optimizer.type is \"AdamW\" and --optim says sgd; gradient_clipping is 1 and --max_grad_norm says "
                       "2; optimizer.params.lr is 0.5 and --learning_rate says 1; remove one side, or write \"auto\" in the "
                       "file"));
}

TEST(TrainerNames, LengthBySteps) {
  EXPECT_EQ(examined({{"max_steps", "-1"}, {"num_train_epochs", "1.5"}}).configuration.epochs, 1.5);
  const Examination e = examined({{"max_steps", "7"}, {"num_train_epochs", "3"}});
  EXPECT_EQ(e.configuration.steps, 7);
  EXPECT_EQ(e.configuration.epochs, std::nullopt);
  EXPECT_THAT(e.configuration.notes, Contains("--max_steps beats --num_train_epochs 3, as in the Trainer"));
  const Examination replaced = examined({{"max_steps", "7"}}, R"({"sluice": {"epochs": 2}})");
  EXPECT_EQ(replaced.configuration.steps, 7);
  EXPECT_THAT(replaced.problems, IsEmpty());
}

TEST(TrainerNames, IntervalsByStrategyStepsOrPartOfTheRun) {
  const Names valid = {{"validation_file", "v"}};
  const auto settled = [&](Names names, std::int64_t steps) {
    names.insert(valid.begin(), valid.end());
    Examination e = examined(names);
    EXPECT_THAT(e.problems, IsEmpty());
    settle_steps(e.configuration, steps);
    return e.configuration;
  };
  EXPECT_EQ(settled({{"save_steps", "50"}}, 1000).checkpoint_interval, 50);
  EXPECT_EQ(settled({{"save_steps", "0.1"}}, 1001).checkpoint_interval, 101);
  EXPECT_EQ(settled({{"save_strategy", "no"}, {"save_steps", "50"}}, 1000).checkpoint_interval, 0);
  EXPECT_EQ(settled({{"save_strategy", "steps"}}, 1000).checkpoint_interval, 500);
  const Configuration each = settled({{"save_strategy", "epoch"}, {"eval_strategy", "epoch"}, {"num_train_epochs", "3"}}, 10);
  EXPECT_EQ(each.checkpoint_interval, 4);
  EXPECT_EQ(each.evaluate_interval, 4);
  EXPECT_EQ(settled({{"evaluation_strategy", "steps"}, {"eval_steps", "20"}}, 1000).evaluate_interval, 20);
  EXPECT_EQ(settled({{"eval_strategy", "no"}}, 1000).evaluate_interval, 0);
  EXPECT_EQ(settled({{"eval_strategy", "steps"}, {"logging_steps", "30"}}, 1000).evaluate_interval, 30);
  EXPECT_EQ(settled({{"eval_strategy", "steps"}}, 1000).evaluate_interval, 500);
  EXPECT_EQ(settled({{"logging_steps", "30"}}, 1000).evaluate_interval, 0);
  EXPECT_THAT(examined({{"save_strategy", "epoch"}, {"max_steps", "5"}}).problems,
              ElementsAre("--save_strategy: found epoch, but the run's length is no number of epochs; give --save_steps N"));
  EXPECT_THAT(examined({{"save_strategy", "best"}}).problems, ElementsAre(HasSubstr("found \"best\", expected one of no, steps, epoch")));
  EXPECT_THAT(examined({{"eval_steps", "5"}}).problems, ElementsAre(HasSubstr("there is nothing to evaluate on")));
}

TEST(TrainerNames, OptimizersAndTheirSchedules) {
  for (const char* name : {"adamw_torch", "adamw_torch_fused", "paged_adamw_32bit"}) {
    const Examination e = examined({{"optim", name}});
    EXPECT_THAT(e.problems, IsEmpty()) << name;
    EXPECT_EQ(e.configuration.training.optimizer.kind, spec::OptimizerKind::kAdamW);
  }
  EXPECT_THAT(examined({{"optim", "adafactor"}}).problems, ElementsAre(HasSubstr("--optim: found adafactor, which is not supported")));
  EXPECT_THAT(examined({{"optim", "adamw_bnb_8bit"}}).problems, ElementsAre(HasSubstr("not supported")));
  for (const char* name : {"lion_32bit", "sgd"}) EXPECT_THAT(examined({{"optim", name}}).problems, IsEmpty()) << name;
  const spec::OptimizerSpec lion = examined({{"optim", "lion_32bit"}}).configuration.training.optimizer;
  EXPECT_EQ(lion.kind, spec::OptimizerKind::kLion);
  EXPECT_EQ(lion.beta2, 0.999);  // the Trainer's adam_beta2, not Lion's own default
  EXPECT_EQ(examined({{"optim", "sgd"}}).configuration.training.optimizer.kind, spec::OptimizerKind::kSgd);
  EXPECT_THAT(examined({{"learning_rate", "1"}, {"lr_scheduler_type", "cosine"}, {"lr_scheduler_kwargs", "{\"num_cycles\": 2}"}}).problems,
              ElementsAre("--lr_scheduler_kwargs: \"num_cycles\" is no argument of cosine"));
}

TEST(TrainerNames, TheBestModelNeedsAnEvaluation) {
  const Examination e = examined({{"load_best_model_at_end", "True"}, {"metric_for_best_model", "eval_loss"}, {"validation_file", "v"}});
  EXPECT_THAT(e.problems, IsEmpty());
  EXPECT_TRUE(e.configuration.export_best);
  EXPECT_THAT(examined({{"load_best_model_at_end", "True"}}).problems,
              ElementsAre(HasSubstr("--load_best_model_at_end: the best model is known by evaluation only")));
  EXPECT_THAT(examined({{"metric_for_best_model", "accuracy"}}).problems, ElementsAre(HasSubstr("least validation loss")));
}

TEST(TrainerNames, OthersThatNeedALook) {
  EXPECT_EQ(examined({{"resume_from_checkpoint", "True"}}).configuration.resume, ResumeMode::kAuto);
  EXPECT_EQ(examined({{"resume_from_checkpoint", "runs/x"}}).configuration.resume_path, "runs/x");
  EXPECT_EQ(examined({{"validation_split_percentage", "5"}}).configuration.valid_fraction, 0.05);
  EXPECT_EQ(examined({{"train_sampling_strategy", "sequential"}}).configuration.order, DataOrder::kSequential);
  EXPECT_THAT(examined({{"train_sampling_strategy", "group_by_length"}}).problems, ElementsAre(HasSubstr("expected one of random")));
  EXPECT_THAT(examined({{"data_seed", "1"}}).problems, IsEmpty());
  EXPECT_THAT(examined({{"data_seed", "2"}}).problems, ElementsAre(HasSubstr("--data_seed: found 2, but --seed is 1")));
  EXPECT_EQ(examined({{"gradient_checkpointing", "True"}}).configuration.hints.activations.recompute, true);
  EXPECT_THAT(examined({{"overwrite_output_dir", "True"}}).problems, ElementsAre(HasSubstr("never overwritten")));
  EXPECT_THAT(examined({{"no_such_name", "1"}}).problems, ElementsAre(HasSubstr("is no name of the Trainer's")));
}

}  // namespace
}  // namespace sluice::app
