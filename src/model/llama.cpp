// LLaMA (Touvron et al. 2023): RMS norms, rotary positions, SwiGLU, no biases; keys and values may have fewer heads than queries.
// Mistral adds a sliding window, Qwen2 biases of queries, keys and values, Qwen3 a norm of each query and key.

#include "model/family.hpp"

namespace sluice::model {

std::vector<Family> llama_families() {
  Family llama{.name = "llama",
               .prefix = "model.",
               .token_table = "embed_tokens",
               .layer = "layers.",
               .attention_norm = "input_layernorm",
               .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
               .out = "self_attn.o_proj",
               .mlp_norm = "post_attention_layernorm",
               .gate = "mlp.gate_proj",
               .up = "mlp.up_proj",
               .down = "mlp.down_proj",
               .last_norm = "norm"};
  Family mistral = llama;
  mistral.name = "mistral";
  Family qwen2 = llama;
  qwen2.name = "qwen2";
  qwen2.qkv_bias = true;
  Family qwen3 = llama;
  qwen3.name = "qwen3";
  qwen3.has_query_key_norm = true;
  qwen3.query_norm = "self_attn.q_norm";
  qwen3.key_norm = "self_attn.k_norm";
  return {llama, mistral, qwen2, qwen3};
}

}  // namespace sluice::model
