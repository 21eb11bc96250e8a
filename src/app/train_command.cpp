#include "app/train_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "app/at_work.hpp"
#include "app/budget.hpp"
#include "app/configuration_keys.hpp"
#include "app/corpora.hpp"
#include "app/disk_need.hpp"
#include "app/doctor.hpp"
#include "app/dry_run.hpp"
#include "app/export.hpp"
#include "app/planning.hpp"
#include "app/progress.hpp"
#include "app/run_directory.hpp"
#include "app/session.hpp"
#include "app/starting_point.hpp"
#include "app/swap.hpp"
#include "app/weights.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/run_lock.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "device/cpu/cpu_device.hpp"
#include "model/build.hpp"
#include "ops/context.hpp"
#include "parallel/unsharded.hpp"
#include "profile/measure.hpp"
#include "profile/trace_ring.hpp"
#include "train/loop.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTellEveryNs = 10'000'000'000;  // of what takes long before the first step
constexpr std::chrono::seconds kUntilOthersEnd(5);     // a rank that says why the run failed needs less until it has ended the others
constexpr std::chrono::seconds kLongestTelling(10);    // then the rank ends all without a word
constexpr std::size_t kTraceSpans = 1 << 16;           // spans kept of the last steps: 2.6 MB

/// DeepSpeed's variable for the same wish, in minutes. Absent where it isn't a number above 0.
std::optional<double> silence_limit_seconds(const Environment& environment) {
  const std::string minutes = value_of(environment, "DEEPSPEED_TIMEOUT");
  if (minutes.empty()) return comm::kSilenceLimitSeconds;
  char* end = nullptr;
  const double value = std::strtod(minutes.c_str(), &end);
  if (*end != '\0' || !(value > 0) || value > 1e6) return std::nullopt;
  return 60 * value;
}

/// Everything rank 0 alone does to the run directory, and what all ranks must know of it.
class Job {
 public:
  Job(const Command& command, const Environment& environment, comm::Communicator& world)
      : command_(command),
        environment_(environment),
        world_(world),
        log_({.rank = world.rank(), .colour = takes_colour(environment, STDERR_FILENO)}) {}

  int run() {
    node_cores_ = profile::cores_of_node(world_);
    comm::all_or_none(world_, [&] { read_request(); });
    agree_on_resources();
    comm::all_or_none(world_, [&] { claim(); });
    read_status();
    // From here on a signal is a wish to stop, also while data are tokenised, the machine is measured and the state is loaded.
    stop_.emplace(stop_file());
    if (corpora_->needs_stores()) tokenise();
    if (already_finished()) return 0;
    comm::all_or_none(world_, [&] { check_swap_paths(configuration_); });
    claimed_ = true;
    hosts_ = world_.all_gather(world_.host_name());
    std::sort(hosts_.begin(), hosts_.end());
    hosts_.erase(std::unique(hosts_.begin(), hosts_.end()), hosts_.end());
    comm::all_or_none(world_, [&] { open_log(); });
    on_all_ranks([&] { find_checkpoint(); });
    comm::all_or_none(world_, [&] { record_run(); });
    if (!configuration_.nvme_paths.empty()) prepare_disks();
    make_plan();
    build_engine();
    on_all_ranks([&] { load_state(); });
    return train();
  }

  /// A lost peer or a failing disk under swapped states costs the steps since the last checkpoint, no more, so the queue may start the
  /// job again where there is one.
  ExitCode code_after(const Error& error) const {
    const bool lost = dynamic_cast<const comm::PeerLost*>(&error) != nullptr || (trains_ && is_of_swap(error));
    return lost && !status_.last_checkpoint.empty() ? ExitCode::kResumable : error.code();
  }

  std::string reason_of(const Error& error) const {
    if (dynamic_cast<const comm::PeerLost*>(&error) == nullptr) return error.what();
    return cat(error.what(), "; look at its node. The same command ",
               status_.last_checkpoint.empty() ? "begins anew" : "continues from " + status_.last_checkpoint,
               "; where ranks may be silent for longer, give DEEPSPEED_TIMEOUT in minutes");
  }

  /// Says why the run ends, to people and to whoever reads status.json later. What every rank throws (`agreed`) rank 0 says, and the ranks
  /// end in order; what is thrown by one of them, or by several that lost the same peer or disk, the first one says and ends all.
  int fail(ExitCode code, const std::string& reason, bool agreed) noexcept {
    const int status = static_cast<int>(code);
    if (agreed) {
      if (world_.rank() == 0) tell_failure(code, reason, agreed);
      return status;
    }
    std::optional<RunDirectory::FailureRight> right = RunDirectory::FailureRight{};
    try {
      // What hangs may be the file system that the failure is written to.
      std::thread([this, status] {
        std::this_thread::sleep_for(kLongestTelling);
        world_.abort(status);
      }).detach();
      if (claimed_) right = directory_->claim_failure();
    } catch (const std::exception&) {  // then it is better told twice than not at all
    }
    if (right) {
      tell_failure(code, reason, agreed);
    } else {
      std::this_thread::sleep_for(kUntilOthersEnd);
    }
    world_.abort(status);
    return status;
  }

