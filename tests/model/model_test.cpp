#include "model/model.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/units.hpp"
#include "model/build.hpp"
#include "model/segments.hpp"
#include "ops/attention.hpp"
#include "ops/layer_norm.hpp"
#include "parallel/unsharded.hpp"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

spec::ModelSpec gpt2_124m() {
  return {.name = "gpt2-124m", .vocab = 50257, .context = 1024, .hidden = 768, .layers = 12, .heads = 12, .ffn = 3072};
}

Model build(const spec::ModelSpec& spec) {
  return build_model(spec, *parallel::make_unsharded_modules());
}

const ParamSpec& find(const Model& model, const std::string& name) {
  for (const ParamSpec& param : model.params) {
    if (param.name == name) return param;
  }
  throw RequestError("no parameter " + name);
}

TEST(Model, Gpt2HasTheParametersOfTransformersInFirstUseOrder) {
  spec::ModelSpec spec = gpt2_124m();
  spec.layers = 2;
  std::vector<std::string> names;
  for (const ParamSpec& param : build(spec).params) names.push_back(param.name);
  std::vector<std::string> expected = {"wte.weight", "wpe.weight"};
  for (const std::string layer : {"h.0.", "h.1."}) {
    for (const char* name : {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                             "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"}) {
      expected.push_back(layer + name);
    }
  }
  expected.insert(expected.end(), {"ln_f.weight", "ln_f.bias"});
  EXPECT_EQ(names, expected);
}

TEST(Model, Gpt2SmallHas124439808Parameters) {
  EXPECT_EQ(build(gpt2_124m()).parameter_count(), 124439808);
  spec::ModelSpec untied = gpt2_124m();
  untied.tied_head = false;
  EXPECT_EQ(build(untied).parameter_count(), 124439808 + 50257 * 768);
}

spec::ModelSpec opt_125m() {
  return {.name = "opt-125m",
          .family = "opt",
          .vocab = 50272,
          .context = 2048,
          .hidden = 768,
          .layers = 12,
          .heads = 12,
          .ffn = 3072,
          .pad_token = 1};
}
spec::ModelSpec llama3_8b() {
  return {.name = "llama3-8b",
          .family = "llama",
          .vocab = 128256,
          .context = 8192,
          .hidden = 4096,
          .layers = 32,
          .heads = 32,
          .ffn = 14336,
          .tied_head = false,
          .kv_heads = 8,
          .rope = {.theta = 500000}};
}
spec::ModelSpec qwen2_05b() {
  return {.name = "qwen2.5-0.5b",
          .family = "qwen2",
          .vocab = 151936,
          .context = 32768,
          .hidden = 896,
          .layers = 24,
          .heads = 14,
          .ffn = 4864,
          .norm_eps = 1e-6,
          .kv_heads = 2,
          .rope = {.theta = 1000000}};
}
spec::ModelSpec qwen3_06b() {
  return {.name = "qwen3-0.6b",
          .family = "qwen3",
          .vocab = 151936,
          .context = 40960,
          .hidden = 1024,
          .layers = 28,
          .heads = 16,
          .ffn = 3072,
          .norm_eps = 1e-6,
          .kv_heads = 8,
          .head_dim = 128,
          .rope = {.theta = 1000000}};
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ParamSpec& param : model.params) names.push_back(param.name);
  return names;
}

