// The names of transformers' TrainingArguments and of its example scripts, and what becomes of each here.
//
// Source: transformers 5.24, training_args.py, and the arguments of examples/pytorch/language-modeling/run_clm.py. Names that
// it has dropped but scripts still pass are known as well.

#include <array>

#include "app/key_rules.hpp"

namespace sluice::app {
namespace {

using enum TrainerRule;
using enum ValueType;

constexpr std::string_view kRemove = "not supported; remove it";
constexpr std::string_view kUpload = "nothing is uploaded; take the folder model/ of the run directory, and remove it";
constexpr std::string_view kFullEvaluation = "evaluation has the precision of training; remove it";

constexpr auto kNames = std::to_array<TrainerName>({
    // Length and batch
    {"max_steps", kFills, kWhole, "sluice.steps", "-1", "", "as --steps; above 0 it beats num_train_epochs"},
    {"num_train_epochs", kFills, kNumber, "sluice.epochs", "3.0", "", "as --epochs"},
    {"per_device_train_batch_size", kFills, kWhole, "train_micro_batch_size_per_gpu", "", "", "sequences of one rank at once"},
    {"gradient_accumulation_steps", kFills, kWhole, "gradient_accumulation_steps", "1", "", "micro-batches a step"},
    {"auto_find_batch_size", kOnly, kFlag, "", "false", "", "give --train-batch-size N and the plan finds what fits"},
    {"average_tokens_across_devices", kOnly, kFlag, "", "true", "", "the loss is a mean over all tokens; remove it"},

    // Optimizer
    {"optim", kFills, kText, "optimizer.type", "\"adamw_torch\"", "", "adamw_torch, adamw_torch_fused, sgd, lion_32bit"},
    {"learning_rate", kFills, kNumber, "optimizer.params.lr", "", "", "peak learning rate"},
    {"weight_decay", kFills, kNumber, "optimizer.params.weight_decay", "0.0", "", "of the optimizer"},
    {"adam_beta1", kFills, kNumber, "optimizer.params.betas", "0.9", "", "decay of the first moment"},
    {"adam_beta2", kFills, kNumber, "optimizer.params.betas", "0.999", "", "decay of the second moment"},
    {"adam_epsilon", kFills, kNumber, "optimizer.params.eps", "1e-08", "", "added to Adam's denominator"},
    {"max_grad_norm", kFills, kNumber, "gradient_clipping", "1.0", "", "largest global gradient norm; 0: none"},
    {"optim_args", kOnly, kText, "", "null", "", "write an optimizer block with its params"},
    {"optim_target_modules", kOnly, kAny, "", "null", "", kRemove},
    {"adafactor", kOnly, kFlag, "", "false", "", "write --optim adamw_torch"},
    {"label_smoothing_factor", kOnly, kNumber, "", "0.0", "0", kRemove},
    {"neftune_noise_alpha", kOnly, kNumber, "", "null", "", kRemove},

    // Schedule
    {"lr_scheduler_type", kFills, kText, "scheduler.type", "\"linear\"", "",
     "linear, cosine, constant, constant_with_warmup, cosine_with_min_lr, polynomial"},
    {"lr_scheduler_kwargs", kFills, kObject, "sluice.schedule", "null", "", "as '{\"min_lr\": 1e-5}'"},
    {"warmup_steps", kFills, kNumber, "scheduler.params.warmup_num_steps", "0", "", "steps that warm up; below 1: a part of the run"},
    {"warmup_ratio", kFills, kNumber, "scheduler.params.warmup_num_steps", "0.0", "", "part of the run that warms up"},

    // Precision
    {"fp16", kFills, kFlag, "fp16.enabled", "false", "", "16-bit storage with a scaled loss"},
    {"bf16", kFills, kFlag, "bf16.enabled", "false", "", "bfloat16 storage, 32-bit master parameters"},
    {"bf16_full_eval", kOnly, kFlag, "", "false", "", kFullEvaluation},
    {"fp16_full_eval", kOnly, kFlag, "", "false", "", kFullEvaluation},
    {"tf32", kOnly, kFlag, "", "null", "false", "products are never rounded to TF32; remove it"},
    {"fp16_opt_level", kPerformance, kText},
    {"fp16_backend", kPerformance, kText},
    {"half_precision_backend", kPerformance, kText},

    // Model and data
    {"model_name_or_path", kSets, kText, "sluice.model", "", "", "as --model: a directory"},
    {"tokenizer_name", kSets, kText, "sluice.data.tokenizer", "", "", "a directory with a tokenizer"},
    {"train_file", kSets, kTexts, "sluice.data.train", "", "", "as --data"},
    {"validation_file", kSets, kTexts, "sluice.data.valid", "", "", "text or token file to evaluate on"},
    {"validation_split_percentage", kFills, kNumber, "sluice.data.valid_fraction", "", "",
     "part of the documents to evaluate on, in per cent"},
    {"dataset_text_field", kSets, kText, "sluice.data.text_key", "", "", "key of a JSONL line's text"},
    {"block_size", kSets, kWhole, "sluice.sequence_length", "", "", "as --sequence-length"},
    {"max_seq_length", kSets, kWhole, "sluice.sequence_length", "", "", "as --sequence-length"},
    {"max_length", kSets, kWhole, "sluice.sequence_length", "", "", "as --sequence-length"},
    {"train_sampling_strategy", kFills, kText, "sluice.data.order", "\"random\"", "", "random or sequential"},
    {"data_seed", kFills, kWhole, "sluice.seed", "null", "", "must be the seed: one serves weights, order and dropout"},
    {"group_by_length", kOnly, kFlag, "", "false", "", kRemove},
    {"ignore_data_skip", kOnly, kFlag, "", "false", "", "a run continues where it was in the data; remove it"},
    {"dataset_name", kOnly, kText, "", "null", "", "download the data and give its files with --data"},
    {"dataset_config_name", kOnly, kText, "", "null", "", "download the data and give its files with --data"},
    {"config_name", kOnly, kText, "", "null", "", "give a preset or a directory with --model"},
    {"model_type", kOnly, kText, "", "null", "", "give a preset or a directory with --model"},
    {"config_overrides", kOnly, kText, "", "null", "", "give a preset or a directory with --model"},
    {"max_train_samples", kOnly, kWhole, "", "null", "", "give --steps N"},
    {"max_eval_samples", kOnly, kWhole, "", "null", "", "give a smaller file to evaluate on"},
    {"streaming", kPerformance, kFlag},
    {"keep_linebreaks", kOnly, kFlag, "", "true", "", "text stands as it is in its file; remove it"},
    {"remove_unused_columns", kPerformance, kFlag},
    {"label_names", kPerformance, kAny},
    {"length_column_name", kPerformance, kText},
    {"use_fast_tokenizer", kPerformance, kFlag},
    {"trust_remote_code", kPerformance, kFlag},
    {"cache_dir", kPerformance, kText},
    {"model_revision", kPerformance, kText},
    {"token", kPerformance, kText},
    {"torch_dtype", kPerformance, kText},
    {"dtype", kPerformance, kText},
    {"low_cpu_mem_usage", kPerformance, kFlag},
    {"overwrite_cache", kPerformance, kFlag},
    {"preprocessing_num_workers", kPerformance, kWhole},
    {"dataloader_drop_last", kPerformance, kFlag},
    {"dataloader_num_workers", kPerformance, kWhole},
    {"dataloader_pin_memory", kPerformance, kFlag},
    {"dataloader_persistent_workers", kPerformance, kFlag},
    {"dataloader_prefetch_factor", kPerformance, kWhole},
    {"dataloader_multiprocessing_context", kPerformance, kText},
    {"dataloader_in_order", kPerformance, kFlag},

    // Checkpoints, evaluation, output
    {"output_dir", kSets, kText, "sluice.output", "", "", "as --output"},
    {"resume_from_checkpoint", kFills, kText, "sluice.resume", "null", "", "a checkpoint; a run continues by itself"},
    {"overwrite_output_dir", kOnly, kFlag, "", "false", "", "a run directory is continued, never overwritten: give another --output_dir"},
    {"save_strategy", kFills, kText, "sluice.checkpoint.interval", "\"steps\"", "", "no, steps or epoch"},
    {"save_steps", kFills, kNumber, "sluice.checkpoint.interval", "500", "", "steps between checkpoints; below 1: a part of the run"},
    {"save_total_limit", kSets, kWhole, "sluice.checkpoint.keep", "", "", "checkpoints that are kept"},
    {"load_best_model_at_end", kFills, kFlag, "sluice.export", "false", "", "the exported model is the best by validation loss"},
    {"metric_for_best_model", kOnly, kText, "", "null", "\"loss\"|\"eval_loss\"",
     "the best is that of the least validation loss; remove it"},
    {"greater_is_better", kOnly, kFlag, "", "null", "false", "the best is that of the least validation loss; remove it"},
    {"eval_strategy", kFills, kText, "sluice.evaluate.interval", "\"no\"", "", "no, steps or epoch"},
    {"evaluation_strategy", kFills, kText, "sluice.evaluate.interval", "\"no\"", "", "as --eval_strategy"},
    {"eval_steps", kFills, kNumber, "sluice.evaluate.interval", "null", "", "steps between evaluations; below 1: a part of the run"},
    {"eval_on_start", kOnly, kFlag, "", "false", "", kRemove},
    {"eval_delay", kOnly, kNumber, "", "0", "", kRemove},
    {"logging_steps", kFills, kNumber, "steps_per_print", "500", "", "print every Nth step; below 1: a part of the run"},
    {"per_device_eval_batch_size", kPerformance, kWhole},
    {"eval_accumulation_steps", kPerformance, kWhole},
    {"eval_do_concat_batches", kPerformance, kFlag},
    {"eval_use_gather_object", kPerformance, kFlag},
    {"prediction_loss_only", kPerformance, kFlag},
    {"include_for_metrics", kPerformance, kAny},
    {"batch_eval_metrics", kPerformance, kFlag},
    {"do_train", kOnly, kFlag, "", "false", "true", kRemove},
    {"do_eval", kPerformance, kFlag},
    {"do_predict", kOnly, kFlag, "", "false", "", kRemove},
    {"save_only_model", kPerformance, kFlag},
    {"save_safetensors", kOnly, kFlag, "", "true", "", "models are written as safetensors; remove it"},
    {"save_on_each_node", kPerformance, kFlag},
    {"enable_jit_checkpoint", kPerformance, kFlag},
    {"restore_callback_states_from_checkpoint", kPerformance, kFlag},
    {"logging_strategy", kPerformance, kText},
    {"logging_first_step", kPerformance, kFlag},
    {"logging_dir", kPerformance, kText},
    {"logging_nan_inf_filter", kPerformance, kFlag},
    {"log_level", kPerformance, kText},
    {"log_level_replica", kPerformance, kText},
    {"log_on_each_node", kPerformance, kFlag},
    {"include_num_input_tokens_seen", kPerformance, kAny},
    {"disable_tqdm", kPerformance, kFlag},
    {"report_to", kPerformance, kAny},
    {"run_name", kPerformance, kText},
    {"project", kPerformance, kText},
    {"trackio_space_id", kPerformance, kText},
    {"trackio_bucket_id", kPerformance, kText},
    {"trackio_static_space_id", kPerformance, kAny},
    {"push_to_hub", kOnly, kFlag, "", "false", "", kUpload},
    {"hub_token", kPerformance, kText},
    {"hub_private_repo", kPerformance, kFlag},
    {"hub_model_id", kPerformance, kText},
    {"hub_strategy", kPerformance, kText},
    {"hub_always_push", kPerformance, kFlag},
    {"hub_revision", kPerformance, kText},

    // Placement, speed, debugging
    {"gradient_checkpointing", kFills, kFlag, "activation_checkpointing", "false", "", "a hint: recompute activations"},
    {"activation_checkpointing", kFills, kFlag, "activation_checkpointing", "false", "", "a hint: recompute activations"},
    {"gradient_checkpointing_kwargs", kPerformance, kAny},
    {"activation_checkpointing_kwargs", kPerformance, kAny},
    {"fsdp", kPerformance, kAny},
    {"fsdp_config", kPerformance, kAny},
    {"accelerator_config", kPerformance, kAny},
    {"parallelism_config", kOnly, kAny, "", "null", "", "all ranks are data-parallel; remove it"},
    {"ddp_find_unused_parameters", kPerformance, kFlag},
    {"ddp_bucket_cap_mb", kPerformance, kWhole},
    {"ddp_broadcast_buffers", kPerformance, kFlag},
    {"ddp_static_graph", kPerformance, kFlag},
    {"ddp_backend", kPerformance, kText},
    {"ddp_timeout", kPerformance, kWhole},
    {"torch_compile", kPerformance, kFlag},
    {"torch_compile_backend", kPerformance, kText},
    {"torch_compile_mode", kPerformance, kText},
    {"torch_empty_cache_steps", kPerformance, kWhole},
    {"attn_implementation", kPerformance, kText},
    {"use_liger_kernel", kPerformance, kFlag},
    {"liger_kernel_config", kPerformance, kAny},
    {"use_cache", kPerformance, kFlag},
    {"use_cpu", kPerformance, kFlag},
    {"no_cuda", kPerformance, kFlag},
    {"full_determinism", kPerformance, kFlag},
    {"debug", kPerformance, kAny},
    {"skip_memory_metrics", kPerformance, kFlag},
});

}  // namespace

std::span<const TrainerName> trainer_names() {
  return kNames;
}

}  // namespace sluice::app
