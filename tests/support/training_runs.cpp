#include "support/training_runs.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The text of a number in a line of JSON without spaces, untouched by any conversion.
std::string number_text(const std::string& line, const std::string& key) {
  const std::string quoted = '"' + key + "\":";
  const std::size_t at = line.find(quoted);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + quoted.size();
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

}  // namespace

Records read_records(const std::string& run) {
  Records records;
  std::istringstream lines(read_all(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // no newline: torn
    const json value = json::parse(line);
    const auto step = value.at("step").get<std::int64_t>();
    if (value.at("kind") == "train") {
      records.steps.push_back({step, number_text(line, "loss"), number_text(line, "grad_norm"), value.at("attempt").get<std::int64_t>()});
    } else {
      records.evaluations.emplace_back(step, number_text(line, "loss"));
    }
  }
  return records;
}

std::int64_t last_step(const std::string& run) {
  std::ifstream file(run + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return 0;
  const auto bytes = static_cast<std::int64_t>(file.tellg());
  const std::int64_t take = std::min<std::int64_t>(bytes, 2000);
  std::string text(static_cast<std::size_t>(take), '\0');
  file.seekg(bytes - take);
  file.read(text.data(), take);
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos) return 0;
  const std::size_t at = text.rfind("\"step\":", end);
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + 7, nullptr, 10);
}

RunStatus read_run_status(const std::string& run) {
  RunStatus status;
  const std::string text = read_all(run + "/status.json");
  if (text.empty()) return status;
  const json value = json::parse(text);
  status.exists = true;
  status.state = value.at("state").get<std::string>();
  status.reason = value.at("reason").get<std::string>();
  status.last_checkpoint = value.at("last_checkpoint").is_null() ? "" : value.at("last_checkpoint").get<std::string>();
  status.step = value.at("step").get<std::int64_t>();
  status.attempt = value.at("attempt").get<std::int64_t>();
  status.exit_code = value.at("exit_code").is_null() ? -1 : value.at("exit_code").get<int>();
  status.retriable = value.at("retriable").get<bool>();
  return status;
}

std::vector<std::string> checkpoint_names(const std::string& run) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run + "/checkpoints", error)) {
    if (fs::exists(entry.path() / "manifest.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_regular_file() && entry.path().filename() != ".sluice-lock") files[name] = read_all(entry.path().string());
    if (entry.is_directory()) files[name] = "(directory)";
  }
  return files;
}

std::vector<std::string> changed_files(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& after) {
  std::vector<std::string> changed;
  for (const auto& [name, content] : before) {
    const auto found = after.find(name);
    if (found == after.end() || found->second != content) changed.push_back(name);
  }
  for (const auto& [name, content] : after) {
    if (!before.contains(name)) changed.push_back(name);
  }
  return changed;
}

std::string sample_text(std::size_t bytes, unsigned seed) {
  const std::vector<std::string> words = {"the",   "river", "ran",   "down",   "to",    "a",    "green", "valley", "and",     "then",
                                          "under", "old",   "stone", "bridge", "where", "two",  "boys",  "were",   "fishing", "all",
                                          "day",   "long",  "until", "night",  "came",  "over", "hills", "with",   "cold",    "wind"};
  std::minstd_rand random(seed);
  std::string text;
  for (std::size_t count = 1; text.size() < bytes; ++count) {
    text += words[random() % words.size()];
    text += count % 11 == 0 ? ".\n" : " ";
  }
  text.resize(bytes);
  return text;
}

RunArea::RunArea() {
  write("text.txt", sample_text(15000, 1));
  write("valid.txt", sample_text(2000, 2));
  write("tiny/config.json", R"({"model_type": "gpt2", "activation_function": "gelu_new", "vocab_size": 257, "n_positions": 64, "n_embd": 32,
 "n_layer": 2, "n_head": 2, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5,
 "initializer_range": 0.02, "tie_word_embeddings": true}
)");
  const json run = {
      {"train_batch_size", 8},
      {"gradient_clipping", 1.0},
      {"steps_per_print", 100},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.003}, {"betas", {0.9, 0.99}}, {"eps", 1e-8}, {"weight_decay", 0.01}}}}},
      {"sluice",
       {{"model", {{"path", model()}}},
        {"init", "scratch"},
        {"data", {{"train", {text()}}}},
        {"sequence_length", 32},
        {"threads", 1},
        {"schedule", {{"kind", "cosine"}, {"warmup_steps", 5}, {"total_steps", 400}}},
        {"checkpoint", {{"interval", 10}, {"keep", 3}}}}}};
  write("run.json", run.dump(1) + "\n");
  fs::create_directories(path() + "/cache");
  fs::create_directories(path() + "/mpi");
}

