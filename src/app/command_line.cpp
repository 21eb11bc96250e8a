#include "app/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "app/key_rules.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

enum class Takes : std::uint8_t { kValue, kText, kList, kSwitch };

/// An option that is a key of the configuration.
struct KeyOption {
  const char* name;
  const char* path;
  Takes takes;
  const char* type;
  const char* help;
};

/// A check of an option's number. CLI11's own ones write their bounds out in 300 digits, into the help too, and let "nan" pass.
CLI::Validator number_that(const std::string& expected, const std::function<bool(double)>& fits) {
  const auto check = [expected, fits](std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_number = end == text.c_str() + text.size() && end != text.c_str() && std::isfinite(value);
    return is_number && fits(value) ? std::string() : cat("found ", text, ", expected ", expected);
  };
  return {check, ""};
}

constexpr const char* kRunGroup = "The run (keys of \"sluice\")";
constexpr auto kRunOptions = std::to_array<KeyOption>({
    {"model", "sluice.model", Takes::kText, "M", "a preset (configs/models), a model directory or a run directory"},
    {"init", "sluice.init", Takes::kText, "HOW", "scratch or weights; default: weights where the model has them"},
    {"data", "sluice.data.train", Takes::kList, "FILE", "training text, JSON lines or token file; again for more"},
    {"steps", "sluice.steps", Takes::kValue, "N", "length of the run"},
    {"epochs", "sluice.epochs", Takes::kValue, "N", "length of the run in passes over the data"},
    {"sequence-length", "sluice.sequence_length", Takes::kValue, "T", "tokens a sample; default: the model's context"},
    {"seed", "sluice.seed", Takes::kValue, "N", "of initial weights, order and dropout; default 1"},
    {"output", "sluice.output", Takes::kText, "DIR", "run directory; default runs/NAME"},
    {"resume", "sluice.resume", Takes::kText, "auto|never|PATH", "continue what stands in the run directory; default auto"},
    {"weight-decay-on", "sluice.weight_decay_on", Takes::kText, "WHAT", "matrices or all"},
    {"device", "sluice.device", Takes::kText, "D", "cpu"},
    {"threads", "sluice.threads", Takes::kValue, "N", "compute threads a rank; default: its cores"},
    {"device-memory", "sluice.memory.device", Takes::kText, "BYTES", "budget of one rank, as 200MiB"},
    {"host-memory", "sluice.memory.host", Takes::kText, "BYTES", "budget of a node, as 4GiB"},
    {"nvme-path", "sluice.nvme_path", Takes::kList, "DIR", "on a local disk, for what memory does not hold; again to stripe"},
    {"nvme-space", "sluice.memory.nvme", Takes::kText, "BYTES", "of its disks that a node may use; default: what is free"},
    {"nvme-network", "sluice.nvme_network", Takes::kSwitch, "", "allow --nvme-path on a network file system"},
    {"trainable", "sluice.trainable", Takes::kList, "REGEX", "parameters to train; others stay as they are; again for more"},
    {"plan", "sluice.plan", Takes::kText, "FILE", "use this plan.json instead of searching"},
    {"pin", "sluice.pin", Takes::kList, "KEY", "keep what the file says about this placement key"},
    {"ignore", "sluice.ignore", Takes::kList, "KEY", "go on without this key of DeepSpeed's; results may differ"},
    {"dry-run", "sluice.dry_run", Takes::kSwitch, "", "plan and print, train nothing"},
    {"reprofile", "sluice.reprofile", Takes::kSwitch, "", "measure the machine again"},
    {"dump-graph", "sluice.dump_graph", Takes::kSwitch, "", "print the step graph as well"},
});

