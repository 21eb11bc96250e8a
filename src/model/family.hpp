#pragma once
// What tells one family of models from another: what its blocks are made of and what transformers calls their parameters.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/modules.hpp"
#include "spec/model_spec.hpp"

namespace sluice::model {

enum class NormKind : std::uint8_t { kLayer, kRms };               // gain and bias; gain alone
enum class Activation : std::uint8_t { kGelu, kRelu, kSiluGate };  // gelu_tanh(up), relu(up), silu(gate) * up

/// A pre-norm transformer decoder. Names are transformers' without the prefix, and without ".weight" and ".bias".
struct Family {
  std::string_view name;    // ModelSpec::family, transformers' model_type
  std::string_view prefix;  // of every parameter but "lm_head.weight" in a checkpoint of the language model

  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSiluGate;
  WeightOrder weight_order = WeightOrder::kOutIn;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool has_query_key_norm = false;        // RMS norm over each head's query and key
  bool has_position_table = false;        // else rotary positions
  std::int64_t first_position_row = 0;    // of the position table: rows before it are never used
  bool has_padding_row = true;            // the token table's row of pad_token has no gradient from the embedding
  bool has_scaled_residual_init = false;  // init_std / sqrt(2 layers) for what ends a residual branch

  std::string_view token_table, position_table;
  std::string_view layer;  // "h.": then the index and a dot
  std::string_view attention_norm;
  std::vector<std::string_view> qkv;  // one linear layer for queries, keys and values, or one for each
  std::string_view query_norm, key_norm;
  std::string_view out;
  std::string_view mlp_norm, gate, up, down;
  std::string_view last_norm;

  std::int64_t position_rows(const spec::ModelSpec& spec) const { return has_position_table ? first_position_row + spec.context : 0; }
};

/// Every family that can be built, in the order of messages.
std::span<const Family> families();
/// "gpt2, opt, llama, ...".
std::string family_names();
/// Null when there is none of that name.
const Family* find_family(std::string_view name);
/// Throws RequestError for an unknown family.
const Family& family_of(const spec::ModelSpec& spec);

Family gpt2_family();                  // gpt2.cpp
Family opt_family();                   // opt.cpp
std::vector<Family> llama_families();  // llama.cpp: LLaMA and those that differ from it in little

}  // namespace sluice::model