TEST(Model, OtherFamiliesHaveTheParametersOfTransformersInFirstUseOrder) {
  spec::ModelSpec opt = opt_125m();
  opt.layers = 1;
  EXPECT_THAT(names_of(build(opt)),
              ElementsAre("embed_tokens.weight", "embed_positions.weight", "layers.0.self_attn_layer_norm.weight",
                          "layers.0.self_attn_layer_norm.bias", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.bias",
                          "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.k_proj.bias", "layers.0.self_attn.v_proj.weight",
                          "layers.0.self_attn.v_proj.bias", "layers.0.self_attn.out_proj.weight", "layers.0.self_attn.out_proj.bias",
                          "layers.0.final_layer_norm.weight", "layers.0.final_layer_norm.bias", "layers.0.fc1.weight", "layers.0.fc1.bias",
                          "layers.0.fc2.weight", "layers.0.fc2.bias", "final_layer_norm.weight", "final_layer_norm.bias"));
  EXPECT_THAT(find(build(opt), "embed_positions.weight").shape, ElementsAre(2050, 768));
  EXPECT_THAT(find(build(opt), "layers.0.fc1.weight").shape, ElementsAre(3072, 768));  // [out, in]
  spec::ModelSpec qwen3 = qwen3_06b();
  qwen3.layers = 1;
  qwen3.tied_head = false;
  const Model model = build(qwen3);
  EXPECT_THAT(names_of(model),
              ElementsAre("embed_tokens.weight", "layers.0.input_layernorm.weight", "layers.0.self_attn.q_proj.weight",
                          "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight", "layers.0.self_attn.q_norm.weight",
                          "layers.0.self_attn.k_norm.weight", "layers.0.self_attn.o_proj.weight",
                          "layers.0.post_attention_layernorm.weight", "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight",
                          "layers.0.mlp.down_proj.weight", "norm.weight", "lm_head.weight"));
  EXPECT_THAT(find(model, "layers.0.self_attn.q_proj.weight").shape, ElementsAre(2048, 1024));
  EXPECT_THAT(find(model, "layers.0.self_attn.k_proj.weight").shape, ElementsAre(1024, 1024));
  EXPECT_THAT(find(model, "layers.0.self_attn.o_proj.weight").shape, ElementsAre(1024, 2048));
  EXPECT_THAT(find(model, "layers.0.self_attn.k_norm.weight").shape, ElementsAre(128));
  spec::ModelSpec qwen2 = qwen2_05b();
  qwen2.layers = 1;
  std::vector<std::string> biases;
  for (const std::string& name : names_of(build(qwen2))) {
    if (name.ends_with("bias")) biases.push_back(name);
  }
  EXPECT_THAT(biases, ElementsAre("layers.0.self_attn.q_proj.bias", "layers.0.self_attn.k_proj.bias", "layers.0.self_attn.v_proj.bias"));
  for (const Model& each : {build(opt), build(qwen2), build(qwen3)}) {  // each segment's list is in the order of the model's
    for (const auto& segment : each.segments) {
      const std::span<const int> params = segment->params();
      EXPECT_TRUE(segment->kind() == SegmentKind::kHead || std::is_sorted(params.begin(), params.end())) << segment->name();
    }
  }
}

// What transformers counts for the published models (num_parameters()).
TEST(Model, OtherFamiliesHaveTheSizesOfTheirModels) {
  EXPECT_EQ(build(opt_125m()).parameter_count(), 125239296);
  EXPECT_EQ(build(llama3_8b()).parameter_count(), 8030261248);
  EXPECT_EQ(build(qwen2_05b()).parameter_count(), 494032768);
  EXPECT_EQ(build(qwen3_06b()).parameter_count(), 596049920);
}

TEST(Model, InitOfTheOtherFamilies) {
  for (const spec::ModelSpec& spec : {opt_125m(), llama3_8b(), qwen2_05b(), qwen3_06b()}) {
    for (const ParamSpec& param : build(spec).params) {
      EXPECT_EQ(param.matrix, param.shape.size() == 2) << param.name;
      if (param.matrix) {
        EXPECT_EQ(param.init, Init::kNormal) << param.name;
        EXPECT_EQ(param.init_std, 0.02) << param.name;  // residual projections too
      } else {
        EXPECT_EQ(param.init, param.name.ends_with("bias") ? Init::kZeros : Init::kOnes) << param.name;
      }
      EXPECT_EQ(param.zero_row, spec.family == "opt" && param.name == "embed_tokens.weight" ? 1 : -1) << param.name;
    }
  }
  spec::ModelSpec gpt2 = gpt2_124m();
  gpt2.pad_token = 3;
  EXPECT_EQ(find(build(gpt2), "wte.weight").zero_row, -1);  // GPT2Model has no padding row
}

