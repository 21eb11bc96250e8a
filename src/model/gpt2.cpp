// GPT-2 (Radford et al. 2019): learned positions, tanh GELU, one layer for queries, keys and values, weights [in, out], tied head.

#include "model/family.hpp"

namespace sluice::model {

Family gpt2_family() {
  return {.name = "gpt2",
          .prefix = "transformer.",
          .norm = NormKind::kLayer,
          .activation = Activation::kGelu,
          .weight_order = WeightOrder::kInOut,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .has_position_table = true,
          .has_padding_row = false,
          .has_scaled_residual_init = true,
          .token_table = "wte",
          .position_table = "wpe",
          .layer = "h.",
          .attention_norm = "ln_1",
          .qkv = {"attn.c_attn"},
          .out = "attn.c_proj",
          .mlp_norm = "ln_2",
          .up = "mlp.c_fc",
          .down = "mlp.c_proj",
          .last_norm = "ln_f"};
}

}  // namespace sluice::model
