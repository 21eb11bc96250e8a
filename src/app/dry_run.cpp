#include "app/dry_run.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include "app/corpora.hpp"
#include "app/disk_need.hpp"
#include "app/planning.hpp"
#include "app/run_directory.hpp"
#include "app/session.hpp"
#include "app/starting_point.hpp"
#include "app/weights.hpp"
#include "base/text.hpp"
#include "comm/local/local_communicator.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::app {

int dry_run(const Command& given, const Environment& environment) {
  if (is_later_rank(environment)) return 0;  // under mpirun one rank speaks for all
  Command command = given;
  if (!command.ranks) command.ranks = launched_ranks(environment);
  Configuration configuration = load_configuration(command.request, command.ranks, Demand::kTrain);
  const RunDirectory directory(configuration.output);
  directory.check_writable();
  if (const auto batch = directory.global_batch()) keep_global_batch(configuration, *batch);
  const spec::ModelSpec model = resolve_model(configuration);
  settle_model(configuration, model);
  Corpora corpora(configuration, &model);
  if (!corpora.tokenizer_used().empty()) configuration.tokenizer = corpora.tokenizer_used();
  if (configuration.init == Init::kWeights && !directory.has_run()) check_weights(configuration.model_path, model);
  std::vector<DataFile> train_files, valid_files;
  for (const std::string& file : corpora.train_files()) train_files.push_back(describe_data_file(file));
  for (const std::string& file : corpora.valid_files()) valid_files.push_back(describe_data_file(file));
  const Fingerprint fingerprint = fingerprint_of(configuration, model, train_files, valid_files);
  const std::vector<std::string> changes = check_continues(configuration, directory, fingerprint);
  const auto world = comm::make_single_rank();
  const std::optional<LastAttempt> before = directory.last_attempt();
  const StartingPoint start =
      find_starting_point(*world, configuration, directory, before ? before->status.last_checkpoint : std::string(), fingerprint);
  std::printf(
      "run: %s %s\n", configuration.output.c_str(),
      start.manifest ? cat("goes on from ", start.path, " (step ", start.manifest->progress.step, ")").c_str() : "begins at step 0");
  if (before && !before->damage.empty()) std::printf("%s\n", before->damage.c_str());
  if (!start.note.empty()) std::printf("%s\n", start.note.c_str());
  if (!start.refused.empty()) std::printf("%s\n", checkpoint::describe_refused(start.refused).c_str());
  for (const std::string& change : changes) std::printf("changed since the last attempt: %s\n", change.c_str());
  if (corpora.needs_stores()) {
    std::printf("data: %s\n", corpora.describe_files().c_str());
  } else {
    corpora.open("");
    const data::Corpus& corpus = corpora.train();
    corpus.check(0, corpus.tokens());
    std::printf("data: %s (%s) in %s, %s of %s an epoch\n", counted(corpus.tokens(), "token").c_str(), corpus.tokenizer().c_str(),
                counted(static_cast<std::int64_t>(corpus.files().size()), "file").c_str(),
                counted(corpora.sampler().samples_per_epoch(), "sample").c_str(),
                counted(configuration.training.batch.sequence_length, "token").c_str());
    for (const std::string& line : corpora.describe()) std::printf("%s\n", line.c_str());
    const std::int64_t steps = steps_of(configuration, corpora.sampler());
    if (before && before->status.state == RunState::kFinished && before->status.step >= steps)
      std::printf("%s\n", directory.describe_finished(before->status.step).c_str());
  }
  std::printf("%s\n", describe_sample(corpora.first_preview(), false).c_str());
  for (const std::string& note : configuration.notes) std::printf("%s\n", note.c_str());
  const DiskNeed need =
      disk_need(configuration, model::build_model(model, *parallel::make_unsharded_modules()), configuration.steps.value_or(0));
  std::printf("%s\n", describe(need, configuration.output, free_disk_bytes(configuration.output)).c_str());
  return plan_command(command);
}

}  // namespace sluice::app