TEST(Model, InitialisesByIndexAndClearsThePaddingRow) {
  const ops::Context ctx = ops::make_cpu_context(1);
  const ParamSpec table{
      .name = "embed_tokens.weight", .shape = {7, 5}, .init = Init::kNormal, .init_std = 0.5, .matrix = true, .zero_row = 2};
  std::vector<float> whole(35), plain(35), pieces(35);
  initialise(ctx, table, 3, 0, 35, whole.data());
  ParamSpec other = table;
  other.zero_row = -1;
  initialise(ctx, other, 3, 0, 35, plain.data());
  for (std::size_t i = 0; i < 35; ++i) EXPECT_EQ(whole[i], i / 5 == 2 ? 0.0f : plain[i]) << i;
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 9}, {12, 2}, {14, 21}})
    initialise(ctx, table, 3, first, count, pieces.data() + first);
  EXPECT_EQ(pieces, whole);
  initialise(ctx, other, 4, 0, 35, pieces.data());
  EXPECT_NE(pieces, plain);
  double squares = 0;
  for (const float value : plain) squares += static_cast<double>(value) * value;
  EXPECT_NEAR(std::sqrt(squares / 35), 0.5, 0.2);
}

TEST(Model, RotaryPositionsBelongToFamiliesWithoutATable) {
  spec::ModelSpec spec = llama3_8b();
  spec.rope = {};
  EXPECT_THROW(build(spec), RequestError);
  spec = gpt2_124m();
  spec.rope.theta = 10000;
  EXPECT_THROW(build(spec), RequestError);
}

// N tokens in rows of T, H heads of D, K of keys and values, written out by hand.
TEST(Model, FlopsOfGroupedHeadsAndGates) {
  const Model model = build(qwen3_06b());
  const Shape shape{.rows = 2, .sequence = 512};
  const double n = 1024, t = 512, c = 1024, f = 3072, h = 16, k = 8, d = 128;
  const double pairs = 2 * h * t * (t + 1) / 2, products = 2 * n * c * (h + 2 * k) * d, out = 2 * n * c * h * d;
  const auto flops = [&](std::size_t segment, Phase phase) { return model.segments[segment]->work(phase, shape).flops; };
  EXPECT_DOUBLE_EQ(flops(1, Phase::kForward), products + out + pairs * 4 * d);
  EXPECT_DOUBLE_EQ(flops(1, Phase::kRecompute), products + pairs * 4 * d);
  EXPECT_DOUBLE_EQ(flops(1, Phase::kBackward), 2 * (products + out) + pairs * 10 * d);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kForward), 6 * n * c * f);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kRecompute), 4 * n * c * f);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kBackward), 12 * n * c * f);
}

