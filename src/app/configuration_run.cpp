// What is trained, on what, and for how long.

#include <regex>

#include "app/configuration_parts.hpp"
#include "base/text.hpp"

namespace sluice::app {
namespace {

template <typename Enum>
void read_enum(KeyTree& keys, const std::string& path, const std::vector<std::pair<std::string, Enum>>& names, Enum& value) {
  std::vector<std::string> known;
  for (const auto& [name, each] : names) known.push_back(name);
  const std::optional<std::string> word = keys.one_of(path, known);
  for (const auto& [name, each] : names) {
    if (word == name) value = each;
  }
}

void read_model(Reading& reading) {
  KeyTree& keys = reading.keys;
  Configuration& config = reading.config;
  const std::optional<std::string> preset = keys.text("sluice.model.preset");
  const std::optional<std::string> path = keys.text("sluice.model.path");
  if (preset && path) keys.problem("sluice.model", "has both preset and path; keep one of them");
  if (path && !preset) {
    config.model_path = *path;
    config.model_key = keys.where("sluice.model");
    config.init = Init::kWeights;
  } else if (preset) {
    config.preset = *preset;
  } else {
    reading.result.missing_for_plan.emplace_back("no model is given; give --model NAME (a preset or a directory) or write sluice.model");
  }
  const std::optional<std::string> init = keys.one_of("sluice.init", {"scratch", "weights"});
  if (init == "scratch") config.init = Init::kScratch;
  if (init == "weights" && config.model_path.empty()) {
    keys.problem("sluice.init", "\"weights\" needs a model with weights; a preset has none: give sluice.model.path");
  }
  if (const auto length = keys.whole("sluice.sequence_length", 1)) config.training.batch.sequence_length = *length;
  if (const auto seed = keys.seed("sluice.seed")) config.training.seed = *seed;
  if (const auto seed = keys.trainer_number("data_seed", 0); seed && *seed != static_cast<double>(config.training.seed)) {
    keys.trainer_problem("data_seed", cat("found ", *keys.trainer_text("data_seed"), ", but --seed is ", config.training.seed,
                                          "; one seed serves weights, order and dropout (or --ignore data_seed)"));
  }
  for (const std::string& expression : keys.texts("sluice.trainable")) {
    try {
      const std::regex checked(expression);
      config.training.trainable.push_back(expression);
    } catch (const std::regex_error& error) {
      keys.problem("sluice.trainable", cat("\"", expression, "\" is no regular expression: ", error.what()));
    }
  }
}

void read_data(Reading& reading) {
  KeyTree& keys = reading.keys;
  Configuration& config = reading.config;
  config.train_data = keys.texts("sluice.data.train");
  config.valid_data = keys.texts("sluice.data.valid");
  config.train_key = keys.where("sluice.data.train");
  config.valid_key = keys.where("sluice.data.valid");
  if (config.train_data.empty()) {
    reading.result.missing_for_training.emplace_back("no training data is given; give --data FILE or write sluice.data.train");
  }
  if (const auto fraction = keys.number("sluice.data.valid_fraction", 0, 1)) config.valid_fraction = *fraction;
  if (config.valid_fraction == 1) keys.problem("sluice.data.valid_fraction", "found 1, expected less: nothing would be left to train on");
  if (config.valid_fraction > 0 && !config.valid_data.empty()) {
    keys.problem("sluice.data.valid_fraction", "stands beside sluice.data.valid; keep one of them");
  }
  read_enum<DataOrder>(keys, "sluice.data.order", {{"shuffled", DataOrder::kShuffled}, {"sequential", DataOrder::kSequential}},
                       config.order);
  read_enum<data::Packing>(keys, "sluice.data.packing", {{"stream", data::Packing::kStream}, {"pad", data::Packing::kPad}}, config.packing);
  read_enum<data::Overlong>(keys, "sluice.data.overlong",
                            {{"error", data::Overlong::kError}, {"truncate", data::Overlong::kTruncate}, {"skip", data::Overlong::kSkip}},
                            config.overlong);
  read_enum<data::InvalidUtf8>(
      keys, "sluice.data.invalid_utf8",
      {{"error", data::InvalidUtf8::kError}, {"replace", data::InvalidUtf8::kReplace}, {"skip", data::InvalidUtf8::kSkip}},
      config.invalid_utf8);
  if (config.overlong != data::Overlong::kError && config.packing == data::Packing::kStream) {
    keys.problem("sluice.data.overlong", "says what happens to documents that don't fit a row; write \"packing\": \"pad\" or remove it");
  }
  // A row of "pad" holds one document whatever is asked.
  const bool document_attention = keys.flag("sluice.data.document_attention").value_or(false);
  config.training.document_attention = document_attention && config.packing == data::Packing::kStream;
  if (const auto tokenizer = keys.text("sluice.data.tokenizer")) config.tokenizer = *tokenizer;
  if (const auto file = keys.text("sluice.data.chat_template")) config.chat_template = *file;
  if (const auto key = keys.text("sluice.data.text_key")) config.text_key = *key;
}

void read_length(Reading& reading) {
  KeyTree& keys = reading.keys;
  reading.config.steps = keys.whole("sluice.steps", 1);
  if (const std::optional<double> epochs = keys.number("sluice.epochs")) {
    if (*epochs > 0) {
      reading.config.epochs = epochs;
    } else {
      keys.problem("sluice.epochs", cat("found ", keys.shown("sluice.epochs"), ", expected a number above 0"));
    }
  }
  if (keys.has("sluice.steps") && keys.has("sluice.epochs")) {
    keys.problem("sluice.epochs", "stands beside sluice.steps; keep one of them");
  } else if (!keys.has("sluice.steps") && !keys.has("sluice.epochs")) {
    reading.result.missing_for_training.emplace_back("the length of the run is not given; give --steps N or --epochs N");
  }
}

}  // namespace

void read_run(Reading& reading) {
  read_model(reading);
  read_data(reading);
  read_length(reading);
}

}  // namespace sluice::app
