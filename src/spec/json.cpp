// The JSON forms of all values of this folder. Each value lists its fields once, in `visit`; the same list writes and reads
// them, so that the two can't drift apart, and its structured binding doesn't compile when a field is missing.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "spec/json_text.hpp"
#include "spec/machine_spec.hpp"
#include "spec/model_spec.hpp"
#include "spec/plan.hpp"
#include "spec/training_spec.hpp"

namespace sluice::spec {
namespace {

using Json = nlohmann::ordered_json;

template <typename E>
struct Names;
template <>
struct Names<ScheduleKind> {
  static constexpr std::array<std::pair<ScheduleKind, const char*>, 7> kTable{{{ScheduleKind::kConstant, "constant"},
                                                                               {ScheduleKind::kLinear, "linear"},
                                                                               {ScheduleKind::kCosine, "cosine"},
                                                                               {ScheduleKind::kPolynomial, "polynomial"},
                                                                               {ScheduleKind::kDeepSpeedCosine, "deepspeed_cosine"},
                                                                               {ScheduleKind::kOneCycle, "one_cycle"},
                                                                               {ScheduleKind::kRangeTest, "range_test"}}};
};
template <>
struct Names<WarmupShape> {
  static constexpr std::array<std::pair<WarmupShape, const char*>, 2> kTable{
      {{WarmupShape::kLinear, "linear"}, {WarmupShape::kLog, "log"}}};
};
template <>
struct Names<OptimizerKind> {
  static constexpr std::array<std::pair<OptimizerKind, const char*>, 4> kTable{
      {{OptimizerKind::kAdamW, "adamw"}, {OptimizerKind::kAdam, "adam"}, {OptimizerKind::kSgd, "sgd"}, {OptimizerKind::kLion, "lion"}}};
};
template <>
struct Names<DecayOn> {
  static constexpr std::array<std::pair<DecayOn, const char*>, 2> kTable{{{DecayOn::kMatrices, "matrices"}, {DecayOn::kAll, "all"}}};
};
template <>
struct Names<RopeScaling> {
  static constexpr std::array<std::pair<RopeScaling, const char*>, 3> kTable{
      {{RopeScaling::kNone, "none"}, {RopeScaling::kLinear, "linear"}, {RopeScaling::kLlama3, "llama3"}}};
};
template <>
struct Names<UpdateMode> {
  static constexpr std::array<std::pair<UpdateMode, const char*>, 3> kTable{
      {{UpdateMode::kAtEnd, "at_end"}, {UpdateMode::kNextForward, "next_forward"}, {UpdateMode::kInBackward, "in_backward"}}};
};

template <>
struct Names<Precision> {
  static constexpr std::array<std::pair<Precision, const char*>, 3> kTable{
      {{Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kFp16, "fp16"}}};
};

template <>
struct Names<MicroBatchOrder> {
  static constexpr std::array<std::pair<MicroBatchOrder, const char*>, 2> kTable{
      {{MicroBatchOrder::kDepthFirst, "depth_first"}, {MicroBatchOrder::kLayerByLayer, "layer_by_layer"}}};
};
template <>
struct Names<Activation> {
  static constexpr std::array<std::pair<Activation, const char*>, kActivationCount> kTable{
      {{Activation::kKeep, "keep"}, {Activation::kRecompute, "recompute"}, {Activation::kHost, "host"}, {Activation::kDisk, "disk"}}};
};
template <>
struct Names<Tier> {
  static constexpr std::array<std::pair<Tier, const char*>, kTierCount> kTable{
      {{Tier::kDevice, "device"}, {Tier::kHost, "host"}, {Tier::kDisk, "disk"}}};
};

/// A list in which equal neighbours are many, as runs: "2 keep, 24 recompute".
template <typename List>
struct Runs {
  List& list;
};
constexpr std::int64_t kLongestList = 100'000'000;  // a damaged count doesn't fill the memory

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, ChunkHomes>
void visit(V& v, T& h) {
  auto& [working, gradient, states] = h;
  v("working", working);
  v("gradient", gradient);
  v("states", states);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, RopeSpec>
void visit(V& v, T& r) {
  auto& [theta, scaling, factor, low_frequency_factor, high_frequency_factor, original_context] = r;
  const RopeSpec none;
  v("theta", theta);
  v.unless_default("scaling", scaling, none.scaling);
  v.unless_default("factor", factor, none.factor);
  v.unless_default("low_frequency_factor", low_frequency_factor, none.low_frequency_factor);
  v.unless_default("high_frequency_factor", high_frequency_factor, none.high_frequency_factor);
  v.unless_default("original_context", original_context, none.original_context);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, ModelSpec>
void visit(V& v, T& m) {
  auto& [name, family, vocab, context, hidden, layers, heads, ffn, norm_eps, init_std, embedding_dropout, attention_dropout,
         residual_dropout, tied_head, kv_heads, head_dim, rope, sliding_window, bos_token, eos_tokens, pad_token] = m;
  const ModelSpec plain;
  v("name", name);
  v("family", family);
  v("vocab", vocab);
  v("context", context);
  v("hidden", hidden);
  v("layers", layers);
  v("heads", heads);
  v("ffn", ffn);
  v("norm_eps", norm_eps);
  v("init_std", init_std);
  v("embedding_dropout", embedding_dropout);
  v("attention_dropout", attention_dropout);
  v("residual_dropout", residual_dropout);
  v("tied_head", tied_head);
  v.unless_default("kv_heads", kv_heads, plain.kv_heads);
  v.unless_default("head_dim", head_dim, plain.head_dim);
  v.unless_default("rope", rope, plain.rope);
  v.unless_default("sliding_window", sliding_window, plain.sliding_window);
  v.unless_default("bos_token", bos_token, plain.bos_token);
  v.unless_default("eos_tokens", eos_tokens, plain.eos_tokens);
  v.unless_default("pad_token", pad_token, plain.pad_token);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, MeshSpec>
void visit(V& v, T& m) {
  auto& [data, pipeline, tensor, sequence] = m;
  v("data", data);
  v("pipeline", pipeline);
  v("tensor", tensor);
  v("sequence", sequence);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, BatchSpec>
void visit(V& v, T& b) {
  auto& [global_batch, micro_batch, accumulation, sequence_length] = b;
  v("global_batch", global_batch);
  v("micro_batch", micro_batch);
  v("accumulation", accumulation);
  v("sequence_length", sequence_length);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, OptimizerSpec>
void visit(V& v, T& o) {
  auto& [beta1, beta2, eps, weight_decay, decay_on, gradient_clipping, kind, momentum, dampening, nesterov] = o;
  v("beta1", beta1);
  v("beta2", beta2);
  v("eps", eps);
  v("weight_decay", weight_decay);
  v("decay_on", decay_on);
  v("gradient_clipping", gradient_clipping);
  v("kind", kind);
  v("momentum", momentum);
  v("dampening", dampening);
  v("nesterov", nesterov);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, OneCycleSpec>
void visit(V& v, T& c) {
  auto& [min_rate, first_steps, second_steps, first_stairs, second_stairs, decay_rate, decay_steps] = c;
  v("min_rate", min_rate);
  v("first_steps", first_steps);
  v("second_steps", second_steps);
  v("first_stairs", first_stairs);
  v("second_stairs", second_stairs);
  v("decay_rate", decay_rate);
  v("decay_steps", decay_steps);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, RangeTestSpec>
void visit(V& v, T& r) {
  auto& [min_rate, step_size, step_rate, staircase] = r;
  v("min_rate", min_rate);
  v("step_size", step_size);
  v("step_rate", step_rate);
  v("staircase", staircase);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, ScheduleSpec>
void visit(V& v, T& s) {
  auto& [kind, peak, warmup_start, warmup_steps, total_steps, final_ratio, delay_steps, warmup_shape, power, one_cycle, range_test] = s;
  v("kind", kind);
  v("peak", peak);
  v("warmup_start", warmup_start);
  v("warmup_steps", warmup_steps);
  v("total_steps", total_steps);
  v("final_ratio", final_ratio);
  v("delay_steps", delay_steps);
  v("warmup_shape", warmup_shape);
  v("power", power);
  v("one_cycle", one_cycle);
  v("range_test", range_test);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, LossScaleSpec>
void visit(V& v, T& l) {
  auto& [fixed, initial_power, window, hysteresis, consecutive_hysteresis, min_scale] = l;
  v("fixed", fixed);
  v("initial_power", initial_power);
  v("window", window);
  v("hysteresis", hysteresis);
  v("consecutive_hysteresis", consecutive_hysteresis);
  v("min_scale", min_scale);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, TrainingSpec>
void visit(V& v, T& t) {
  auto& [batch, optimizer, schedule, seed, precision, loss_scale, trainable, skips_overflow, document_attention] = t;
  v("batch", batch);
  v("optimizer", optimizer);
  v("schedule", schedule);
  v("seed", seed);
  v("precision", precision);
  v("loss_scale", loss_scale);
  v("trainable", trainable);
  v.unless_default("skips_overflow", skips_overflow, false);
  v.unless_default("document_attention", document_attention, false);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, Plan>
void visit(V& v, T& p) {
  auto& [zero_stage, chunk_elements, rcache_elements, prefetch_segments, micro_batch, accumulation, update_mode, order, activations, homes,
         state_prefetch, threads, mesh] = p;
  const Plan plain;
  v("zero_stage", zero_stage);
  v("chunk_elements", chunk_elements);
  v("rcache_elements", rcache_elements);
  v("prefetch_segments", prefetch_segments);
  v("micro_batch", micro_batch);
  v("accumulation", accumulation);
  v("update_mode", update_mode);
  v.unless_default("order", order, plain.order);
  Runs<std::remove_reference_t<decltype(activations)>> activation_runs{activations};
  v("activations", activation_runs);
  Runs<std::remove_reference_t<decltype(homes)>> home_runs{homes};
  v("homes", home_runs);
  v.unless_default("state_prefetch", state_prefetch, plain.state_prefetch);
  v("threads", threads);
  v("mesh", mesh);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, ArithmeticSignature>
void visit(V& v, T& s) {
  auto& [mesh, micro_batch, accumulation, reduce_point, dtypes, isa, threads, libraries] = s;
  v("mesh", mesh);
  v("micro_batch", micro_batch);
  v("accumulation", accumulation);
  v("reduce_point", reduce_point);
  v("dtypes", dtypes);
  v("isa", isa);
  v("threads", threads);
  v("libraries", libraries);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, LinearCost>
void visit(V& v, T& c) {
  auto& [latency_seconds, bytes_per_second, core_seconds] = c;
  v("latency_seconds", latency_seconds);
  v("bytes_per_second", bytes_per_second);
  v.unless_default("core_seconds", core_seconds, 0.0);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, SegmentTime>
void visit(V& v, T& s) {
  auto& [segment, phase, hidden, rows, sequence, seconds] = s;
  v("segment", segment);
  v("phase", phase);
  v("hidden", hidden);
  v("rows", rows);
  v("sequence", sequence);
  v("seconds", seconds);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, DiskSpeed>
void visit(V& v, T& d) {
  auto& [read_bytes_per_second, write_bytes_per_second, read_beside_write, write_beside_read, block_bytes, depth, free_bytes] = d;
  v("read_bytes_per_second", read_bytes_per_second);
  v("write_bytes_per_second", write_bytes_per_second);
  v("read_beside_write", read_beside_write);
  v("write_beside_read", write_beside_read);
  v("block_bytes", block_bytes);
  v("depth", depth);
  v("free_bytes", free_bytes);
}

template <typename V, typename T>
requires std::is_same_v<std::remove_const_t<T>, MachineSpec>
void visit(V& v, T& m) {
  auto& [name, device, device_name, isa, ranks_per_node, cores_per_node, threads_per_rank, flops_per_core, device_flops,
         device_memory_bytes_per_second, memory_bytes_per_second, update_bytes_per_second, upload_bytes_per_second,
         download_bytes_per_second, gather, scatter, link_bytes_per_second, link_latency_seconds, agree_seconds, skew_seconds, task_seconds,
         wake_seconds, device_bytes, host_bytes, unplanned_bytes, disk, segments, sources] = m;
  v("name", name);
  v("device", device);
  v("device_name", device_name);
  v("isa", isa);
  v("ranks_per_node", ranks_per_node);
  v("cores_per_node", cores_per_node);
  v("threads_per_rank", threads_per_rank);
  v("flops_per_core", flops_per_core);
  v("device_flops", device_flops);
  v("device_memory_bytes_per_second", device_memory_bytes_per_second);
  v("memory_bytes_per_second", memory_bytes_per_second);
  v("update_bytes_per_second", update_bytes_per_second);
  v.unless_default("upload_bytes_per_second", upload_bytes_per_second, 0.0);
  v.unless_default("download_bytes_per_second", download_bytes_per_second, 0.0);
  v("gather", gather);
  v("scatter", scatter);
  v("link_bytes_per_second", link_bytes_per_second);
  v("link_latency_seconds", link_latency_seconds);
  v("agree_seconds", agree_seconds);
  v.unless_default("skew_seconds", skew_seconds, 0.0);
  v("task_seconds", task_seconds);
  v("wake_seconds", wake_seconds);
  v("device_bytes", device_bytes);
  v("host_bytes", host_bytes);
  v("unplanned_bytes", unplanned_bytes);
  v.unless_default("disk", disk, DiskSpeed{});
  v("segments", segments);
  v("sources", sources);
}

// ---- writing

template <typename T>
Json write_value(const T& value);

struct Writer {
  Json object = Json::object();
  template <typename T>
  void operator()(const char* key, const T& value) {
    object[key] = write_value(value);
  }
  template <typename T>
  void unless_default(const char* key, const T& value, const T& usual) {
    if (!(value == usual)) object[key] = write_value(value);
  }
};

template <typename T>
Json write_value(const T& value) {
  if constexpr (std::is_same_v<T, std::string> || std::is_integral_v<T> || std::is_same_v<T, std::map<std::string, std::string>> ||
                std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::vector<std::int64_t>>) {
    return value;
  } else if constexpr (std::is_same_v<T, double>) {
    SLUICE_CHECK(std::isfinite(value), "JSON has no form for ", value);
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [known, name] : Names<T>::kTable) {
      if (known == value) return name;
    }
    SLUICE_CHECK(false, "an enumerator without a name");
  } else if constexpr (std::is_same_v<T, std::vector<SegmentTime>>) {
    Json array = Json::array();
    for (const SegmentTime& each : value) array.push_back(write_value(each));
    return array;
  } else {
    Writer writer;
    visit(writer, value);
    return writer.object;
  }
}

template <typename List>
Json write_value(const Runs<List>& runs) {
  Json array = Json::array();
  const auto& list = runs.list;
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = begin + 1;
    while (end < list.size() && list[end] == list[begin]) ++end;
    array.push_back({{"count", end - begin}, {"each", write_value(list[begin])}});
    begin = end;
  }
  return array;
}

template <typename T>
std::string write(const T& value) {
  try {
    return write_value(value).dump(2);
  } catch (const nlohmann::json::exception& error) {
    throw RequestError(cat("a text that is not UTF-8 can't be written as JSON: ", error.what()));
  }
}

// ---- reading

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

class Reader {
 public:
  Reader(const Json& object, const std::string& source, const std::string& prefix) : object_(object), source_(source), prefix_(prefix) {
    if (object.is_object()) return;
    throw FormatError(source, cat(prefix.empty() ? std::string() : cat("key \"", prefix.substr(0, prefix.size() - 1), "\": "), "found ",
                                  shown(object), ", expected an object {...}"));
  }

  template <typename T>
  void operator()(const char* key, T& value) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
      if (missing_.empty()) missing_ = key;
      return;
    }
    read(prefix_ + key, *found, value);
  }

  template <typename T>
  void unless_default(const char* key, T& value, const T& usual) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
      value = usual;
    } else {
      read(prefix_ + key, *found, value);
    }
  }

  /// Refuses what the visit did not ask for, before what it missed: a misspelt key is both.
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string near = nearest_word(key, known_);
      throw FormatError(source_, cat("key \"", prefix_, key, "\" is unknown; ",
                                     near.empty() ? cat("known: ", all_known()) : cat("the nearest known key is \"", prefix_, near, "\"")));
    }
    if (!missing_.empty()) throw FormatError(source_, cat("key \"", prefix_, missing_, "\" is missing"));
  }

 private:
  std::string all_known() const {
    std::string text;
    for (const std::string& key : known_) text += (text.empty() ? "" : ", ") + key;
    return text;
  }

  [[noreturn]] void refuse(const std::string& path, const Json& found, const std::string& expected) const {
    throw FormatError(source_, cat("key \"", path, "\": found ", shown(found), ", expected ", expected));
  }

  template <typename T>
  void read(const std::string& path, const Json& json, T& value) const {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) refuse(path, json, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      read_whole(path, json, value);
    } else if constexpr (std::is_same_v<T, double>) {
      if (!json.is_number()) refuse(path, json, "a number");
      value = json.get<double>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) refuse(path, json, "a text");
      value = json.get<std::string>();
    } else if constexpr (std::is_enum_v<T>) {
      read_enum(path, json, value);
    } else if constexpr (std::is_same_v<T, std::vector<SegmentTime>>) {
      if (!json.is_array()) refuse(path, json, "a list [...]");
      value.clear();
      for (std::size_t i = 0; i < json.size(); ++i) read(cat(path, "[", i, "]"), json[i], value.emplace_back());
    } else if constexpr (std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::vector<std::int64_t>>) {
      if (!json.is_array()) refuse(path, json, std::is_same_v<T, std::vector<std::string>> ? "a list of texts" : "a list of whole numbers");
      value.clear();
      for (std::size_t i = 0; i < json.size(); ++i) read(cat(path, "[", i, "]"), json[i], value.emplace_back());
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
      if (!json.is_object()) refuse(path, json, "an object of texts");
      value.clear();
      for (const auto& [key, each] : json.items()) read(cat(path, ".", key), each, value[key]);
    } else if constexpr (requires { value.list; }) {
      if (!json.is_array()) refuse(path, json, "a list of {\"count\", \"each\"}");
      value.list.clear();
      for (std::size_t i = 0; i < json.size(); ++i) {
        std::int64_t count = 0;
        typename std::remove_reference_t<decltype(value.list)>::value_type each{};
        Reader run(json[i], source_, cat(path, "[", i, "]."));
        run("count", count);
        run("each", each);
        run.finish();
        if (count < 1 || count > kLongestList - static_cast<std::int64_t>(value.list.size()))
          refuse(cat(path, "[", i, "].count"), json[i]["count"], cat("1 to ", kLongestList, " in all"));
        value.list.insert(value.list.end(), static_cast<std::size_t>(count), each);
      }
    } else {
      Reader inner(json, source_, path + ".");
      visit(inner, value);
      inner.finish();
    }
  }

  template <typename T>
  void read_whole(const std::string& path, const Json& json, T& value) const {
    const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                                : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
    if (!fits) refuse(path, json, cat("a whole number from ", std::numeric_limits<T>::min(), " to ", std::numeric_limits<T>::max()));
    value = json.get<T>();
  }

  template <typename E>
  void read_enum(const std::string& path, const Json& json, E& value) const {
    std::string names;
    for (const auto& [known, name] : Names<E>::kTable) {
      if (json.is_string() && json.get<std::string>() == name) {
        value = known;
        return;
      }
      names += cat(names.empty() ? "one of \"" : ", \"", name, "\"");
    }
    refuse(path, json, names);
  }

  const Json& object_;
  const std::string& source_;
  std::string prefix_;
  std::vector<std::string> known_;
  std::string missing_;
};

template <typename T>
T read(const std::string& text, const std::string& source) {
  const std::string problem = json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  const Json json = Json::parse(text);
  T value;
  Reader reader(json, source, "");
  visit(reader, value);
  reader.finish();
  return value;
}

}  // namespace

std::string_view name_of(Tier tier) {
  for (const auto& [known, name] : Names<Tier>::kTable) {
    if (known == tier) return name;
  }
  SLUICE_CHECK(false, "a tier without a name");
}

std::string_view name_of(Activation activation) {
  for (const auto& [known, name] : Names<Activation>::kTable) {
    if (known == activation) return name;
  }
  SLUICE_CHECK(false, "an activation's fate without a name");
}

std::string_view name_of(MicroBatchOrder order) {
  for (const auto& [known, name] : Names<MicroBatchOrder>::kTable) {
    if (known == order) return name;
  }
  SLUICE_CHECK(false, "an order of micro-batches without a name");
}

std::string_view name_of(UpdateMode mode) {
  for (const auto& [known, name] : Names<UpdateMode>::kTable) {
    if (known == mode) return name;
  }
  SLUICE_CHECK(false, "an update mode without a name");
}

std::string_view name_of(OptimizerKind kind) {
  for (const auto& [known, name] : Names<OptimizerKind>::kTable) {
    if (known == kind) return name;
  }
  SLUICE_CHECK(false, "an optimizer without a name");
}

std::string_view name_of(Precision precision) {
  for (const auto& [known, name] : Names<Precision>::kTable) {
    if (known == precision) return name;
  }
  SLUICE_CHECK(false, "a precision without a name");
}

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return DType::kF32;
    case Precision::kBf16:
      return DType::kBF16;
    case Precision::kFp16:
      return DType::kF16;
  }
  SLUICE_CHECK(false, "a precision without a dtype");
}

std::string to_json(const ModelSpec& model) {
  return write(model);
}
std::string to_json(const MeshSpec& mesh) {
  return write(mesh);
}
std::string to_json(const TrainingSpec& training) {
  return write(training);
}
std::string to_json(const Plan& plan) {
  return write(plan);
}
std::string to_json(const ArithmeticSignature& signature) {
  return write(signature);
}
std::string to_json(const MachineSpec& machine) {
  return write(machine);
}

ModelSpec model_spec_from_json(const std::string& text, const std::string& source) {
  return read<ModelSpec>(text, source);
}
MeshSpec mesh_spec_from_json(const std::string& text, const std::string& source) {
  return read<MeshSpec>(text, source);
}
TrainingSpec training_spec_from_json(const std::string& text, const std::string& source) {
  return read<TrainingSpec>(text, source);
}
ArithmeticSignature signature_from_json(const std::string& text, const std::string& source) {
  return read<ArithmeticSignature>(text, source);
}
MachineSpec machine_spec_from_json(const std::string& text, const std::string& source) {
  return read<MachineSpec>(text, source);
}

Plan plan_from_json(const std::string& text, const std::string& source) {
  Plan plan = read<Plan>(text, source);
  if (plan.zero_stage < 0 || plan.zero_stage > 3) {
    throw FormatError(source, cat("key \"zero_stage\": found ", plan.zero_stage, ", expected 0, 1, 2 or 3"));
  }
  const auto least = [&](const char* key, std::int64_t found, std::int64_t expected) {
    if (found < expected) throw FormatError(source, cat("key \"", key, "\": found ", found, ", expected at least ", expected));
  };
  least("chunk_elements", plan.chunk_elements, 256);
  if (plan.chunk_elements % 256 != 0)
    throw FormatError(source, cat("key \"chunk_elements\": found ", plan.chunk_elements, ", expected a multiple of 256"));
  least("rcache_elements", plan.rcache_elements, 0);
  least("prefetch_segments", plan.prefetch_segments, 0);
  least("micro_batch", plan.micro_batch, 1);
  least("accumulation", plan.accumulation, 1);
  least("threads", plan.threads, 1);
  least("state_prefetch", plan.state_prefetch, 0);
  return plan;
}

}  // namespace sluice::spec