TEST(Model, MemoryOfGroupedHeadsAndGates) {
  const Model model = build(llama3_8b());
  const Shape shape{.rows = 1, .sequence = 256};
  const double n = 256, c = 4096, f = 14336, qkv = 6144, kv = 1024, h = 32;
  EXPECT_EQ(model.segments[1]->saved_bytes(shape), 4 * 256 * (6144 + 4096 + 32));
  EXPECT_EQ(model.segments[1]->saved_exact_bytes(shape), 4 * 256 * 32);
  EXPECT_EQ(model.segments[2]->saved_bytes(shape), 4 * 256 * 2 * 14336);
  const auto floats = [&](std::size_t segment, Phase phase) { return model.segments[segment]->work(phase, shape).memory_bytes / 4; };
  const double norm = 2 * n * c + c + n, norm_backward = 3 * n * c + 2 * c + n, turn = 2 * n * (c + kv);
  const auto product = [&](double in, double out) { return n * in + in * out + n * out; };
  EXPECT_DOUBLE_EQ(floats(1, Phase::kRecompute), norm + product(c, c) + 2 * product(c, kv) + turn + n * (qkv + c + h));
  EXPECT_DOUBLE_EQ(floats(1, Phase::kForward), floats(1, Phase::kRecompute) + product(c, c) + 3 * n * c);
  EXPECT_DOUBLE_EQ(floats(1, Phase::kBackward),
                   4 * product(c, c) + 4 * product(c, kv) + n * (2 * qkv + 2 * c + h) + turn + norm + norm_backward + n * c);
  EXPECT_DOUBLE_EQ(floats(2, Phase::kForward), norm + 3 * product(c, f) + 3 * n * f + 3 * n * c);
  EXPECT_DOUBLE_EQ(floats(2, Phase::kBackward), 8 * n * f + 6 * product(c, f) + norm + norm_backward + n * c);
  EXPECT_DOUBLE_EQ(floats(0, Phase::kForward), 2 * n * c);
  // Norms of queries and keys: one more pass forward; backward they and the turning are done again, and have gradients.
  const spec::ModelSpec small = qwen3_06b();
  spec::ModelSpec plain = small;
  plain.family = "llama";
  const double turned = n * 24 * 128;
  const auto difference = [&](Phase phase) {
    return (build(small).segments[1]->work(phase, shape).memory_bytes - build(plain).segments[1]->work(phase, shape).memory_bytes) / 4;
  };
  EXPECT_DOUBLE_EQ(difference(Phase::kForward), 2 * turned);
  EXPECT_DOUBLE_EQ(difference(Phase::kBackward), 7 * turned);
  EXPECT_EQ(build(small).segments[1]->saved_bytes(shape), build(plain).segments[1]->saved_bytes(shape));
}

TEST(Model, InitAndDecayFollowTransformers) {
  const Model model = build(gpt2_124m());
  EXPECT_EQ(find(model, "wte.weight").init, Init::kNormal);
  EXPECT_DOUBLE_EQ(find(model, "wpe.weight").init_std, 0.02);
  EXPECT_DOUBLE_EQ(find(model, "h.3.attn.c_attn.weight").init_std, 0.02);
  EXPECT_DOUBLE_EQ(find(model, "h.3.mlp.c_fc.weight").init_std, 0.02);
  EXPECT_DOUBLE_EQ(find(model, "h.3.attn.c_proj.weight").init_std, 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(find(model, "h.3.mlp.c_proj.weight").init_std, 0.02 / std::sqrt(24.0));
  EXPECT_THAT(find(model, "h.3.mlp.c_proj.weight").shape, ElementsAre(3072, 768));
  EXPECT_THAT(find(model, "h.3.attn.c_attn.weight").shape, ElementsAre(768, 2304));
  for (const ParamSpec& param : model.params) {
    EXPECT_EQ(param.matrix, param.shape.size() == 2) << param.name;
    if (param.matrix) continue;
    EXPECT_EQ(param.init, param.name.ends_with("bias") ? Init::kZeros : Init::kOnes) << param.name;
  }
}

TEST(Model, SegmentsAreTheHalfBlocksBetweenEmbeddingAndHead) {
  spec::ModelSpec spec = gpt2_124m();
  spec.layers = 2;
  const Model model = build(spec);
  std::vector<std::string> names;
  for (const auto& segment : model.segments) names.push_back(segment->name());
  EXPECT_THAT(names, ElementsAre("embedding", "layer 0 attention", "layer 0 mlp", "layer 1 attention", "layer 1 mlp", "head"));
  EXPECT_EQ(model.segments[3]->layer(), 1);
  EXPECT_EQ(model.segments[5]->layer(), -1);
  EXPECT_THAT(model.segments[0]->params(), ElementsAre(0, 1));
  EXPECT_THAT(model.segments[4]->params(), ElementsAre(20, 21, 22, 23, 24, 25));
  EXPECT_THAT(model.segments[5]->params(), ElementsAre(26, 27, 0));  // tied: the token table
  spec.tied_head = false;
  const Model untied = build(spec);
  EXPECT_THAT(untied.segments[5]->params(), ElementsAre(26, 27, 28));
  EXPECT_EQ(untied.params[28].name, "lm_head.weight");
  EXPECT_THAT(untied.params[28].shape, ElementsAre(50257, 768));
}

TEST(Model, PhasesOfEachKind) {
  const Model model = build(gpt2_124m());
  const auto phases = [](const Segment& segment) {
    std::vector<std::string_view> names;
    for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kForwardBackward, Phase::kLogits}) {
      if (segment.has_phase(phase)) names.push_back(name_of(phase));
    }
    return names;
  };
  EXPECT_THAT(phases(*model.segments[0]), ElementsAre("forward", "backward"));
  EXPECT_THAT(phases(*model.segments[1]), ElementsAre("forward", "recompute", "backward"));
  EXPECT_THAT(phases(*model.segments[2]), ElementsAre("forward", "recompute", "backward"));
  EXPECT_THAT(phases(*model.segments.back()), ElementsAre("forward", "forward_backward", "logits"));
}

