#include "app/key_rules.hpp"

#include <algorithm>
#include <array>

#include "spec/json_text.hpp"

namespace sluice::app {
namespace {

constexpr std::string_view kFp32 = "only 32-bit floats are supported; switch it off";
constexpr std::string_view kOther = "not supported; remove it";

using enum KeyRule;

// Source: DeepSpeed 0.19.8, runtime/config.py, runtime/constants.py, runtime/zero/config.py, runtime/zero/offload_config.py,
// runtime/activation_checkpointing/config.py, ops/adam. Keys that 0.19.8 dropped but older files hold are known as well.
constexpr auto kKeys = std::to_array<Key>({
    {"train_batch_size", kHonoured, "", ""},
    {"train_micro_batch_size_per_gpu", kHonoured, "", ""},
    {"gradient_accumulation_steps", kHonoured, "", ""},
    {"gradient_clipping", kHonoured, "", ""},
    {"steps_per_print", kHonoured, "", ""},
    {"optimizer", kHonoured, "", ""},
    {"optimizer.type", kHonoured, "", ""},
    {"optimizer.legacy_fusion", kPerformance, "", ""},
    {"optimizer.params", kHonoured, "", ""},
    {"optimizer.params.lr", kHonoured, "", ""},
    {"optimizer.params.betas", kHonoured, "", ""},
    {"optimizer.params.eps", kHonoured, "", ""},
    {"optimizer.params.weight_decay", kHonoured, "", ""},
    {"optimizer.params.adam_w_mode", kHonoured, "", ""},
    {"optimizer.params.bias_correction", kOnly, "true", "Adam without bias correction is not supported; remove it"},
    {"optimizer.params.amsgrad", kOnly, "false", "AMSGrad is not supported; remove it"},
    {"optimizer.params.max_grad_norm", kPresence, "", "write gradient_clipping at the top level instead"},
    {"optimizer.params.torch_adam", kPerformance, "", ""},
    {"optimizer.params.fp32_optimizer_states", kPerformance, "", ""},
    {"optimizer.params.set_grad_none", kPerformance, "", ""},
    {"scheduler", kHonoured, "", ""},
    {"scheduler.type", kHonoured, "", ""},
    {"scheduler.params", kHonoured, "", ""},
    {"scheduler.params.warmup_min_lr", kHonoured, "", ""},
    {"scheduler.params.warmup_max_lr", kHonoured, "", ""},
    {"scheduler.params.warmup_num_steps", kHonoured, "", ""},
    {"scheduler.params.warmup_type", kHonoured, "", ""},
    {"scheduler.params.total_num_steps", kHonoured, "", ""},
    {"scheduler.params.last_batch_iteration", kOnly, "-1", "the position comes from the checkpoint; remove it"},
    {"scheduler.params.warmup_min_ratio", kHonoured, "", ""},
    {"scheduler.params.cos_min_ratio", kHonoured, "", ""},
    {"scheduler.params.cycle_min_lr", kHonoured, "", ""},
    {"scheduler.params.cycle_max_lr", kHonoured, "", ""},
    {"scheduler.params.decay_lr_rate", kHonoured, "", ""},
    {"scheduler.params.cycle_first_step_size", kHonoured, "", ""},
    {"scheduler.params.cycle_second_step_size", kHonoured, "", ""},
    {"scheduler.params.cycle_first_stair_count", kHonoured, "", ""},
    {"scheduler.params.cycle_second_stair_count", kHonoured, "", ""},
    {"scheduler.params.decay_step_size", kHonoured, "", ""},
    {"scheduler.params.cycle_momentum", kHonoured, "", ""},
    {"scheduler.params.cycle_min_mom", kHonoured, "", ""},
    {"scheduler.params.cycle_max_mom", kHonoured, "", ""},
    {"scheduler.params.decay_mom_rate", kHonoured, "", ""},
    {"scheduler.params.lr_range_test_min_lr", kHonoured, "", ""},
    {"scheduler.params.lr_range_test_step_size", kHonoured, "", ""},
    {"scheduler.params.lr_range_test_step_rate", kHonoured, "", ""},
    {"scheduler.params.lr_range_test_staircase", kHonoured, "", ""},

    {"fp16", kSwitch, "", kFp32},
    {"bf16", kSwitch, "", kFp32},
    {"bfloat16", kSwitch, "", kFp32},
    {"amp", kSwitch, "", kFp32},
    {"torch_autocast", kSwitch, "", kFp32},
    {"data_types", kHonoured, "", ""},
    {"data_types.grad_accum_dtype", kOnly, "null|\"fp32\"", kFp32},
    {"data_types.param_dtype", kOnly, "null|\"fp32\"", kFp32},
    {"data_types.buffer_dtype", kOnly, "null|\"fp32\"", kFp32},
    {"data_types.keep_in_fp32_modules", kPerformance, "", ""},
    {"communication_data_type", kOnly, "null|\"fp32\"", "gradients are exchanged as 32-bit floats; remove it"},
    {"gradient_allreduce_op", kOnly, "\"mean\"", "the loss is a mean over all tokens; write \"mean\" or remove it"},
    {"managed_gradient_accumulation", kOnly, "true", "there is no script to manage accumulation; remove it"},
    {"sequence_parallel_size", kOnly, "null|1", "sequence parallelism is not in this version; remove it"},
    {"sparse_gradients", kOnly, "false", kOther},
    {"progressive_layer_drop", kSwitch, "", kOther},
    {"curriculum_learning", kSwitch, "", kOther},
    {"data_efficiency", kSwitch, "", kOther},
    {"eigenvalue", kSwitch, "", kOther},
    {"elasticity", kSwitch, "", "write the batch size of this run instead"},
    {"hybrid_engine", kSwitch, "", kOther},
    {"quantize_training", kSwitch, "", kOther},
    {"compression_training", kPresence, "", kOther},
    {"weight_quantization", kPresence, "", kOther},
    {"sparse_attention", kPresence, "", kOther},
    {"expert_parallel", kPresence, "", kOther},
    {"tensor_parallel", kHonoured, "", ""},
    {"tensor_parallel.autotp_size", kOnly, "0|1", "tensor parallelism is not in this version; remove it"},
    {"tensor_parallel.tp", kPerformance, "", ""},
    {"tensor_parallel.dtype", kPerformance, "", ""},
    {"tensor_parallel.tp_overlap_comm", kPerformance, "", ""},
    {"tensor_parallel.partition_config", kPerformance, "", ""},
    {"tensor_parallel.preset_model", kPerformance, "", ""},
    {"tensor_parallel.vocab_parallel_lm_head", kPerformance, "", ""},
    {"pipeline", kHonoured, "", ""},
    {"pipeline.stages", kOnly, "\"auto\"|null|1", "pipeline parallelism is not in this version; remove it"},
    {"pipeline.partition", kPerformance, "", ""},
    {"pipeline.seed_layers", kPerformance, "", ""},
    {"pipeline.activation_checkpoint_interval", kHint, "", ""},
    {"pipeline.pipe_partitioned", kPerformance, "", ""},
    {"pipeline.grad_partitioned", kPerformance, "", ""},

    {"zero_optimization", kHint, "", ""},
    {"zero_optimization.stage", kHint, "", ""},
    {"zero_optimization.overlap_comm", kHint, "", ""},
    {"zero_optimization.contiguous_gradients", kHint, "", ""},
    {"zero_optimization.reduce_scatter", kHint, "", ""},
    {"zero_optimization.reduce_bucket_size", kHint, "", ""},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kHint, "", ""},
    {"zero_optimization.allgather_partitions", kHint, "", ""},
    {"zero_optimization.allgather_bucket_size", kHint, "", ""},
    {"zero_optimization.compute_grad_norm", kHint, "", ""},
    {"zero_optimization.load_from_fp32_weights", kHint, "", ""},
    {"zero_optimization.ignore_unused_parameters", kHint, "", ""},
    {"zero_optimization.memory_efficient_linear", kHint, "", ""},
    {"zero_optimization.override_module_apply", kHint, "", ""},
    {"zero_optimization.elastic_checkpoint", kHint, "", ""},
    {"zero_optimization.round_robin_gradients", kHint, "", ""},
    {"zero_optimization.parameter_alignment", kHint, "", ""},
    {"zero_optimization.sub_group_size", kHint, "", ""},
    {"zero_optimization.cpu_offload", kHint, "", ""},
    {"zero_optimization.cpu_offload_param", kHint, "", ""},
    {"zero_optimization.cpu_offload_params", kHint, "", ""},
    {"zero_optimization.cpu_offload_use_pin_memory", kHint, "", ""},
    {"zero_optimization.stage3_max_live_parameters", kHint, "", ""},
    {"zero_optimization.stage3_max_reuse_distance", kHint, "", ""},
    {"zero_optimization.stage3_prefetch_bucket_size", kHint, "", ""},
    {"zero_optimization.stage3_param_persistence_threshold", kHint, "", ""},
    {"zero_optimization.stage3_model_persistence_threshold", kHint, "", ""},
    {"zero_optimization.stage3_module_granularity_threshold", kHint, "", ""},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kHint, "", ""},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kHint, "", ""},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kHint, "", ""},
    {"zero_optimization.stage3_allgather_sequential", kHint, "", ""},
    {"zero_optimization.zero_hpz_partition_size", kHint, "", ""},
    {"zero_optimization.mics_shard_size", kHint, "", ""},
    {"zero_optimization.mics_hierarchical_params_gather", kHint, "", ""},
    {"zero_optimization.pipeline_loading_checkpoint", kHint, "", ""},
    {"zero_optimization.log_trace_cache_warnings", kHint, "", ""},
    {"zero_optimization.enable_sanity_checks", kHint, "", ""},
    {"zero_optimization.leaf_module", kHint, "", ""},
    {"zero_optimization.zero_quantized_weights", kOnly, "false", "parameters travel unrounded; remove it"},
    {"zero_optimization.zero_quantized_nontrainable_weights", kOnly, "false", "parameters travel unrounded; remove it"},
    {"zero_optimization.zero_quantized_gradients", kOnly, "false", "gradients travel unrounded; remove it"},
    {"zero_optimization.zeropp_loco_param", kPresence, "", "gradients travel unrounded; remove it"},
    {"zero_optimization.zenflow", kPresence, "", "updates are never delayed here; remove it"},
    {"zero_optimization.offload_param", kHint, "", ""},
    {"zero_optimization.offload_param.device", kHint, "", ""},
    {"zero_optimization.offload_param.nvme_path", kHint, "", ""},
    {"zero_optimization.offload_param.buffer_count", kHint, "", ""},
    {"zero_optimization.offload_param.buffer_size", kHint, "", ""},
    {"zero_optimization.offload_param.max_in_cpu", kHint, "", ""},
    {"zero_optimization.offload_param.pin_memory", kHint, "", ""},
    {"zero_optimization.offload_optimizer", kHint, "", ""},
    {"zero_optimization.offload_optimizer.device", kHint, "", ""},
    {"zero_optimization.offload_optimizer.nvme_path", kHint, "", ""},
    {"zero_optimization.offload_optimizer.buffer_count", kHint, "", ""},
    {"zero_optimization.offload_optimizer.pin_memory", kHint, "", ""},
    {"zero_optimization.offload_optimizer.pipeline_read", kHint, "", ""},
    {"zero_optimization.offload_optimizer.pipeline_write", kHint, "", ""},
    {"zero_optimization.offload_optimizer.fast_init", kHint, "", ""},
    {"zero_optimization.offload_optimizer.ratio", kHint, "", ""},
    {"zero_optimization.offload_optimizer.super_offload", kHint, "", ""},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kHint, "", ""},
    {"activation_checkpointing", kHint, "", ""},
    {"activation_checkpointing.partition_activations", kHint, "", ""},
    {"activation_checkpointing.contiguous_memory_optimization", kHint, "", ""},
    {"activation_checkpointing.cpu_checkpointing", kHint, "", ""},
    {"activation_checkpointing.number_checkpoints", kHint, "", ""},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kHint, "", ""},
    {"activation_checkpointing.profile", kHint, "", ""},

    {"log_level", kPerformance, "", ""},
    {"vocabulary_size", kPerformance, "", ""},
    {"wall_clock_breakdown", kPerformance, "", ""},
    {"memory_breakdown", kPerformance, "", ""},
    {"dump_state", kPerformance, "", ""},
    {"disable_python_gc", kPerformance, "", ""},
    {"disable_allgather", kPerformance, "", ""},
    {"dataloader_drop_last", kPerformance, "", ""},
    {"prescale_gradients", kPerformance, "", ""},
    {"gradient_predivide_factor", kPerformance, "", ""},
    {"zero_allow_untested_optimizer", kPerformance, "", ""},
    {"zero_force_ds_cpu_optimizer", kPerformance, "", ""},
    {"seq_parallel_communication_data_type", kPerformance, "", ""},
    {"seq_parallel_comm_data_type", kPerformance, "", ""},
    {"use_data_before_expert_parallelism", kPerformance, "", ""},
    {"graph_harvesting", kPerformance, "", ""},
    {"timers", kPerformance, "", ""},
    {"aio", kPerformance, "", ""},
    {"flops_profiler", kPerformance, "", ""},
    {"comms_logger", kPerformance, "", ""},
    {"tensorboard", kPerformance, "", ""},
    {"csv_monitor", kPerformance, "", ""},
    {"wandb", kPerformance, "", ""},
    {"comet", kPerformance, "", ""},
    {"autotuning", kPerformance, "", ""},
    {"compile", kPerformance, "", ""},
    {"nebula", kPerformance, "", ""},
    {"datastates", kPerformance, "", ""},
    {"checkpoint", kHonoured, "", ""},
    {"checkpoint.tag_validation", kPerformance, "", ""},
    {"checkpoint.load_universal", kOnly, "false", "DeepSpeed's universal checkpoints can't be read; remove it"},
    {"checkpoint.use_node_local_storage", kPerformance, "", ""},
    {"checkpoint.parallel_write", kPerformance, "", ""},
    {"checkpoint.checkpoint_serialization", kPerformance, "", ""},
    {"checkpoint.writer", kPerformance, "", ""},

    {"sluice", kHonoured, "", ""},
    {"sluice.model", kHonoured, "", ""},
    {"sluice.model.preset", kHonoured, "", ""},
    {"sluice.model.path", kHonoured, "", ""},
    {"sluice.init", kHonoured, "", ""},
    {"sluice.data", kHonoured, "", ""},
    {"sluice.data.train", kHonoured, "", ""},
    {"sluice.data.valid", kHonoured, "", ""},
    {"sluice.data.order", kHonoured, "", ""},
    {"sluice.data.tokenizer", kAbsent, "null", "give files of token ids"},
    {"sluice.sequence_length", kHonoured, "", ""},
    {"sluice.steps", kHonoured, "", ""},
    {"sluice.epochs", kHonoured, "", ""},
    {"sluice.seed", kHonoured, "", ""},
    {"sluice.output", kHonoured, "", ""},
    {"sluice.resume", kHonoured, "", ""},
    {"sluice.device", kAbsent, "\"cpu\"", "write \"cpu\""},
    {"sluice.memory", kHonoured, "", ""},
    {"sluice.memory.device", kHonoured, "", ""},
    {"sluice.memory.host", kHonoured, "", ""},
    {"sluice.memory.nvme", kAbsent, "", "remove it: nothing is kept on disk"},
    {"sluice.nvme_path", kAbsent, "", "remove it: nothing is kept on disk"},
    {"sluice.mesh", kHonoured, "", ""},
    {"sluice.mesh.tensor", kAbsent, "1", "write 1: all ranks are data-parallel"},
    {"sluice.mesh.tensor_mode", kAbsent, "\"1d\"", "remove it: all ranks are data-parallel"},
    {"sluice.mesh.sequence", kAbsent, "1", "write 1: all ranks are data-parallel"},
    {"sluice.mesh.pipeline", kAbsent, "1", "write 1: all ranks are data-parallel"},
    {"sluice.schedule", kHonoured, "", ""},
    {"sluice.schedule.kind", kHonoured, "", ""},
    {"sluice.schedule.warmup_start", kHonoured, "", ""},
    {"sluice.schedule.warmup_steps", kHonoured, "", ""},
    {"sluice.schedule.warmup_ratio", kHonoured, "", ""},
    {"sluice.schedule.total_steps", kHonoured, "", ""},
    {"sluice.schedule.final_ratio", kHonoured, "", ""},
    {"sluice.weight_decay_on", kHonoured, "", ""},
    {"sluice.trainable", kAbsent, "", "remove it: every parameter is trained"},
    {"sluice.checkpoint", kHonoured, "", ""},
    {"sluice.checkpoint.interval", kHonoured, "", ""},
    {"sluice.checkpoint.keep", kHonoured, "", ""},
    {"sluice.evaluate", kHonoured, "", ""},
    {"sluice.evaluate.interval", kHonoured, "", ""},
    {"sluice.export", kAbsent, "false", "remove it: the result is the last checkpoint"},
    {"sluice.threads", kHonoured, "", ""},
    {"sluice.plan", kHonoured, "", ""},
    {"sluice.pin", kHonoured, "", ""},
    {"sluice.ignore", kHonoured, "", ""},
    {"sluice.dry_run", kHonoured, "", ""},
    {"sluice.reprofile", kHonoured, "", ""},
    {"sluice.dump_graph", kHonoured, "", ""},
});

}  // namespace

