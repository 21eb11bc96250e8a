#include "model/gpt2.hpp"

#include <cmath>

#include "base/check.hpp"
#include "model/segments.hpp"

namespace sluice::model {
namespace {

class Builder {
 public:
  Builder(const spec::ModelSpec& spec, const ModuleFactory& factory) : factory_(factory) { model_.spec = spec; }

  Model build() {
    const int wte = add_embedding();
    for (std::int64_t layer = 0; layer < spec().layers; ++layer) add_block(layer);
    add_head(wte);
    return std::move(model_);
  }

 private:
  const spec::ModelSpec& spec() const { return model_.spec; }

  int add(ParamSpec param) {
    param.matrix = param.shape.size() >= 2;
    model_.params.push_back(std::move(param));
    return static_cast<int>(model_.params.size()) - 1;
  }
  int add_table(const std::string& name, std::int64_t rows, std::int64_t columns, double std) {
    return add({.name = name + ".weight", .shape = {rows, columns}, .init = Init::kNormal, .init_std = std});
  }
  std::vector<int> add_norm(const std::string& name) {
    const int gain = add({.name = name + ".weight", .shape = {spec().hidden}, .init = Init::kOnes});
    return {gain, add({.name = name + ".bias", .shape = {spec().hidden}})};
  }
  void add_linear(std::vector<int>& params, const std::string& name, std::int64_t in, std::int64_t out, double std) {
    params.push_back(add_table(name, in, out, std));
    params.push_back(add({.name = name + ".bias", .shape = {out}}));
  }

  int add_embedding() {
    const int wte = add_table("wte", spec().vocab, spec().hidden, spec().init_std);
    const int wpe = add_table("wpe", spec().context, spec().hidden, spec().init_std);
    model_.segments.push_back(make_embedding_segment({.vocab = spec().vocab,
                                                      .context = spec().context,
                                                      .hidden = spec().hidden,
                                                      .dropout = spec().embedding_dropout,
                                                      .params = {wte, wpe}}));
    return wte;
  }

  void add_block(std::int64_t layer) {
    const std::string prefix = cat("h.", layer, ".");
    const std::int64_t hidden = spec().hidden;
    const double residual_std = spec().init_std / std::sqrt(2.0 * static_cast<double>(spec().layers));
    std::vector<int> attention = add_norm(prefix + "ln_1");
    add_linear(attention, prefix + "attn.c_attn", hidden, 3 * hidden, spec().init_std);
    add_linear(attention, prefix + "attn.c_proj", hidden, hidden, residual_std);
    model_.segments.push_back(make_attention_segment({.layer = layer,
                                                      .hidden = hidden,
                                                      .heads = spec().heads,
                                                      .norm_eps = spec().norm_eps,
                                                      .attention_dropout = spec().attention_dropout,
                                                      .residual_dropout = spec().residual_dropout,
                                                      .params = std::move(attention)},
                                                     factory_));
    std::vector<int> mlp = add_norm(prefix + "ln_2");
    add_linear(mlp, prefix + "mlp.c_fc", hidden, spec().ffn, spec().init_std);
    add_linear(mlp, prefix + "mlp.c_proj", spec().ffn, hidden, residual_std);
    model_.segments.push_back(make_mlp_segment({.layer = layer,
                                                .hidden = hidden,
                                                .ffn = spec().ffn,
                                                .norm_eps = spec().norm_eps,
                                                .residual_dropout = spec().residual_dropout,
                                                .params = std::move(mlp)},
                                               factory_));
  }

  void add_head(int wte) {
    std::vector<int> head = add_norm("ln_f");
    head.push_back(spec().tied_head ? wte : add_table("lm_head", spec().vocab, spec().hidden, spec().init_std));
    model_.segments.push_back(
        make_head_segment({.vocab = spec().vocab, .hidden = spec().hidden, .norm_eps = spec().norm_eps, .params = std::move(head)}));
  }

  const ModuleFactory& factory_;
  Model model_;
};

}  // namespace

Model build_model(const spec::ModelSpec& spec, const ModuleFactory& factory) {
  if (spec.family != "gpt2") {
    throw RequestError(cat("model ", spec.name, ": family \"", spec.family, "\" is unknown, expected \"gpt2\""));
  }
  SLUICE_CHECK(spec.vocab > 0 && spec.context > 0 && spec.hidden > 0 && spec.layers > 0 && spec.heads > 0 && spec.ffn > 0, spec.name);
  SLUICE_CHECK(spec.hidden % spec.heads == 0, spec.name, ": hidden ", spec.hidden, ", heads ", spec.heads);
  return Builder(spec, factory).build();
}

}  // namespace sluice::model
