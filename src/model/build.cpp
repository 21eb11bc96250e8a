#include "model/build.hpp"

#include <cmath>

#include "base/check.hpp"
#include "model/family.hpp"
#include "model/rotary.hpp"
#include "model/segments.hpp"

namespace sluice::model {
namespace {

class Builder {
 public:
  Builder(const spec::ModelSpec& spec, const ModuleFactory& factory)
      : family_(family_of(spec)), factory_(factory), frequencies_(inverse_frequencies(spec.rope, spec.head_width())) {
    model_.spec = spec;
    const double branches = 2.0 * static_cast<double>(spec.layers);
    residual_std_ = family_.has_scaled_residual_init ? spec.init_std / std::sqrt(branches) : spec.init_std;
  }

  Model build() {
    const int table = add_embedding();
    for (std::int64_t layer = 0; layer < spec().layers; ++layer) {
      add_attention(layer);
      add_mlp(layer);
    }
    add_head(table);
    return std::move(model_);
  }

 private:
  const spec::ModelSpec& spec() const { return model_.spec; }

  int add(ParamSpec param) {
    param.matrix = param.shape.size() >= 2;
    model_.params.push_back(std::move(param));
    return static_cast<int>(model_.params.size()) - 1;
  }
  int add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double std) {
    return add({.name = name + ".weight", .shape = {rows, columns}, .init = Init::kNormal, .init_std = std});
  }
  int add_gain(const std::string& name, std::int64_t width) {
    return add({.name = name + ".weight", .shape = {width}, .init = Init::kOnes});
  }
  int add_bias(const std::string& name, std::int64_t width) { return add({.name = name + ".bias", .shape = {width}}); }

  NormOptions add_norm(const std::string& name) {
    NormOptions norm{.kind = family_.norm, .eps = spec().norm_eps, .gain = add_gain(name, spec().hidden)};
    if (family_.norm == NormKind::kLayer) norm.bias = add_bias(name, spec().hidden);
    return norm;
  }
  LinearOptions add_linear(const std::string& name, std::int64_t in, std::int64_t out, bool has_bias, double std) {
    const bool in_first = family_.weight_order == WeightOrder::kInOut;
    LinearOptions linear{.in = in, .out = out, .order = family_.weight_order};
    linear.weight = add_matrix(name, in_first ? in : out, in_first ? out : in, std);
    if (has_bias) linear.bias = add_bias(name, out);
    return linear;
  }
  std::string of_layer(std::int64_t layer, std::string_view name) const { return cat(family_.layer, layer, ".", name); }

  int add_embedding() {
    const std::int64_t padding = family_.has_padding_row ? spec().pad_token : -1;
    const int table = add_matrix(std::string(family_.token_table), spec().vocab, spec().hidden, spec().init_std);
    model_.params.back().zero_row = padding;
    int positions = -1;
    if (family_.has_position_table)
      positions = add_matrix(std::string(family_.position_table), family_.position_rows(spec()), spec().hidden, spec().init_std);
    model_.segments.push_back(make_embedding_segment({.vocab = spec().vocab,
                                                      .context = spec().context,
                                                      .hidden = spec().hidden,
                                                      .dropout = spec().embedding_dropout,
                                                      .padding = padding,
                                                      .table = table,
                                                      .positions = positions,
                                                      .position_rows = family_.position_rows(spec()),
                                                      .first_position_row = family_.first_position_row}));
    return table;
  }

  void add_attention(std::int64_t layer) {
    const std::int64_t hidden = spec().hidden, d = spec().head_width();
    const std::int64_t queries = spec().heads * d, keys = spec().key_value_heads() * d;
    AttentionOptions options{.layer = layer,
                             .hidden = hidden,
                             .heads = spec().heads,
                             .kv_heads = spec().key_value_heads(),
                             .head_dim = d,
                             .window = spec().sliding_window,
                             .attention_dropout = spec().attention_dropout,
                             .residual_dropout = spec().residual_dropout,
                             .inverse_frequencies = frequencies_};
    options.norm = add_norm(of_layer(layer, family_.attention_norm));
    std::vector<std::int64_t> widths{queries, keys, keys};
    if (family_.qkv.size() == 1) widths = {queries + 2 * keys};
    SLUICE_CHECK(family_.qkv.size() == widths.size(), family_.name);
    for (std::size_t i = 0; i < widths.size(); ++i)
      options.qkv.push_back(add_linear(of_layer(layer, family_.qkv[i]), hidden, widths[i], family_.qkv_bias, spec().init_std));
    if (family_.has_query_key_norm) {
      options.query_norm = {.kind = NormKind::kRms, .eps = spec().norm_eps, .gain = add_gain(of_layer(layer, family_.query_norm), d)};
      options.key_norm = {.kind = NormKind::kRms, .eps = spec().norm_eps, .gain = add_gain(of_layer(layer, family_.key_norm), d)};
    }
    options.out = add_linear(of_layer(layer, family_.out), queries, hidden, family_.out_bias, residual_std_);
    model_.segments.push_back(make_attention_segment(std::move(options), factory_));
  }

  void add_mlp(std::int64_t layer) {
    const std::int64_t hidden = spec().hidden, ffn = spec().ffn;
    MlpOptions options{
        .layer = layer, .hidden = hidden, .ffn = ffn, .activation = family_.activation, .residual_dropout = spec().residual_dropout};
    options.norm = add_norm(of_layer(layer, family_.mlp_norm));
    if (family_.activation == Activation::kSiluGate)
      options.gate = add_linear(of_layer(layer, family_.gate), hidden, ffn, family_.mlp_bias, spec().init_std);
    options.up = add_linear(of_layer(layer, family_.up), hidden, ffn, family_.mlp_bias, spec().init_std);
    options.down = add_linear(of_layer(layer, family_.down), ffn, hidden, family_.mlp_bias, residual_std_);
    model_.segments.push_back(make_mlp_segment(options, factory_));
  }

  void add_head(int table) {
    HeadOptions options{.vocab = spec().vocab, .hidden = spec().hidden};
    options.norm = add_norm(std::string(family_.last_norm));
    options.weight = spec().tied_head ? table : add_matrix("lm_head", spec().vocab, spec().hidden, spec().init_std);
    model_.segments.push_back(make_head_segment(options));
  }

  const Family& family_;
  const ModuleFactory& factory_;
  std::vector<float> frequencies_;
  double residual_std_ = 0;
  Model model_;
};

}  // namespace

Model build_model(const spec::ModelSpec& spec, const ModuleFactory& factory) {
  const Family& family = family_of(spec);
  SLUICE_CHECK(spec.vocab > 0 && spec.context > 0 && spec.hidden > 0 && spec.layers > 0 && spec.heads > 0 && spec.ffn > 0, spec.name);
  SLUICE_CHECK(spec.head_dim > 0 || spec.hidden % spec.heads == 0, spec.name, ": hidden ", spec.hidden, ", heads ", spec.heads);
  SLUICE_CHECK(spec.heads % spec.key_value_heads() == 0, spec.name, ": heads ", spec.heads, ", of keys ", spec.kv_heads);
  if (family.has_position_table != (spec.rope.theta == 0)) {
    throw RequestError(
        cat("model ", spec.name, ": rope.theta is ", spec.rope.theta, ", but family \"", family.name, "\" has ",
            family.has_position_table ? "a table of positions; expected no rope" : "rotary positions; expected a base for them"));
  }
  return Builder(spec, factory).build();
}

}  // namespace sluice::model