TEST(Model, UnknownFamilyIsTheUsersError) {
  spec::ModelSpec spec = gpt2_124m();
  spec.family = "gpt9";
  try {
    build(spec);
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("gpt9"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected one of gpt2, opt, llama, mistral, qwen2, qwen3"));
  }
  spec = gpt2_124m();
  spec.heads = 7;
  EXPECT_THROW(build(spec), LogicError);
}

TEST(Model, SavedBytesAreWhatBackwardNeeds) {
  const Model model = build(gpt2_124m());
  const Shape shape{.rows = 4, .sequence = 256};
  const std::int64_t activation = 4 * 1024 * 768;
  EXPECT_EQ(model.activation_bytes(shape), activation);
  EXPECT_EQ(model.segments[0]->saved_bytes(shape), 0);
  EXPECT_EQ(model.segments[1]->saved_bytes(shape), 4 * activation + 4 * 12 * 1024);  // qkv, out; logsumexp
  EXPECT_EQ(model.segments[2]->saved_bytes(shape), 4 * activation);                  // fc1's output
  EXPECT_EQ(model.segments.back()->saved_bytes(shape), 0);
}

TEST(Model, WorkspaceBytesAreTheSumOfWhatIsAliveTogether) {
  const Model model = build(gpt2_124m());
  const Shape shape{.rows = 4, .sequence = 256};
  const std::int64_t a = 4 * 1024 * 768, statistics = 2 * 4 * 1024;
  for (const int threads : {1, 3}) {
    const std::int64_t core = round_up(ops::attention_workspace_bytes({4, 256, 12, 64}, threads), 64);
    const std::int64_t norm = round_up(ops::layer_norm_workspace_bytes(threads, 768), 64);
    const Segment &attention = *model.segments[1], &mlp = *model.segments[2], &head = *model.segments.back();
    EXPECT_EQ(attention.workspace_bytes(Phase::kForward, shape, threads), std::max(core, statistics));
    EXPECT_EQ(attention.workspace_bytes(Phase::kRecompute, shape, threads), std::max(core, statistics + a));
    EXPECT_EQ(attention.workspace_bytes(Phase::kBackward, shape, threads), 4 * a + statistics + std::max(core, norm));
    EXPECT_EQ(mlp.workspace_bytes(Phase::kForward, shape, threads), 4 * a);
    EXPECT_EQ(mlp.workspace_bytes(Phase::kRecompute, shape, threads), statistics + a);
    EXPECT_EQ(mlp.workspace_bytes(Phase::kBackward, shape, threads), 5 * a + statistics + norm);
    // 160 rows of logits fit in 32 MiB; 1024 rows are 7 tiles of at most 160.
    const std::int64_t tile = 160, head_bytes = 4 * tile * 768 + 2 * 4 * tile + 4 * tile * 50257;
    EXPECT_EQ(head.workspace_bytes(Phase::kForward, shape, threads), head_bytes);
    EXPECT_EQ(head.workspace_bytes(Phase::kForwardBackward, shape, threads), head_bytes + norm);
    EXPECT_EQ(head.workspace_bytes(Phase::kLogits, shape, threads), 4 * 4 * 768 + 2 * 64);
    EXPECT_EQ(head.workspace_bytes(Phase::kBackward, shape, threads), 0);  // it has none
  }
}

TEST(Model, HeadTilesAreEvenAndBounded) {
  EXPECT_EQ(head_tile_rows(1024, 50257), 160);
  EXPECT_EQ(head_tile_rows(170, 50257), 96);      // two of 85, rounded to 32, not 160 and 10
  EXPECT_EQ(head_tile_rows(100, 50257), 100);     // one
  EXPECT_EQ(head_tile_rows(1024, 96), 1024);      // all fit
  EXPECT_EQ(head_tile_rows(10000, 1000000), 64);  // never fewer than 64 rows
  EXPECT_EQ(head_tile_rows(3, 1000000), 3);
  for (std::int64_t tokens = 1; tokens < 3000; tokens += 37) {
    for (const std::int64_t vocab : {50257, 128256, 32000}) {
      const std::int64_t tile = head_tile_rows(tokens, vocab);
      EXPECT_TRUE(tile == tokens || tile % 32 == 0);
      EXPECT_TRUE(tile * vocab * 4 <= 32 * kMiB || tile <= 64) << tokens << " " << vocab;
      EXPECT_LE(tile, tokens);
    }
  }
}

// GEMMs and the attention's products only, written out by hand: N tokens in rows of T, width C, inner width F, vocabulary V.
TEST(Model, FlopsAreThoseOfTheProducts) {
  const Model model = build(gpt2_124m());
  const Shape shape{.rows = 4, .sequence = 256};
  const double n = 1024, t = 256, c = 768, f = 3072, v = 50257;
  const double pairs = 4 * 12 * t * (t + 1) / 2;  // causal, over rows and heads
  const auto flops = [&](std::size_t segment, Phase phase) { return model.segments[segment]->work(phase, shape).flops; };
  const std::size_t head = model.segments.size() - 1;
  EXPECT_DOUBLE_EQ(flops(1, Phase::kForward), 8 * n * c * c + pairs * 4 * 64);
  EXPECT_DOUBLE_EQ(flops(1, Phase::kRecompute), 6 * n * c * c + pairs * 4 * 64);
  EXPECT_DOUBLE_EQ(flops(1, Phase::kBackward), 16 * n * c * c + pairs * 10 * 64);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kForward), 4 * n * c * f);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kRecompute), 2 * n * c * f);
  EXPECT_DOUBLE_EQ(flops(2, Phase::kBackward), 8 * n * c * f);
  EXPECT_DOUBLE_EQ(flops(head, Phase::kForward), 2 * n * c * v);
  EXPECT_DOUBLE_EQ(flops(head, Phase::kForwardBackward), 6 * n * c * v);
  EXPECT_DOUBLE_EQ(flops(head, Phase::kLogits), 2 * 4 * c * v);
  EXPECT_EQ(flops(0, Phase::kForward), 0);
  EXPECT_EQ(flops(1, Phase::kForwardBackward), 0);  // no such phase
}