constexpr const char* kDataGroup = "The data (keys of \"sluice\")";
constexpr auto kDataOptions = std::to_array<KeyOption>({
    {"data", "sluice.data.train", Takes::kList, "FILE", "text, JSON lines or tokens; again for more"},
    {"model", "sluice.model", Takes::kText, "M", "whose tokenizer and chat template are taken: a model directory or a run directory"},
    {"tokenizer", "sluice.data.tokenizer", Takes::kText, "DIR", "a directory with a tokenizer, or bytes"},
    {"chat-template", "sluice.data.chat_template", Takes::kText, "FILE", "instead of the tokenizer's own"},
    {"text-key", "sluice.data.text_key", Takes::kText, "KEY", "of a text in JSON lines; default: text"},
    {"invalid-utf8", "sluice.data.invalid_utf8", Takes::kText, "HOW", "error, replace or skip"},
    {"sequence-length", "sluice.sequence_length", Takes::kValue, "T", "tokens of the sample that is shown"},
});

constexpr const char* kDeepSpeedGroup = "DeepSpeed's keys";
constexpr auto kDeepSpeedOptions = std::to_array<KeyOption>({
    {"train-batch-size", "train_batch_size", Takes::kValue, "N", "sequences a step, over all ranks"},
    {"train-micro-batch-size-per-gpu", "train_micro_batch_size_per_gpu", Takes::kValue, "N", "sequences of one rank at once"},
    {"gradient-clipping", "gradient_clipping", Takes::kValue, "X", "largest global gradient norm; 0: none"},
    {"steps-per-print", "steps_per_print", Takes::kValue, "N", "print every Nth step"},
});

constexpr const char* kTrainerGroup =
    "Names of Hugging Face's Trainer (they fill \"auto\" and what no key says; `config check` tells what becomes of its others)";

struct VerbText {
  Verb verb;
  const char* name;
  const char* summary;
  const char* examples;
};

constexpr auto kVerbs = std::to_array<VerbText>({
    {Verb::kTrain, "train", "Trains a model; run again, it continues. Start it with mpirun for several ranks.",
     "  sluice train demo.json --data book.txt\n"
     "  mpirun -n 2 sluice train demo.json --data book.txt --steps 500\n"
     "  sluice train --model gpt2-124m --data book.txt --steps 100 --train-batch-size 8 --learning-rate 3e-4\n"
     "  sluice train demo.json --dry-run --ranks 8\n"
     "  sluice train big.json --device-memory 300MiB --host-memory 1GiB --nvme-path /scratch\n"},
    {Verb::kProfile, "profile", "Measures this machine for a model's shapes; --json prints a machine file for plan.",
     "  mpirun -n 2 sluice profile demo.json\n"
     "  mpirun -n 2 sluice profile demo.json --json > machine.json\n"
     "  mpirun -n 2 sluice profile demo.json --nvme-path /nvme0 --nvme-path /nvme1\n"},
    {Verb::kPlan, "plan", "Finds the plan for a machine and says why; starts no MPI.",
     "  sluice plan demo.json --ranks 2\n"
     "  sluice plan demo.json --machine dgx-a100-40gb --ranks 512 --ranks-per-node 8\n"},
    {Verb::kConfigCheck, "config check", "Says what becomes of every key of a configuration.",
     "  sluice config check ds_config.json\n"
     "  sluice config check demo.json --ranks 4 --learning_rate 1e-4 --json\n"},
    {Verb::kCheckpointList, "checkpoint list", "Lists the checkpoints of a run, by their files; verify reads every byte.",
     "  sluice checkpoint list runs/demo\n"},
    {Verb::kCheckpointShow, "checkpoint show", "Shows what a checkpoint holds.",
     "  sluice checkpoint show runs/demo/checkpoints/step-00000050\n"},
    {Verb::kCheckpointVerify, "checkpoint verify", "Reads every byte of a checkpoint and checks it.",
     "  sluice checkpoint verify runs/demo\n"},
    {Verb::kCheckpointExport, "checkpoint export", "Writes a checkpoint's weights as a Hugging Face directory.",
     "  sluice checkpoint export runs/demo --to hf --output demo-hf\n"
     "  sluice checkpoint export runs/demo/checkpoints/step-00000050 --to hf --output demo-50 --dtype bf16\n"},
    {Verb::kDataInspect, "data inspect", "Says what a corpus holds and shows its first sample with its loss mask.",
     "  sluice data inspect chat.jsonl --model SmolLM2-135M-Instruct\n"
     "  sluice data inspect 'books/*.txt' --json\n"},
    {Verb::kDataTokenize, "data tokenize", "Writes a corpus as token files: NAME.bin for llm.c's, NAME for Megatron's.",
     "  sluice data tokenize books/*.txt --tokenizer gpt2 --output books.bin\n"
     "  sluice data tokenize docs.jsonl --model Qwen2.5-0.5B --output docs\n"},
    {Verb::kGenerate, "generate", "Continues a prompt with a trained model.",
     "  sluice generate --model runs/demo --prompt \"Once upon\" --max-new-tokens 100\n"
     "  sluice generate --model runs/demo --prompt-tokens 464,995 --temperature 0\n"},
    {Verb::kDoctor, "doctor", "Looks for what would stand in the way on this machine, with remedies.",
     "  sluice doctor\n"
     "  sluice doctor --nvme-path /scratch\n"},
});