 private:
  /// Damaged checkpoints that a choice has passed over; once where the next choice passes over the same.
  void warn_of_refused(const std::vector<checkpoint::Refused>& refused) {
    std::string text = checkpoint::describe_refused(refused);
    if (world_.rank() == 0 && !text.empty() && text != told_refused_) log_.warn(text);
    told_refused_ = std::move(text);
  }

  void tell_failure(ExitCode code, const std::string& reason, bool agreed) noexcept {
    log_.error(reason);
    log_.flush();
    if (!claimed_) return;
    try {
      status_.state = code == ExitCode::kResumable ? RunState::kStopped : RunState::kFailed;
      status_.exit_code = static_cast<int>(code);
      status_.reason = reason;
      status_.retriable = code == ExitCode::kResumable;
      directory_->write_status(status_);
      if (agreed && status_.retriable) grant_stop();
    } catch (const std::exception& error) {
      log_.warn(cat("status.json could not be written: ", error.what()));
      log_.flush();
    }
  }

  /// For parts whose failures every rank shares by their own contract (choosing and loading checkpoints).
  template <typename Part>
  static void on_all_ranks(Part part) {
    try {
      part();
    } catch (const CommError&) {
      throw;  // each rank notices for itself that another one is gone
    } catch (Error& error) {
      error.set_agreed();
      throw;
    }
  }

  static bool takes_colour(const Environment& environment, int descriptor) {
    return isatty(descriptor) == 1 && value_of(environment, "NO_COLOR").empty() && value_of(environment, "TERM") != "dumb";
  }