TEST(Model, MemoryBytesAreWhatEachOpReadsAndWrites) {
  const Model model = build(gpt2_124m());
  const Shape shape{.rows = 4, .sequence = 256};
  const double n = 1024, c = 768, f = 3072, v = 50257, h = 12, t = 256;
  const auto floats = [&](std::size_t segment, Phase phase) { return model.segments[segment]->work(phase, shape).memory_bytes / 4; };
  const std::size_t head = model.segments.size() - 1;
  const double norm = 2 * n * c + 2 * c + 2 * n, norm_backward = 3 * n * c + 3 * c + 2 * n;
  const double attention_recompute = norm + (n * c + 3 * c * c + 3 * c + 3 * n * c) + (4 * n * c + n * h);
  EXPECT_DOUBLE_EQ(floats(1, Phase::kRecompute), attention_recompute);
  EXPECT_DOUBLE_EQ(floats(1, Phase::kForward), attention_recompute + (2 * n * c + c * c + c) + 3 * n * c);
  // proj: dy, W, dx; x, dy, dW; dy, db. core. norm again. qkv the same way. norm backward, which also reads what it adds to.
  EXPECT_DOUBLE_EQ(floats(1, Phase::kBackward), (2 * n * c + c * c) + (2 * n * c + c * c) + (n * c + c) + (8 * n * c + n * h) + norm +
                                                    (4 * n * c + 3 * c * c) + (4 * n * c + 3 * c * c) + (3 * n * c + 3 * c) +
                                                    norm_backward + n * c);
  EXPECT_DOUBLE_EQ(floats(2, Phase::kForward), norm + (n * c + c * f + f + n * f) + n * f + (n * f + f * c + c + n * c) + 3 * n * c);
  EXPECT_DOUBLE_EQ(floats(2, Phase::kBackward), 5 * n * f + 2 * (n * c + c * f + n * f) + (n * c + c) + norm + 2 * (n * c + c * f + n * f) +
                                                    (n * f + f) + norm_backward + n * c);
  // Seven tiles read W twice and write its gradient; six of them also read it.
  const double tiles = 7;
  EXPECT_DOUBLE_EQ(floats(head, Phase::kForwardBackward), (2 * n * c + tiles * 2 * c + 2 * n) + (n * c + tiles * v * c + n * v) +
                                                              2 * n * v + (n * v + n * c + tiles * v * c) + (tiles - 1) * v * c +
                                                              (n * v + tiles * v * c + n * c) + (3 * n * c + tiles * 3 * c + 2 * n));
  EXPECT_DOUBLE_EQ(floats(0, Phase::kForward), 2 * n * c + t * c);
  spec::ModelSpec with_dropout = gpt2_124m();
  with_dropout.embedding_dropout = 0.1;
  EXPECT_DOUBLE_EQ(build(with_dropout).segments[0]->work(Phase::kForward, shape).memory_bytes / 4, 4 * n * c + t * c);
}