std::string all_verbs() {
  return "train, profile, plan, config check, checkpoint list, checkpoint show, checkpoint verify, checkpoint export, data inspect, data "
         "tokenize, generate, doctor";
}

const VerbText& text_of(Verb verb) {
  const auto found = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const VerbText& each) { return each.verb == verb; });
  return *found;
}

/// A first word that another one follows.
bool is_group(const std::string& word) {
  return word == "config" || word == "checkpoint" || word == "data";
}

/// The verbs of a group with their summaries, or of all where `group` is empty.
std::string list_of_verbs(const std::string& group) {
  std::string text;
  for (const VerbText& verb : kVerbs) {
    std::string name = verb.name;
    if (!group.empty() && !name.starts_with(group + " ")) continue;
    name.resize(18, ' ');
    text += cat("  ", name, "  ", verb.summary, "\n");
  }
  return text;
}

std::string overview(const std::string& version) {
  return cat("sluice ", version, " trains large language models on few GPUs, or on none.\n\nUsage: sluice VERB [options]\n\n",
             list_of_verbs({}), "\n`sluice VERB --help` shows a verb's options and examples. --version prints the version.\n");
}

std::string overview_of_group(const std::string& group) {
  return cat("Usage: sluice ", group, " VERB [options]\n\n", list_of_verbs(group), "\n`sluice ", group,
             " VERB --help` shows a verb's options and examples.\n");
}

bool is_help(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "help";
}

bool is_option(const std::string& argument) {
  return argument.size() > 2 && argument.starts_with("--");
}

bool is_whole_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_truth(const std::string& text) {
  constexpr std::array<std::string_view, 6> kWords{"true", "True", "false", "False", "1", "0"};
  return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

/// Whether "--name" is one of the Trainer's flags, which stand alone or before true or false.
bool is_trainer_flag(const std::string& name) {
  const std::span<const TrainerName> names = trainer_names();
  return std::any_of(names.begin(), names.end(),
                     [&](const TrainerName& each) { return each.type == ValueType::kFlag && name == "--" + with_dashes(each.name); });
}

/// Options with '-' for '_', DeepSpeed's three spellings as --deepspeed-config FILE, the Trainer's flags with a value, and without
/// the launcher's --local_rank.
std::vector<std::string> normalised(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_option(arguments[i])) {
      result.push_back(arguments[i]);
      continue;
    }
    const std::size_t equals = arguments[i].find('=');
    std::string name = arguments[i].substr(0, equals);
    std::replace(name.begin() + 2, name.end(), '_', '-');
    const std::string value = equals == std::string::npos ? std::string() : arguments[i].substr(equals);
    const bool has_next = i + 1 < arguments.size() && !arguments[i + 1].starts_with("-");
    if (name == "--local-rank") {
      if (value.empty() && has_next && is_whole_number(arguments[i + 1])) ++i;
    } else if (name == "--deepspeed" && value.empty() && !has_next) {
      continue;  // the bare switch, which says nothing
    } else if (name == "--deepspeed") {
      result.push_back("--deepspeed-config" + value);
    } else if (is_trainer_flag(name) && value.empty()) {
      const bool has_value = has_next && is_truth(arguments[i + 1]);
      result.push_back(cat(name, "=", has_value ? arguments[++i] : "true"));
    } else if (name.starts_with("--no-") && value.empty() && is_trainer_flag("--" + name.substr(5))) {
      result.push_back(cat("--", name.substr(5), "=false"));  // as transformers spells flags that are on by default
    } else {
      result.push_back(name + value);
    }
  }
  return result;
}