  bool is_of_swap(const Error& error) const {
    const auto* io = dynamic_cast<const IoError*>(&error);
    const std::vector<std::string>& paths = configuration_.nvme_paths;
    return io != nullptr &&
           std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return io->path.starts_with(path + "/sluice-"); });
  }

  void read_request() {
    refuse_wrong_launch(environment_, world_.size());
    if (!silence_limit_seconds(environment_)) {
      throw RequestError(cat("DEEPSPEED_TIMEOUT is \"", value_of(environment_, "DEEPSPEED_TIMEOUT"),
                             "\"; expected the minutes after which a silent rank is given up, a number above 0"));
    }
    configuration_ = load_configuration(command_.request, world_.size(), Demand::kTrain);
    directory_.emplace(configuration_.output);
    directory_->check_writable();
    if (const auto batch = directory_->global_batch()) keep_global_batch(configuration_, *batch);
    model_ = resolve_model(configuration_);
    settle_model(configuration_, model_);
    corpora_.emplace(configuration_, &model_);
    // run.json says what was used, so that whoever continues, generates or exports needn't guess.
    if (!corpora_->tokenizer_used().empty()) configuration_.tokenizer = corpora_->tokenizer_used();
    // A run that goes on needs them no more.
    if (world_.rank() == 0 && configuration_.init == Init::kWeights && !directory_->has_run())
      check_weights(configuration_.model_path, model_);
    facts_ = device::read_cpu_facts();
    node_has_ = std::max(node_cores_, online_cores());
    threads_ = threads_per_rank(configuration_.threads, world_.node_size(), node_cores_, facts_);
    const model::Model built = model::build_model(model_, *parallel::make_unsharded_modules());
    budget_ = memory_budget(configuration_, world_.node_size(), {facts_, device::read_resident_bytes().proportional},
                            state_bytes(built, configuration_.training));
    // The scratch directory of a run that is finished may be gone.
    const std::optional<LastAttempt> before = directory_->last_attempt();
    if (!before || before->status.state != RunState::kFinished) check_swap_paths(configuration_);
    for (const std::string& file : corpora_->train_files()) train_files_.push_back(describe_data_file(file));
    for (const std::string& file : corpora_->valid_files()) valid_files_.push_back(describe_data_file(file));
    // What needs no store is refused before anything is made; the rest has to know first whether the run directory is its own.
    if (!corpora_->needs_stores()) {
      open_data();
    } else {
      fingerprint_ = fingerprint_of(configuration_, model_, train_files_, valid_files_);
    }
  }

  std::string stores() const { return directory_->path() + "/tokens"; }

  /// Corpora and samples, and what follows from their number.
  void open_data() {
    corpora_->open(stores());
    // Each rank looks through its part for tokens that the model doesn't have.
    const std::int64_t tokens = corpora_->train().tokens(), ranks = world_.size(), rank = world_.rank();
    corpora_->train().check(tokens * rank / ranks, tokens * (rank + 1) / ranks);
    steps_ = steps_of(configuration_, corpora_->sampler());
    settle_steps(configuration_, steps_);
    fingerprint_ = fingerprint_of(configuration_, model_, train_files_, valid_files_);
  }

  void make_stores() {
    if (corpora_->has_stores(stores(), log_)) return;
    // Whoever watches sees that the run goes on, and how it ended.
    log_.open_file(directory_->log_file(0));
    claimed_ = true;
    status_.owner = Owner::this_process(world_.host_name(), "");
    status_.state = RunState::kRunning;
    directory_->write_status(status_);
    if (corpora_->make_stores(stores(), log_, [&] { return stop_->requested(); })) return;
    stop_before_training("the data were tokenised");
  }

  /// Texts become tokens once, by rank 0, while the others wait.
  void tokenise() {
    if (world_.rank() != 0) wait_while_at_work(world_, 0);
    comm::all_or_none(world_, [&] {
      if (world_.rank() != 0) return;
      const AtWork at_work(world_);
      make_stores();
    });
    corpora_->use_stores(world_.broadcast(corpora_->store_names(), 0));
    comm::all_or_none(world_, [&] {
      open_data();
      if (world_.rank() == 0 && directory_->has_run()) changes_ = directory_->check_same_run(fingerprint_);
    });
  }

  /// Ranks see different nodes at different moments; one plan serves all, so the scarcest rank rules.
  void agree_on_resources() {
    for (const std::string& rank : world_.all_gather(cat(budget_.device_bytes, " ", budget_.host_bytes, " ", threads_, " ", node_has_))) {
      std::istringstream words(rank);
      spec::Budget other;
      int threads = 1, cores = 1;
      words >> other.device_bytes >> other.host_bytes >> threads >> cores;
      budget_.device_bytes = std::min(budget_.device_bytes, other.device_bytes);
      budget_.host_bytes = std::min(budget_.host_bytes, other.host_bytes);
      threads_ = std::min(threads_, threads);
      node_has_ = std::min(node_has_, cores);
    }
  }

  void claim() {
    if (world_.rank() != 0) return;
    changes_ = check_continues(configuration_, *directory_, fingerprint_);
    directory_->create();
    lock_.emplace(checkpoint::RunLock::acquire(directory_->path(), {.host = world_.host_name()}));
  }

  /// What the last attempt left.
  void read_status() {
    comm::all_or_none(world_, [&] {
      if (world_.rank() != 0) return;
      const std::optional<LastAttempt> last = directory_->last_attempt();
      if (!last) return;
      if (!last->damage.empty()) log_.warn(cat(last->damage, "; it is written anew, as after an attempt that was killed"));
      before_ = last->status;
      status_.attempt = before_->attempt + 1;
      status_.last_checkpoint = before_->last_checkpoint;
      status_.best_checkpoint = before_->best_checkpoint;
      status_.step = before_->step;
    });
    // Any rank may be the one that has to say how it ended.
    std::istringstream of_root(
        world_.broadcast(cat(status_.attempt, "\n", status_.step, "\n", status_.last_checkpoint, "\n", status_.best_checkpoint, "\n"), 0));
    of_root >> status_.attempt >> status_.step;
    of_root.ignore();
    if (world_.rank() == 0) return;
    std::getline(of_root, status_.last_checkpoint);
    std::getline(of_root, status_.best_checkpoint);
  }

  bool already_finished() {
    std::string found = "0";
    comm::all_or_none(world_, [&] {
      if (world_.rank() != 0 || !before_ || before_->state != RunState::kFinished || before_->step < steps_) return;
      found = "1";
      if (claimed_) directory_->write_status(*before_);
      log_.note(directory_->describe_finished(before_->step));
    });
    return world_.broadcast(found, 0) == "1";
  }

  void open_log() {
    log_.open_file(directory_->log_file(world_.rank()));
    if (world_.rank() != 0) return;
    status_.owner = Owner::this_process(world_.host_name(), "");
    status_.state = RunState::kRunning;
    directory_->write_status(status_);
    const data::Corpus& corpus = corpora_->train();
    const auto files = static_cast<std::int64_t>(corpus.files().size());
    log_.note(cat("model ", model_.name, ", ", world_.size(), " rank", world_.size() == 1 ? "" : "s", ", ", format_count(corpus.tokens()),
                  " tokens (", corpus.tokenizer(), ") in ", counted(files, "file"), ", ", steps_, " steps of ",
                  configuration_.training.batch.global_batch, " x ", configuration_.training.batch.sequence_length, " tokens"));
    log_.note(cat("run directory ", directory_->path()));
    for (const std::string& note : corpora_->describe()) log_.note(note);
    for (const std::string& note : configuration_.notes) log_.note(note);
    for (const std::string& change : changes_) log_.note(cat("changed since the last attempt: ", change));
    if (!lock_->note().empty()) log_.warn(lock_->note());
    const checkpoint::Removal leftovers = checkpoint::sweep_leftovers(directory_->checkpoints());
    for (const std::string& warning : leftovers.warnings) log_.warn(warning);
  }

  /// Not before it is certain that the checkpoints are this run's: afterwards this is what a request is held against.
  void record_run() {
    if (world_.rank() != 0) return;
    RunRecord record;
    if (const std::optional<RunRecord> before = directory_->read_run()) record.started = before->started;
    if (record.started == 0) record.started = wall_seconds();
    record.configuration = to_json(configuration_);
    record.model = spec::to_json(model_);
    record.fingerprint = fingerprint_;
    record.hosts = hosts_;
    record.versions = {{"sluice", SLUICE_VERSION}, {"mpi", comm::mpi_library_version()}, {"kernels", ops::library_versions()}};
    directory_->write_run(record);
    if (!manifest_ || named_ || exists(directory_->plan_file())) return;
    write_durably(directory_->plan_file(), plan_of_checkpoint(*manifest_));
    log_.warn(cat(directory_->plan_file(), ": is gone; the run keeps the plan that ", from_, " was made with"));
  }

  /// Which checkpoint the state comes from, before anything is planned: its signature counts.
  void find_checkpoint() {
    StartingPoint start = find_starting_point(world_, configuration_, *directory_, status_.last_checkpoint, fingerprint_);
    if (!start.note.empty() && world_.rank() == 0) log_.note(start.note);
    warn_of_refused(start.refused);
    from_ = start.path;
    named_ = start.is_named;
    manifest_ = std::move(start.manifest);
  }

  /// Leftovers in the paths to swap to, and the room that is there: of the node that has least.
  void prepare_disks() {
    swap_job_ = world_.broadcast(swap_job(environment_), 0);
    std::string lines;
    comm::all_or_none(world_, [&] {
      if (world_.node_rank() != 0) return;
      for (const std::string& line : remove_swap_leftovers(configuration_, world_.host_name())) lines += line + "\n";
    });
    for (const std::string& host : world_.all_gather(lines)) {
      std::istringstream each(host);
      for (std::string line; std::getline(each, line);) log_.note(line);
    }
    comm::all_or_none(world_, [&] {
      const model::Model built = model::build_model(model_, *parallel::make_unsharded_modules());
      disk_claim_ = remaining_need(configuration_, built, steps_);
      budget_.disk_bytes = disk_budget(configuration_, swap_rooms(configuration_, directory_->path(), disk_claim_, hosts_.size()));
    });
    for (const std::string& rank : world_.all_gather(cat(budget_.disk_bytes)))
      budget_.disk_bytes = std::min<std::int64_t>(budget_.disk_bytes, std::stoll(rank));
  }

  /// What the engine needs for states on disk; says what is about to take long.
  train::SwapSetup swap_setup() {
    train::SwapSetup swap;
    swap.paths = configuration_.nvme_paths;
    swap.identity = {world_.host_name(), swap_job_, world_.rank()};
    swap.engine = planned_.engine;
    swap.allow_network = configuration_.nvme_network;
    comm::all_or_none(world_, [&] { swap.claims = space_claims(configuration_, directory_->path(), disk_claim_); });
    log_.note(cat("swap: writing ", format_bytes(planned_.disk_bytes * world_.node_size()), " once to ", joined(configuration_.nvme_paths),
                  world_.size() > world_.node_size() ? " on every node" : "", " ..."));
    swap.on_fill = [this, begin = now_ns(), told = now_ns()](std::int64_t written, std::int64_t bytes) mutable {
      if (stop_->requested()) stop_before_training("the swap files were written");
      const std::int64_t now = now_ns();
      if (written == 0) begin = told = now;  // reserving the space took until here
      if (now - told < kTellEveryNs) return;
      told = now;
      const double left = static_cast<double>(now - begin) * 1e-9 * static_cast<double>(bytes - written) / static_cast<double>(written);
      log_.note(cat("swap: ", format_bytes(written * world_.node_size()), " of ", format_bytes(bytes * world_.node_size()), " written, ",
                    format_seconds(left), " left"));
    };
    return swap;
  }

  /// Ends the run in a phase before its first step, as asked.
  [[noreturn]] void stop_before_training(const char* phase) const {
    throw ResumableStop(cat("asked to stop by ", stop_->reason(), " while ", phase, "; the same command ",
                            status_.last_checkpoint.empty() ? "begins anew" : "continues from " + status_.last_checkpoint));
  }

  /// What all ranks' engines have to say, each line once; and what will be written, since drives wear.
  void tell_of_engine() {
    std::string mine;
    for (const std::string& note : engine_->notes()) mine += note + "\n";
    std::vector<std::string> told;
    for (const std::string& rank : world_.all_gather(mine)) {
      std::istringstream each(rank);
      for (std::string line; std::getline(each, line);) {
        if (std::find(told.begin(), told.end(), line) == told.end()) told.push_back(line);
      }
    }
    const schedule::DiskTraffic traffic = schedule::disk_traffic(engine_->graph(schedule::GraphKind::kStep), engine_->build_inputs());
    if (world_.rank() != 0) return;
    for (const std::string& line : told) log_.warn(line);
    // A plan that was searched has said it in its explanation.
    if (planned_.disk_bytes == 0 || !planned_.machine.name.empty()) return;
    const auto ranks = static_cast<std::int64_t>(world_.size());
    log_.note(cat("swap: ", world_.size() == 1 ? "it " : "over all ranks it ",
                  describe_traffic({traffic.read_bytes * ranks, traffic.written_bytes * ranks}, planned_.predicted_seconds),
                  "; drives wear by what is written"));
  }

  void make_plan() {
    PlanningRequest request;
    request.configuration = &configuration_;
    request.model = &model_;
    request.budget = budget_;
    request.threads = threads_;
    request.ranks_on_node = world_.node_size();
    request.cores_on_node = node_has_;
    request.directory = &*directory_;
    request.swap_job = swap_job_;
    planned_ = plan_run(world_, request, log_);
    configuration_.training.batch.micro_batch = planned_.plan.micro_batch;
    configuration_.training.batch.accumulation = planned_.plan.accumulation;
  }

  void build_engine() {
    device_ = device::make_cpu_device();
    train::EngineSetup setup;
    setup.model = model_;
    setup.training = configuration_.training;
    setup.plan = planned_.plan;
    setup.group = &world_;
    setup.device = device_.get();
    setup.segments_between_agrees = planned_.segments_between_agrees;
    setup.device_budget_bytes = budget_.device_bytes;
    if (planned_.disk_bytes > 0) setup.swap = swap_setup();
    trace_.emplace(kTraceSpans);
    setup.trace = &*trace_;
    resident_before_ = device::read_resident_bytes();
    engine_.emplace(setup);
    tell_of_engine();
    // Simulator and executor run the same graph, or the prediction means nothing.
    const schedule::StepGraph& graph = engine_->graph(schedule::GraphKind::kStep);
    if (!planned_.machine.name.empty() && Hash::hex_of(graph.hash()) != planned_.graph_hash) {
      throw_on_all_ranks(
          LogicError(cat("the step graph's hash is ", Hash::hex_of(graph.hash()), ", the plan was made for ", planned_.graph_hash)));
    }
    const spec::ArithmeticSignature signature = engine_->signature();
    if (world_.rank() == 0) {
      log_.note(cat("arithmetic signature: ", spec::describe(signature)));
      if (configuration_.dump_graph) engine_->graph(schedule::GraphKind::kStep).dump(std::cout);
    }
    if (manifest_ && world_.rank() == 0 && !manifest_->documents.signature.empty()) {
      const auto different = spec::differences(signature, spec::signature_from_json(manifest_->documents.signature, from_));
      if (!different.empty()) {
        std::string list;
        for (const std::string& item : different) list += cat(list.empty() ? "" : "; ", item);
        log_.note(
            cat("the checkpoint was made under another arithmetic signature, so losses go on within tolerance, not to the bit: ", list));
      }
    }
  }

  /// What another run evaluated, or what was evaluated on other validation data, says nothing here.
  bool evaluations_still_count() {
    const bool changed =
        std::any_of(changes_.begin(), changes_.end(), [](const std::string& change) { return change.starts_with("data.valid"); });
    const bool is_own = fs::weakly_canonical(from_).parent_path() == fs::weakly_canonical(directory_->checkpoints());
    return world_.broadcast(changed ? "n" : "y", 0) == "y" && is_own;
  }

  /// A checkpoint given by path may be another run's. What its optimizer gathered means something else to another one, though it may lie in
  /// planes of the same names.
  void refuse_other_moments() const {
    if (manifest_->documents.training.empty()) return;
    const auto rule = [](spec::OptimizerKind kind) { return kind == spec::OptimizerKind::kAdam ? spec::OptimizerKind::kAdamW : kind; };
    const spec::OptimizerKind there = spec::training_spec_from_json(manifest_->documents.training, from_).optimizer.kind;
    const spec::OptimizerKind asked = configuration_.training.optimizer.kind;
    if (rule(there) == rule(asked)) return;
    throw_on_all_ranks(
        RequestError(cat(from_, ": was made with the optimizer ", spec::name_of(there), ", ", spec::name_of(asked),
                         " is asked, which can't go on with its moments; write that optimizer, or give the checkpoint as --model "
                         "to take its parameters alone")));
  }

  void load_state() {
    start_.seed = configuration_.training.seed;
    if (manifest_) {
      const checkpoint::Progress& progress = manifest_->progress;
      if (progress.global_batch != configuration_.training.batch.global_batch) {
        throw_on_all_ranks(RequestError(cat(
            from_, ": was made with a global batch of ", progress.global_batch, " sequences, ", configuration_.training.batch.global_batch,
            " are asked; the position in the data would not be exact. Keep train_batch_size ", progress.global_batch)));
      }
      refuse_other_moments();
      // Another epoch length: the position would mean other samples.
      const std::int64_t samples = corpora_->sampler().samples_per_epoch();
      if (!named_ && progress.samples_per_epoch != samples) {
        throw_on_all_ranks(RequestError(cat(from_, ": was made with ", progress.samples_per_epoch, " samples an epoch, the data give ",
                                            samples, " now: they have changed. Restore them, or give another --output")));
      }
      const auto infos = train::param_infos(engine_->model());
      const auto fill = train::filling(*engine_);
      const std::int64_t begin = now_ns();
      if (named_) {
        checkpoint::load_checkpoint(world_, from_, infos, fill);
      } else {
        const std::optional<checkpoint::Selection> loaded = checkpoint::load_newest(world_, directory_->checkpoints(), infos, fill);
        warn_of_refused(loaded->refused);
        for (const checkpoint::Refused& refused : loaded->refused) damaged_steps_.push_back(refused.step);
        from_ = loaded->path;
        manifest_ = loaded->manifest;
        status_.last_checkpoint = fs::path(from_).filename().string();
      }
      start_ = manifest_->progress;
      evaluations_count_ = evaluations_still_count();
      if (!evaluations_count_) start_.best.reset();
      engine_->resume(start_);
      if (world_.rank() == 0)
        log_.note(cat("continuing from ", from_, " (step ", start_.step, ", loaded in ",
                      format_seconds(static_cast<double>(now_ns() - begin) * 1e-9), ")"));
      if (start_.step > steps_) {
        log_.note(cat("the checkpoint is of step ", start_.step, ", past the last one that is asked, ", steps_,
                      ": there is nothing to train; give more --steps to go on"));
      }
      return;
    }
    if (configuration_.init != Init::kWeights) return engine_->initialise(configuration_.training.seed);
    std::string source;  // one for all ranks, should a run that is still going on save meanwhile
    comm::all_or_none(world_, [&] {
      if (world_.rank() == 0) source = source_of_weights(configuration_.model_path);
    });
    source = world_.broadcast(source, 0);
    comm::all_or_none(world_, [&] { load_weights(*engine_, source); });
    if (world_.rank() == 0) log_.note(cat("weights from ", source));
  }

  int train() {
    const bool root = world_.rank() == 0;
    std::optional<MetricsFile> metrics;
    std::string loss;  // of the loaded state's evaluation, where that is on record
    comm::all_or_none(world_, [&] {
      if (!root) return;
      metrics.emplace(directory_->metrics_file(), start_.step);
      if (const std::optional<double> recorded = metrics->resumed_loss()) {
        constexpr double kOfOtherData = std::numeric_limits<double>::quiet_NaN();
        loss = cat(std::setprecision(17), evaluations_count_ ? *recorded : kOfOtherData);
      }
      log_.note(describe_sample(corpora_->preview(start_.samples), false));
      tell_disk_need();
    });
    loss = world_.broadcast(loss, 0);
    const auto bytes = engine_->arena_bytes();
    Progress::Options options;
    options.rank = world_.rank();
    options.first_step = start_.step;
    options.steps = steps_;
    options.attempt = status_.attempt;
    options.print_interval = configuration_.print_interval;
    if (root && watched_columns(environment_)) options.columns = [this] { return watched_columns(environment_); };
    options.tier_bytes = bytes;
    options.margin.planned_bytes = bytes[0] + bytes[1] + engine_->bookkeeping_bytes();
    options.margin.before_bytes = resident_before_.proportional;
    options.margin.margin_bytes = facts_.memory_available_bytes / std::max(1, world_.node_size()) - options.margin.planned_bytes;
    status_.step = start_.step;
    status_.best_checkpoint = start_.best ? checkpoint::step_name(start_.best->step) : std::string();
    Progress progress(options, log_, metrics ? &*metrics : nullptr, *stop_, [&](std::int64_t step, const checkpoint::CommitResult* saved) {
      status_.step = step;
      trace_->begin_step(step + 1);
      if (saved != nullptr) {
        status_.last_checkpoint = fs::path(saved->path).filename().string();
        if (saved->best_step >= 0) status_.best_checkpoint = checkpoint::step_name(saved->best_step);
      }
      if (!root) return;
      // Once a second is enough for whoever watches; a checkpoint is told at once.
      const std::int64_t now = now_ns();
      if (saved == nullptr && now - status_written_ns_ < 1'000'000'000) return;
      status_written_ns_ = now;
      try {
        directory_->write_status(status_);
      } catch (const Error& error) {
        // Whoever watches sees an older step; the run itself doesn't depend on it.
        if (!std::exchange(status_warned_, true)) log_.warn(error.what());
      }
    });
    trace_->begin_step(start_.step + 1);
    train::LoopSetup setup;
    setup.engine = &*engine_;
    setup.world = &world_;
    setup.train = &corpora_->train();
    setup.sampler = &corpora_->sampler();
    setup.valid = corpora_->valid();
    setup.valid_sampler = corpora_->valid_sampler();
    setup.keep_best = configuration_.checkpoint_best;
    setup.training = configuration_.training;
    setup.steps = steps_;
    setup.checkpoint_interval = configuration_.checkpoint_interval;
    setup.evaluate_interval = configuration_.evaluate_interval;
    setup.checkpoints = directory_->checkpoints();
    setup.save.keep = static_cast<int>(configuration_.checkpoint_keep);
    setup.save.damaged_steps = damaged_steps_;
    setup.save.writer = cat("sluice ", SLUICE_VERSION);
    if (const std::string point = value_of(environment_, "SLUICE_CRASH_AT"); !point.empty()) {
      setup.save.hook = [point](const char* reached) {  // fault tests cut the process off at a named point
        if (point == reached) raise(SIGKILL);
      };
    }
    setup.documents = {spec::to_json(model_), spec::to_json(configuration_.training), spec::to_json(planned_.plan),
                       spec::to_json(engine_->signature()), identity_document(fingerprint_)};
    setup.start = start_;
    setup.start.attempt = status_.attempt;
    setup.start_is_saved = manifest_ && !named_;
    if (!loss.empty()) setup.start_loss = std::stod(loss);
    setup.stop = &*stop_;
    setup.observer = &progress;
    trains_ = true;
    const train::LoopOutcome outcome = train::run_loop(setup);
    trains_ = false;
    progress.end_line();
    int code = 0;
    std::string reason = "all steps done";
    if (!outcome.finished) {
      reason = "asked to stop";
      const std::vector<std::string> askers = world_.all_gather(stop_->reason());
      const auto asker = std::find_if(askers.begin(), askers.end(), [](const std::string& each) { return !each.empty(); });
      if (asker != askers.end()) reason += cat(" by ", *asker);
      const bool resumable = outcome.saved || !status_.last_checkpoint.empty();
      code = static_cast<int>(resumable ? ExitCode::kResumable : ExitCode::kEnvironment);
    }
    code = std::stoi(world_.broadcast(cat(code), 0));
    comm::all_or_none(world_, [&] {
      if (!root) return;
      if (outcome.finished && configuration_.export_model) export_model();
      metrics->sync();
      status_.step = outcome.progress.step;
      status_.state = outcome.finished ? RunState::kFinished : RunState::kStopped;
      status_.exit_code = code;
      status_.reason = reason;
      status_.retriable = code == static_cast<int>(ExitCode::kResumable);
      directory_->write_status(status_);
      grant_stop();
      log_.note(
          outcome.finished
              ? cat("finished: ", outcome.progress.step, " steps; checkpoint ", directory_->checkpoints(), "/", status_.last_checkpoint)
              : cat("stopped after step ", outcome.progress.step, " (", reason, ")",
                    status_.retriable ? cat("; the same command continues from ", status_.last_checkpoint) : std::string()));
    });
    report_end(outcome);
    return code;
  }

  /// Before the first step, when a full disk costs nothing yet. A run that continues has most of its checkpoints already.
  void tell_disk_need() {
    if (manifest_) return;
    const DiskNeed need = disk_need(configuration_, engine_->model(), steps_);
    const std::int64_t free = free_disk_bytes(directory_->path());
    const std::string text = describe(need, directory_->path(), free);
    if (free < 0 || need.total() <= free) return log_.note(text);
    log_.warn(cat(text, ": not enough for all of them; make room, give --output on another disk or keep fewer (sluice.checkpoint.keep)"));
  }

  /// RUN/model: the last weights, or with "export": "best" those of the lowest validation loss.
  void export_model() {
    const bool best = configuration_.export_best && !status_.best_checkpoint.empty();
    ExportRequest request;
    request.from = cat(directory_->checkpoints(), "/", best ? status_.best_checkpoint : status_.last_checkpoint);
    request.to = directory_->path() + "/model";
    request.tokenizer = exported_tokenizer(configuration_.tokenizer, configuration_.model_path);
    log_.note(
        cat(describe(export_to_hf(request)), best ? cat(", the best by validation loss (", status_.best_checkpoint, ")") : std::string()));
  }

  /// The same command must go on next time.
  void grant_stop() const {
    std::error_code ignored;
    fs::remove(stop_file(), ignored);
  }

  std::string stop_file() const { return directory_->path() + "/STOP"; }

  /// Predicted beside measured, and what memory was used beside what was planned.
  void report_end(const train::LoopOutcome& outcome) {
    const device::ResidentBytes resident = device::read_resident_bytes();
    const auto arenas = engine_->arena_bytes();
    // In the system's peak a page that ranks share counts in each of them. So the peak is what is resident now, such pages divided among
    // the ranks, and what a rank has given back since its peak.
    std::int64_t planned = 0, before = 0, now = 0, peak = 0, undivided = 0;
    train::SwapBytes swapped;
    const train::SwapBytes mine = engine_->swap_bytes();
    for (const std::string& rank :
         world_.all_gather(cat(arenas[0] + arenas[1] + engine_->bookkeeping_bytes(), " ", resident_before_.proportional, " ",
                               resident.proportional, " ", mine.read, " ", mine.written, " ",
                               resident.proportional + std::max<std::int64_t>(0, resident.peak - resident.now), " ", resident.peak))) {
      std::istringstream words(rank);
      std::int64_t values[7]{};
      for (std::int64_t& value : values) words >> value;
      planned += values[0];
      before += values[1];
      now += values[2];
      swapped.read += values[3];
      swapped.written += values[4];
      peak += values[5];
      undivided += values[6];
    }
    if (world_.rank() != 0 || outcome.step_seconds.empty()) return;
    std::vector<double> seconds = outcome.step_seconds;
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    const double measured = seconds[seconds.size() / 2];
    const double predicted = planned_.predicted_seconds;
    const std::string ratio = predicted > 0 ? cat(", predicted ", format_seconds(predicted), " (",
                                                  static_cast<int>(std::lround(100 * predicted / measured)), " % of it)")
                                            : std::string();
    log_.note(cat("step time: median ", format_seconds(measured), " measured over ", seconds.size(), " steps", ratio));
    if (swapped.written > 0) {
      const schedule::DiskTraffic traffic = schedule::disk_traffic(engine_->graph(schedule::GraphKind::kStep), engine_->build_inputs());
      const auto ranks = static_cast<std::int64_t>(world_.size());
      log_.note(cat("swap: ", format_bytes(swapped.written), " written and ", format_bytes(swapped.read),
                    " read by all ranks in this attempt, the first writing included; it ",
                    describe_traffic({traffic.read_bytes * ranks, traffic.written_bytes * ranks}, measured)));
    }
    log_.note(cat("memory of all ranks: ", format_bytes(planned), " planned for arenas and graphs, ", format_bytes(before),
                  " resident before them, ", format_bytes(now), " resident now, ", format_bytes(peak), " at the peak: unplanned then ",
                  format_bytes(peak - planned - before), " (", peak - planned - before, " of ", peak,
                  " bytes); with pages that ranks share counted in each, ", format_bytes(undivided), " at the peak"));
    try {
      write_trace(planned_, *engine_, *trace_, directory_->trace_file());
    } catch (const Error& error) {
      log_.warn(cat("the trace could not be written: ", error.what()));
    }
  }

  const Command& command_;
  const Environment& environment_;
  comm::Communicator& world_;
  Log log_;
  Configuration configuration_;
  spec::ModelSpec model_;
  std::optional<Corpora> corpora_;
  std::vector<DataFile> train_files_, valid_files_;
  std::int64_t steps_ = 0;
  device::CpuFacts facts_;
  int threads_ = 1;
  int node_cores_ = 1;  // that its ranks may use
  int node_has_ = 1;    // whoever may use them
  std::optional<train::StopSource> stop_;
  spec::Budget budget_;
  std::string swap_job_;
  std::int64_t disk_claim_ = 0;  // what the run will still write to its own directory
  bool trains_ = false;
  std::optional<RunDirectory> directory_;
  Fingerprint fingerprint_;
  std::vector<std::string> changes_;
  std::vector<std::string> hosts_;
  std::string told_refused_;
  std::vector<std::int64_t> damaged_steps_;  // of the checkpoints that loading refused
  std::optional<checkpoint::RunLock> lock_;
  bool claimed_ = false;  // the run directory is ours: its status may be written
  Status status_;
  std::optional<Status> before_;  // rank 0: the last attempt's
  std::int64_t status_written_ns_ = 0;
  bool status_warned_ = false;
  std::string from_;
  bool evaluations_count_ = false;  // those that are on record, for the loaded state
  bool named_ = false;              // from_ is the one that the user named, not the newest whole one
  std::optional<checkpoint::Manifest> manifest_;
  Planned planned_;
  std::unique_ptr<device::Device> device_;
  std::optional<profile::TraceRing> trace_;
  device::ResidentBytes resident_before_;
  std::optional<train::Engine> engine_;
  checkpoint::Progress start_;
};

/// What keeps the request from being read is told by the job, once for all ranks.
bool wants_dry_run(const Command& command) {
  try {
    return examine(command.request, command.ranks).configuration.dry_run;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

int train_command(const Command& command, const Environment& environment) {
  // A dry run starts no MPI, so that it works on a login node.
  if (wants_dry_run(command)) return dry_run(command, environment);
  comm::MpiEnvironment mpi;
  const std::unique_ptr<comm::Communicator> world =
      mpi.world({.silence_limit_seconds = silence_limit_seconds(environment).value_or(comm::kSilenceLimitSeconds)});
  device::flush_denormals_on_this_thread();
  Job job(command, environment, *world);
  try {
    return job.run();
  } catch (const Error& error) {
    return job.fail(job.code_after(error), job.reason_of(error), error.is_agreed());
  } catch (const std::bad_alloc&) {
    return job.fail(ExitCode::kEnvironment, "the machine's memory is used up; give smaller budgets (--device-memory, --host-memory)",
                    false);
  } catch (const std::exception& error) {
    return job.fail(ExitCode::kDefect, cat("a defect of sluice: ", error.what()), false);
  }
}

}  // namespace sluice::app
