#include "spec/model_spec.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::spec {
namespace {

using testing::expect_error;
using testing::replaced;

ModelSpec example() {
  ModelSpec m;
  m.name = "an \"odd\" näme";
  m.vocab = 50257;
  m.context = 1024;
  m.hidden = 768;
  m.layers = 12;
  m.heads = 12;
  m.ffn = 3072;
  m.norm_eps = 0.1 + 0.2;  // 0.30000000000000004
  m.init_std = 0x1.fffffffffffffp-1022;
  m.embedding_dropout = 1.0 / 3.0;
  m.attention_dropout = -0.0;
  m.residual_dropout = std::nextafter(1.0, 0.0);
  m.tied_head = false;
  return m;
}

TEST(ModelSpec, SurvivesItsJsonFormExactly) {
  const ModelSpec read = model_spec_from_json(to_json(example()), "m.json");
  EXPECT_EQ(read, example());
  EXPECT_TRUE(std::signbit(read.attention_dropout));
}

TEST(ModelSpec, WritesWhatHasADefaultOnlyWhereItDiffers) {
  for (const char* key : {"kv_heads", "head_dim", "rope", "sliding_window", "bos_token", "eos_tokens", "pad_token"}) {
    EXPECT_EQ(to_json(example()).find(key), std::string::npos) << key;
  }
  ModelSpec m = example();
  m.kv_heads = 4;
  m.head_dim = 80;
  m.rope = {.theta = 500000.1,
            .scaling = RopeScaling::kLlama3,
            .factor = 8,
            .low_frequency_factor = 1.5,
            .high_frequency_factor = 3.7,
            .original_context = 8192};
  m.sliding_window = 4096;
  m.bos_token = 1;
  m.eos_tokens = {2, 128001};
  m.pad_token = 0;
  EXPECT_EQ(model_spec_from_json(to_json(m), "m.json"), m);
  expect_error<FormatError>([&] { model_spec_from_json(replaced(to_json(m), "\"llama3\"", "\"yarn\""), "m.json"); },
                            {"\"rope.scaling\"", "found \"yarn\"", "\"linear\", \"llama3\""});
  expect_error<FormatError>([&] { model_spec_from_json(replaced(to_json(m), "128001", "\"</s>\""), "m.json"); },
                            {"\"eos_tokens[1]\"", "</s>", "a whole number"});
}

TEST(ModelSpec, DerivesWhatIsNotGiven) {
  ModelSpec m = example();
  EXPECT_EQ(m.key_value_heads(), 12);
  EXPECT_EQ(m.head_width(), 64);
  m.kv_heads = 3;
  m.head_dim = 10;
  EXPECT_EQ(m.key_value_heads(), 3);
  EXPECT_EQ(m.head_width(), 10);
}

TEST(ModelSpec, TakesAWholeNumberWhereANumberIsExpected) {
  EXPECT_EQ(model_spec_from_json(replaced(to_json(example()), "0.30000000000000004", "1"), "m.json").norm_eps, 1.0);
}

TEST(ModelSpec, RefusesBadKeysByName) {
  const std::string good = to_json(example());
  const auto refuse = [](const std::string& text, const std::vector<std::string>& pieces) {
    expect_error<FormatError>([&] { model_spec_from_json(text, "some/m.json"); }, pieces);
  };
  refuse(replaced(good, "\"hidden\"", "\"hiden\""), {"some/m.json", "\"hiden\" is unknown", "\"hidden\""});
  refuse(replaced(good, "\"hidden\": 768,", ""), {"some/m.json", "\"hidden\" is missing"});
  refuse(replaced(good, "768", "\"768\""), {"\"hidden\"", "found \"768\"", "expected a whole number"});
  refuse(replaced(good, "768", "768.0"), {"\"hidden\"", "found 768.0"});
  refuse(replaced(good, "768", "9223372036854775808"), {"\"hidden\"", "9223372036854775808"});
  refuse(replaced(good, "\"tied_head\": false", "\"tied_head\": 0"), {"\"tied_head\"", "found 0", "true or false"});
  refuse(replaced(good, "\"family\": \"gpt2\"", "\"family\": null"), {"\"family\"", "found null", "a text"});
  refuse(replaced(good, "\"hidden\": 768", "\"hidden\": 768, \"hidden\": 768"), {"\"hidden\"", "twice"});
  refuse(replaced(good, "\"hidden\": 768", "\"zzzzzzzzzzzz\": 1, \"hidden\": 768"), {"\"zzzzzzzzzzzz\" is unknown", "known: name, family"});
  refuse("[]", {"found []", "an object"});
  refuse("{", {"not valid JSON", "line 1"});
  refuse("", {"not valid JSON"});
  refuse(good + "x", {"not valid JSON"});
  refuse(replaced(good, "0.30000000000000004", "1e999"), {"not valid JSON", "1e999"});
}

TEST(ModelSpec, WritesNoNonFiniteNumber) {
  ModelSpec m = example();
  m.init_std = std::numeric_limits<double>::infinity();
  EXPECT_THROW(to_json(m), LogicError);
}

TEST(ModelSpec, RefusesANameThatIsNotUtf8) {
  ModelSpec m = example();
  m.name = "\xff";
  expect_error<RequestError>([&] { to_json(m); }, {"UTF-8"});
}

TEST(ModelSpec, ValidateNamesTheKeyAndTheRange) {
  const auto refuse = [](auto change, const std::vector<std::string>& pieces) {
    ModelSpec m = example();
    m.name = "x";
    change(m);
    expect_error<RequestError>([&] { validate(m); }, pieces);
  };
  EXPECT_NO_THROW(validate(example()));
  refuse([](ModelSpec& m) { m.vocab = 0; }, {"model \"x\"", "vocab: found 0", "from 1"});
  refuse([](ModelSpec& m) { m.context = -1; }, {"context: found -1"});
  refuse([](ModelSpec& m) { m.hidden = 0; }, {"hidden: found 0"});
  refuse([](ModelSpec& m) { m.layers = 0; }, {"layers: found 0"});
  refuse([](ModelSpec& m) { m.heads = 0; }, {"heads: found 0"});
  refuse([](ModelSpec& m) { m.ffn = 0; }, {"ffn: found 0"});
  refuse([](ModelSpec& m) { m.vocab = 1LL << 31; }, {"vocab: found 2147483648", "2147483647"});
  refuse([](ModelSpec& m) { m.heads = 7; }, {"heads: found 7", "divisor of hidden", "768"});
  refuse([](ModelSpec& m) { m.embedding_dropout = 1.0; }, {"embedding_dropout: found 1", "[0, 1)"});
  refuse([](ModelSpec& m) { m.attention_dropout = -0.1; }, {"attention_dropout: found -0.1"});
  refuse([](ModelSpec& m) { m.residual_dropout = std::nan(""); }, {"residual_dropout: found nan"});
  refuse([](ModelSpec& m) { m.norm_eps = 0; }, {"norm_eps: found 0"});
  refuse([](ModelSpec& m) { m.init_std = -1; }, {"init_std: found -1"});
  refuse([](ModelSpec& m) { m.kv_heads = 5; }, {"kv_heads: found 5", "divisor of heads", "12"});
  refuse([](ModelSpec& m) { m.kv_heads = -1; }, {"kv_heads: found -1"});
  refuse([](ModelSpec& m) { m.head_dim = -2; }, {"head_dim: found -2"});
  refuse([](ModelSpec& m) { m.sliding_window = -1; }, {"sliding_window: found -1"});
  refuse([](ModelSpec& m) { m.pad_token = m.vocab; }, {"pad_token: found 50257"});
  refuse([](ModelSpec& m) { m.rope.factor = 2; }, {"rope.theta: found 0"});
  refuse([](ModelSpec& m) { m.rope.theta = -1; }, {"rope.theta: found -1"});
  refuse(
      [](ModelSpec& m) {
        m.rope.theta = 1e4;
        m.head_dim = 63;
      },
      {"head_dim: found 63", "an even number"});
  const auto llama3 = [](ModelSpec& m) { m.rope = {.theta = 1e4, .scaling = RopeScaling::kLlama3, .factor = 8, .original_context = 8192}; };
  ModelSpec good = example();
  llama3(good);
  EXPECT_NO_THROW(validate(good));
  good.heads = 7;  // no divisor of hidden, but the width is given
  good.head_dim = 64;
  EXPECT_NO_THROW(validate(good));
  refuse([&](ModelSpec& m) { llama3(m), m.rope.original_context = 0; }, {"rope.original_context: found 0"});
  refuse([&](ModelSpec& m) { llama3(m), m.rope.factor = 0; }, {"rope.factor: found 0"});
  refuse([&](ModelSpec& m) { llama3(m), m.rope.high_frequency_factor = 1; }, {"rope.high_frequency_factor: found 1", "more than"});
}

}  // namespace
}  // namespace sluice::spec