/// The verb, taken from the front of `arguments`.
Verb take_verb(std::vector<std::string>& arguments) {
  const std::string first = arguments.front();
  std::vector<std::string> names;
  for (const VerbText& verb : kVerbs) names.emplace_back(verb.name);
  const auto refuse = [&](const std::string& word, const std::string& what) -> RequestError {
    const std::string near = spec::nearest_word(word, names);
    return RequestError(
        cat(what, near.empty() ? std::string() : cat("; the nearest is \"", near, "\""), "; verbs: ", all_verbs(), "; see sluice --help"));
  };
  for (const char* absent : {"launch", "report"}) {
    if (first == absent) throw RequestError(cat(absent, " is not in this version of Sluice; verbs: ", all_verbs()));
  }
  if (first == "simulate") throw RequestError("simulate is part of plan, which predicts the step's time; see sluice plan --help");
  std::string word = first;
  if (is_group(first)) {
    if (arguments.size() < 2 || arguments[1].starts_with("-")) throw refuse(first, cat(first, " needs a second word"));
    if (first == "checkpoint" && arguments[1] == "import") {
      throw RequestError(cat("checkpoint ", arguments[1], " is not in this version of Sluice; verbs: ", all_verbs()));
    }
    word = cat(first, " ", arguments[1]);
  }
  const auto found = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const VerbText& each) { return word == each.name; });
  if (found == kVerbs.end()) throw refuse(word, cat("\"", word, "\" is no verb"));
  arguments.erase(arguments.begin(), arguments.begin() + (word == first ? 1 : 2));
  return found->verb;
}

/// One verb's options, bound to where their values go.
class VerbParser {
 public:
  explicit VerbParser(Verb verb) : text_(text_of(verb)), app_(text_.summary, cat("sluice ", text_.name)) {
    command_.verb = verb;
    app_.set_help_flag("--help,-h", "print this and end");
    app_.footer(cat("Examples:\n", text_.examples));
    app_.get_formatter()->column_width(44);
    switch (verb) {
      case Verb::kTrain:
      case Verb::kProfile:
      case Verb::kPlan:
      case Verb::kConfigCheck:
        add_configuration();
        break;
      case Verb::kCheckpointList:
      case Verb::kCheckpointShow:
      case Verb::kCheckpointVerify:
        app_.add_option("path", command_.path, "a run directory, its checkpoints or one of them")->required()->type_name("DIR");
        if (verb == Verb::kCheckpointVerify) app_.add_flag("--quick", command_.quick, "sizes and structure only, not every byte");
        break;
      case Verb::kDataInspect:
      case Verb::kDataTokenize:
        add_data();
        break;
      case Verb::kCheckpointExport:
        add_export();
        break;
      case Verb::kGenerate:
        add_generate();
        break;
      case Verb::kDoctor:
        app_.add_option("--nvme-path", command_.nvme_paths, "a directory to swap to: what it can do, what lies there; again for more")
            ->type_name("DIR")
            ->allow_extra_args(false);
        break;
      case Verb::kText:
        break;
    }
    if (verb != Verb::kTrain) app_.add_flag("--json", command_.json, "print JSON");
  }