std::span<const Key> known_keys() {
  return kKeys;
}

const Key* find_key(std::string_view path) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.path == path; });
  return found == kKeys.end() ? nullptr : &*found;
}

bool has_keys_below(std::string_view path) {
  return std::any_of(kKeys.begin(), kKeys.end(), [&](const Key& key) {
    return key.path.size() > path.size() + 1 && key.path.starts_with(path) && key.path[path.size()] == '.';
  });
}

std::vector<std::string> keys_below(const std::string& path) {
  std::vector<std::string> names;
  const std::string prefix = path.empty() ? std::string() : path + ".";
  for (const Key& key : kKeys) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string_view rest = key.path.substr(prefix.size());
    if (!rest.empty() && rest.find('.') == std::string_view::npos) names.emplace_back(rest);
  }
  return names;
}

std::string nearest_key(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? std::string() : path.substr(0, dot);
  const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
  const std::string sibling = spec::nearest_word(last, keys_below(parent));
  const auto elsewhere = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) {
    return key.path.size() > last.size() && key.path.ends_with(last) && key.path[key.path.size() - last.size() - 1] == '.';
  });
  const auto top = find_key(last);
  if (parent != "" && top != nullptr) return std::string(top->path);
  if (elsewhere != kKeys.end()) return std::string(elsewhere->path);
  if (!sibling.empty()) return parent.empty() ? sibling : parent + "." + sibling;
  return {};
}

bool is_comment_key(std::string_view last_part) {
  return last_part.starts_with("_") || last_part.starts_with("//") || last_part.starts_with("$");
}

}  // namespace sluice::app
