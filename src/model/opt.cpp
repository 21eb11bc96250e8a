// OPT (Zhang et al. 2022): learned positions whose table begins with two unused rows, ReLU.

#include "model/family.hpp"

namespace sluice::model {

Family opt_family() {
  return {.name = "opt",
          .prefix = "model.decoder.",
          .norm = NormKind::kLayer,
          .activation = Activation::kRelu,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .has_position_table = true,
          .first_position_row = 2,
          .token_table = "embed_tokens",
          .position_table = "embed_positions",
          .layer = "layers.",
          .attention_norm = "self_attn_layer_norm",
          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .out = "self_attn.out_proj",
          .mlp_norm = "final_layer_norm",
          .up = "fc1",
          .down = "fc2",
          .last_norm = "final_layer_norm"};
}

}  // namespace sluice::model