  Command parse(const std::vector<std::string>& arguments) {
    refuse_unknown(arguments);
    command_.request_words = words_of_request(arguments);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
    try {
      app_.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      return {.verb = Verb::kText, .text = app_.help()};
    } catch (const CLI::ParseError& error) {
      std::string what = error.what();
      std::replace(what.begin(), what.end(), '\n', ' ');
      throw RequestError(cat(text_.name, ": ", what, "; ", hint()));
    }
    collect();
    return std::move(command_);
  }

 private:
  std::string hint() const { return cat("see sluice ", text_.name, " --help"); }

  void refuse_unknown(const std::vector<std::string>& arguments) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    for (const std::string& argument : arguments) {
      if (argument == "--") return;
      if (!is_option(argument)) continue;
      const std::string name = argument.substr(0, argument.find('='));
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string near = spec::nearest_word(name, known);
      throw RequestError(
          cat(text_.name, ": unknown option ", name, near.empty() ? std::string() : cat("; the nearest is ", near), "; ", hint()));
    }
  }

  /// Without what only says for which machine to plan and how to show it.
  static std::vector<std::string> words_of_request(const std::vector<std::string>& arguments) {
    const auto is_one_of = [](const std::string& word, std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), word.substr(0, word.find('='))) != names.end();
    };
    std::vector<std::string> words;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (is_one_of(arguments[i], {"--json", "--dry-run", "--dump-graph"})) continue;
      if (is_one_of(arguments[i], {"--ranks", "--ranks-per-node", "--machine"})) {
        if (arguments[i].find('=') == std::string::npos) ++i;
        continue;
      }
      words.push_back(arguments[i]);
    }
    return words;
  }

  void add_key_options(std::span<const KeyOption> options, const char* group) {
    for (const KeyOption& each : options) {
      if (each.takes == Takes::kSwitch) {
        app_.add_flag(cat("--", each.name), switches_[each.name], each.help)->group(group);
      } else {
        app_.add_option(cat("--", each.name), values_[each.name], each.help)->type_name(each.type)->allow_extra_args(false)->group(group);
      }
    }
  }

  void add_trainer_names() {
    for (const TrainerName& each : trainer_names()) {
      const std::string name = with_dashes(each.name);
      CLI::Option* option = app_.add_option(cat("--", name), values_[name], std::string(each.advice))->allow_extra_args(false);
      const bool is_shown = each.rule == TrainerRule::kSets || each.rule == TrainerRule::kFills;
      option->type_name(each.type == ValueType::kWhole    ? "N"
                        : each.type == ValueType::kNumber ? "X"
                        : each.type == ValueType::kFlag   ? "BOOL"
                                                          : "TEXT");
      option->group(is_shown ? kTrainerGroup : "");  // a nameless group is not listed
    }
  }

  void add_configuration() {
    app_.add_option("config", file_, "a DeepSpeed configuration, with a block \"sluice\" for what DeepSpeed leaves to the script")
        ->type_name("CONFIG.json");
    add_key_options(kRunOptions, kRunGroup);
    app_.add_option("--set", values_["set"], "any key of the file, as optimizer.params.lr=1e-4")
        ->type_name("KEY.PATH=VALUE")
        ->allow_extra_args(false)
        ->group(kRunGroup);
    add_key_options(kDeepSpeedOptions, kDeepSpeedGroup);
    app_.add_option("--deepspeed-config", values_["deepspeed-config"], "the same file, as launchers pass it (also --deepspeed FILE)")
        ->type_name("FILE")
        ->allow_extra_args(false)
        ->group(kDeepSpeedGroup);
    add_trainer_names();
    if (command_.verb != Verb::kProfile) {
      app_.add_option("--ranks", command_.ranks, "ranks to plan for, where MPI does not say")
          ->type_name("N")
          ->check(number_that("a number above 0", [](double x) { return x > 0; }));
      app_.add_option("--ranks-per-node", command_.ranks_per_node, "default: all on one node")
          ->type_name("N")
          ->check(number_that("a number above 0", [](double x) { return x > 0; }));
    }
    if (command_.verb == Verb::kPlan) {
      app_.add_option("--machine", command_.machine,
                      "a machine file, or one of configs/machines by name, instead of this machine's profile")
          ->type_name("M");
    }
  }

  void add_data() {
    app_.add_option("files", values_["files"], "text, JSON lines or token files, or shell patterns")->type_name("FILE");
    add_key_options(kDataOptions, kDataGroup);
    app_.add_option("--set", values_["set"], "any key of a configuration, as sluice.data.packing=pad")
        ->type_name("KEY.PATH=VALUE")
        ->allow_extra_args(false)
        ->group(kDataGroup);
    if (command_.verb == Verb::kDataTokenize) {
      app_.add_option("--output", command_.path, "NAME.bin: llm.c's; NAME: Megatron's NAME.bin and NAME.idx")
          ->required()
          ->type_name("NAME");
    }
  }

  void add_export() {
    ExportOptions& options = command_.exporting;
    app_.add_option("path", command_.path, "a run directory (its newest whole checkpoint) or a checkpoint")->required()->type_name("DIR");
    app_.add_option("--to", options.to, "the format: hf, a Hugging Face directory")->required()->check(CLI::IsMember({"hf"}));
    app_.add_option("--output", options.output, "the directory to be made")->required()->type_name("DIR");
    app_.add_option("--dtype", options.dtype, "of the weights; default: what the run trained in")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}));
    app_.add_option("--tokenizer", options.tokenizer,
                    "a directory whose tokenizer goes along; default: that of the model the run began with")
        ->type_name("DIR");
  }

  void add_generate() {
    GenerateOptions& options = command_.generate;
    app_.add_option("--model", options.model, "a run directory, a checkpoint or a model directory")->required()->type_name("M");
    app_.add_option("--prompt", options.prompt, "text to continue")->type_name("TEXT");
    app_.add_option("--prompt-tokens", options.prompt_tokens, "token ids to continue, as 464,995")->type_name("IDS")->delimiter(',');
    app_.add_option("--max-new-tokens", options.max_new_tokens, "default 64")
        ->type_name("N")
        ->check(number_that("a number above 0", [](double x) { return x > 0; }));
    app_.add_option("--temperature", options.temperature, "0: always the most likely token; default 1")
        ->type_name("X")
        ->check(number_that("a number of at least 0", [](double x) { return x >= 0; }));
    app_.add_option("--top-k", options.top_k, "draw from the K most likely tokens; default: all")
        ->type_name("K")
        ->check(number_that("a number of at least 0", [](double x) { return x >= 0; }));
    app_.add_option("--top-p", options.top_p, "draw from the likeliest tokens whose probabilities add up to P; default: 1, all")
        ->type_name("P")
        ->check(number_that("a number above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }));
    app_.add_flag("--chat", options.chat, "the prompt is what a user says; the model answers by its chat template");
    app_.add_option("--seed", options.seed, "default 1")->type_name("N");
    app_.add_option("--threads", options.threads, "default: the cores of this process")
        ->type_name("N")
        ->check(number_that("a number above 0", [](double x) { return x > 0; }));
  }

  void collect() {
    if (command_.verb == Verb::kGenerate) {
      if ((app_.count("--prompt") > 0) == (app_.count("--prompt-tokens") > 0)) {
        throw RequestError(cat("generate needs one of --prompt and --prompt-tokens; ", hint()));
      }
      if (command_.generate.chat && app_.count("--prompt-tokens") > 0) {
        throw RequestError(cat("generate: --chat frames a text and can't frame --prompt-tokens; give --prompt; ", hint()));
      }
      return;
    }
    if (command_.verb == Verb::kDataInspect || command_.verb == Verb::kDataTokenize) {
      for (const std::string& file : values_["files"])
        command_.request.settings.push_back({"sluice.data.train", file, "FILE", Setting::Kind::kAppend});
      collect_keys(kDataOptions);
      collect_sets();
      return;
    }
    std::vector<std::string> files = values_["deepspeed-config"];
    if (!file_.empty()) files.insert(files.begin(), file_);
    for (const std::string& each : files) {
      if (each != files.front())
        throw RequestError(cat("two configuration files are given, ", files.front(), " and ", each, "; keep one of them"));
    }
    if (!files.empty()) command_.request.file = files.front();
    collect_keys(kRunOptions);
    collect_keys(kDeepSpeedOptions);
    collect_sets();
    for (const TrainerName& each : trainer_names()) {
      const std::vector<std::string>& values = values_[with_dashes(each.name)];
      for (const std::string& value : values) {
        if (value != values.front()) {
          throw RequestError(cat("--", each.name, " is given twice, as ", values.front(), " and ", value, "; keep one of them"));
        }
        command_.request.trainer[std::string(each.name)] = value;
      }
    }
    const ConfigurationRequest& request = command_.request;
    if (command_.verb == Verb::kConfigCheck && request.file.empty() && request.settings.empty() && request.trainer.empty()) {
      throw RequestError(cat("config check needs a file or options to check; ", hint()));
    }
  }

  void collect_sets() {
    for (const std::string& each : values_["set"]) {
      const std::size_t equals = each.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw RequestError(cat("--set: found \"", each, "\", expected KEY.PATH=VALUE, as optimizer.params.lr=1e-4"));
      }
      const std::string path = each.substr(0, equals);
      command_.request.settings.push_back({path, each.substr(equals + 1), cat("--set ", path), Setting::Kind::kValue});
    }
  }

  void collect_keys(std::span<const KeyOption> options) {
    for (const KeyOption& each : options) {
      const Setting::Kind kind = each.takes == Takes::kList   ? Setting::Kind::kAppend
                                 : each.takes == Takes::kText ? Setting::Kind::kText
                                                              : Setting::Kind::kValue;
      for (const std::string& value : values_[each.name])
        command_.request.settings.push_back({each.path, value, cat("--", each.name), kind});
      if (switches_[each.name]) command_.request.settings.push_back({each.path, "true", cat("--", each.name), kind});
    }
  }

  const VerbText& text_;
  Command command_;
  std::string file_;
  std::map<std::string, std::vector<std::string>> values_;  // nodes stay where they are: CLI11 keeps their addresses
  std::map<std::string, bool> switches_;
  CLI::App app_;
};

}  // namespace

Command parse_command_line(const std::vector<std::string>& arguments, const std::string& version) {
  std::vector<std::string> rest = normalised(arguments);
  if (rest.empty()) throw RequestError(cat("no verb is given; verbs: ", all_verbs(), "; see sluice --help"));
  if (is_help(rest.front())) return {.verb = Verb::kText, .text = overview(version)};
  if (rest.size() > 1 && is_group(rest[0]) && is_help(rest[1])) return {.verb = Verb::kText, .text = overview_of_group(rest[0])};
  if (rest.front() == "--version") return {.verb = Verb::kText, .text = cat("sluice ", version, "\n")};
  if (rest.front().starts_with("-")) {
    throw RequestError(cat("found ", rest.front(), " before a verb; verbs: ", all_verbs(), "; see sluice --help"));
  }
  const Verb verb = take_verb(rest);
  return VerbParser(verb).parse(rest);
}

}  // namespace sluice::app