TEST(Model, ModelFlopsCountWhatIsBuilt) {
  for (const spec::ModelSpec& spec : {gpt2_124m(), opt_125m(), llama3_8b(), qwen2_05b(), qwen3_06b()}) {
    const Model model = build(spec);
    double n = static_cast<double>(model.parameter_count());
    for (const ParamSpec& param : model.params) {
      if (param.name == "wpe.weight" || param.name == "embed_positions.weight") n -= static_cast<double>(param.elements());
    }
    const auto core = static_cast<double>(spec.layers * spec.heads * spec.head_width());
    EXPECT_DOUBLE_EQ(model_flops(spec, 100, 256), 100 * (6 * n + 12 * core * 256)) << spec.name;
  }
}

TEST(Model, ModelFlopsArePalms) {
  const double n = 124439808 - 1024 * 768;  // without the position table
  EXPECT_DOUBLE_EQ(model_flops(gpt2_124m(), 1024, 256), 1024 * (6 * n + 12 * 12 * 768.0 * 256));
  spec::ModelSpec untied = gpt2_124m();
  untied.tied_head = false;
  EXPECT_DOUBLE_EQ(model_flops(untied, 10, 256), 10 * (6 * (n + 50257 * 768) + 12 * 12 * 768.0 * 256));
  untied.ffn = 1000;
  EXPECT_DOUBLE_EQ(model_flops(untied, 10, 256),
                   10 * (6 * static_cast<double>(build(untied).parameter_count() - 1024 * 768) + 12 * 12 * 768.0 * 256));
}

}  // namespace
}  // namespace sluice::model