std::string RunArea::plan(const PlanChoice& choice) const {
  const json mesh = {{"data", choice.ranks}, {"pipeline", 1}, {"tensor", 1}, {"sequence", 1}};
  json homes = json::array();
  if (choice.chunks > 0) {
    homes.push_back(
        {{"count", choice.chunks}, {"each", {{"working", choice.working}, {"gradient", choice.gradient}, {"states", choice.states}}}});
  }
  const json plan = {{"plan",
                      {{"zero_stage", choice.zero_stage},
                       {"chunk_elements", choice.chunk_elements},
                       {"rcache_elements", choice.rcache_elements},
                       {"prefetch_segments", 1},
                       {"micro_batch", choice.micro_batch},
                       {"accumulation", choice.accumulation},
                       {"update_mode", choice.update_mode},
                       {"order", choice.order},
                       {"activations", json::array({json{{"count", 2 * choice.layers + 2}, {"each", choice.activation}}})},
                       {"homes", homes},
                       {"threads", 1},
                       {"mesh", mesh}}},
                     {"segments_between_agrees", 0},
                     {"prediction", {{"seconds", 0.005}}},
                     {"graph_hash", "0"},
                     {"signature",
                      {{"mesh", mesh},
                       {"micro_batch", choice.micro_batch},
                       {"accumulation", choice.accumulation},
                       {"reduce_point", choice.zero_stage < 2 ? "step" : "micro-batch"},
                       {"dtypes", "f32"},
                       {"isa", "avx2"},
                       {"threads", 1},
                       {"libraries", ""}}}};
  return write("plan-" + std::to_string(choice.ranks) + "-zero" + std::to_string(choice.zero_stage) + "-micro" +
                   std::to_string(choice.micro_batch) + "x" + std::to_string(choice.accumulation) + "-layers" +
                   std::to_string(choice.layers) + "-" + choice.order + "-" + choice.activation + "-" + std::to_string(choice.chunks) +
                   choice.working + choice.gradient + choice.states + "-" + choice.update_mode + ".json",
               plan.dump(1) + "\n");
}

ProgramCommand RunArea::sluice(const std::vector<std::string>& words) const {
  ProgramCommand command;
  command.words = {SLUICE_PROGRAM};
  command.words.insert(command.words.end(), words.begin(), words.end());
  // What MPI puts aside lies in the area too, so that killed runs leave nothing on the machine.
  command.environment = {{"XDG_CACHE_HOME", path() + "/cache"},
                         {"NO_COLOR", "1"},
                         {"OMPI_MCA_orte_tmpdir_base", path() + "/mpi"},
                         {"OMPI_MCA_btl_vader_backing_directory", path() + "/mpi"},
                         {"OMPI_MCA_osc_sm_backing_directory", path() + "/mpi"},
                         {"OMPI_MCA_mpi_yield_when_idle", "1"},
                         {"PRTE_MCA_prte_tmpdir_base", path() + "/mpi"}};
  return command;
}

ProgramCommand RunArea::launch(int ranks, const std::vector<std::string>& words) const {
  ProgramCommand command = sluice(words);
  const std::vector<std::string> launcher = {std::string(SLUICE_SOURCE_DIR) + "/launch/mpirun", "-n", std::to_string(ranks)};
  command.words.insert(command.words.begin(), launcher.begin(), launcher.end());
  if (std::getenv("SLUICE_MPIRUN") == nullptr) command.environment["SLUICE_MPIRUN"] = SLUICE_MPIEXEC;
  return command;
}

ProgramCommand RunArea::train(int ranks, const std::string& output, const std::vector<std::string>& more) const {
  std::vector<std::string> words = {"train", config(), "--output", *this / output};
  words.insert(words.end(), more.begin(), more.end());
  return ranks == 0 ? sluice(words) : launch(ranks, words);
}

::testing::AssertionResult ended_with(const ProgramOutcome& outcome, int code) {
  ::testing::AssertionResult wrong = ::testing::AssertionFailure();
  if (outcome.timed_out) {
    wrong << "did not end in time";
  } else if (outcome.code != code) {
    wrong << "exit code " << outcome.code << " (signal " << outcome.signal << "), expected " << code;
  } else if (!outcome.left.empty()) {
    wrong << outcome.left.size() << " processes were left behind";
  } else {
    return ::testing::AssertionSuccess();
  }
  return wrong << "\n--- output\n" << outcome.output << "--- errors\n" << outcome.errors;
}

::testing::AssertionResult refused_with(const ProgramOutcome& outcome, int code, const std::vector<std::string>& parts) {
  if (const auto ended = ended_with(outcome, code); !ended) return ended;
  const std::vector<std::string> lines = outcome.error_lines();
  if (lines.size() != 1) {
    return ::testing::AssertionFailure() << lines.size() << " lines of error, expected one\n--- output\n"
                                         << outcome.output << "--- errors\n"
                                         << outcome.errors;
  }
  for (const std::string& part : parts) {
    if (lines.front().find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << part << "\" is not in: " << lines.front();
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult has_each_step_once(const std::string& run, std::int64_t last) {
  const Records records = read_records(run);
  if (static_cast<std::int64_t>(records.steps.size()) != last) {
    return ::testing::AssertionFailure() << records.steps.size() << " steps in " << run << "/metrics.jsonl, expected " << last;
  }
  for (std::int64_t i = 0; i < last; ++i) {
    const std::int64_t step = records.steps[static_cast<std::size_t>(i)].step;
    if (step != i + 1) return ::testing::AssertionFailure() << "record " << i + 1 << " is of step " << step;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(const std::string& run, const std::string& expected, std::int64_t up_to) {
  Records here = read_records(run), there = read_records(expected);
  for (Records* side : {&here, &there}) {
    std::erase_if(side->steps, [&](const StepRecord& record) { return record.step > up_to; });
    std::erase_if(side->evaluations, [&](const auto& evaluation) { return evaluation.first > up_to; });
  }
  if (here.steps.size() != there.steps.size()) {
    return ::testing::AssertionFailure() << here.steps.size() << " steps, expected " << there.steps.size();
  }
  for (std::size_t i = 0; i < here.steps.size(); ++i) {
    const StepRecord &a = here.steps[i], &b = there.steps[i];
    if (a.step != b.step || a.loss != b.loss || a.grad_norm != b.grad_norm) {
      return ::testing::AssertionFailure() << "step " << a.step << " (attempt " << a.attempt << "): loss " << a.loss << ", norm "
                                           << a.grad_norm << "; expected step " << b.step << ": loss " << b.loss << ", norm "
                                           << b.grad_norm;
    }
  }
  if (here.evaluations != there.evaluations) {
    std::string list;
    for (const auto* side : {&here.evaluations, &there.evaluations}) {
      for (const auto& [step, loss] : *side) list += " " + std::to_string(step) + ":" + loss;
      list += side == &here.evaluations ? "; expected" : "";
    }
    return ::testing::AssertionFailure() << "evaluations differ:" << list;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sluice::testing
