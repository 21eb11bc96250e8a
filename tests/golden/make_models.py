#!/usr/bin/env python3
"""Makes the fixtures of tests/golden: tiny models of each family, their losses, gradients and twenty AdamW steps, by transformers and
PyTorch.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_models.py [--into FOLDER] [NAME...]
    python3 tests/golden/make_models.py --check      makes them elsewhere and holds the committed ones against them

Each folder NAME/ holds
    config.json, generation_config.json, model.safetensors   as save_pretrained writes them (f32)
    tokens.bin                  the token stream, int32, little endian; sample i is tokens i*T .. i*T+T inclusive
    logits.safetensors          "logits" [rows, T, vocab] of the first global batch, dropout off
    gradients.safetensors       of the mean loss of the first global batch, by parameter name without the family's prefix
    expected.json               loss of that batch, the hyperparameters, and of each step loss, gradient norm and learning rate
and, of some,
    document_gradients.safetensors   of the same rows with documents kept apart: attention and positions restart where one begins, and its
                                first token isn't predicted. expected.json says in "documents" which tokens of the stream begin one. Each
                                document is run by itself; where transformers knows packed rows (position_ids that restart, labels of its
                                DataCollatorWithFlattening), they must give the same loss.

rotary.json holds the frequencies that transformers gives each kind of rotary positions at the sizes of published models.

The reference runs in fp64 on the f32 weights, but for what transformers always takes in fp32 (cosines and sines of rotary positions, RMS
norms); loss_f32 is what PyTorch gets in fp32, to show how far rounding alone goes. Loss
and gradient norm are taken before the step's update and before clipping; the norm is over the whole step's mean gradient.
"""

import json
import math
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent

def gpt2(vocab, context, hidden, layers, heads, inner, tied):
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(
        vocab_size=vocab, n_positions=context, n_embd=hidden, n_layer=layers, n_head=heads, n_inner=inner,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager")


def opt(**sizes):
    return transformers.OPTForCausalLM, transformers.OPTConfig(dropout=0.0, attn_implementation="sdpa", **sizes)


def llama(**sizes):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(attn_implementation="sdpa", **sizes)


def mistral(**sizes):
    return transformers.MistralForCausalLM, transformers.MistralConfig(attn_implementation="sdpa", **sizes)


def qwen2(**sizes):
    return transformers.Qwen2ForCausalLM, transformers.Qwen2Config(attn_implementation="sdpa", **sizes)


def qwen3(**sizes):
    return transformers.Qwen3ForCausalLM, transformers.Qwen3Config(attn_implementation="sdpa", **sizes)


# What GPT-2's differ in: heads of 8 and a width that kernels like; odd sizes everywhere (heads of 10, an inner width that isn't
# 4 C, a prime vocabulary, rows shorter than the context); a head of its own. The other families: pad_token_id among the tokens
# (its row of the embedding gets no gradient there), heads that 2 doesn't divide, heads that share keys and values, head widths
# apart from hidden / heads, tied and untied heads, each kind of rope scaling (llama3 with a frequency in each of its three bands), a
# window as long as a row and one that slides within it. documents: how long they are in the rows of the first batch, from its first token.
FIXTURES = {
    "gpt2_tiny": dict(seed=11, sequence=32, make=gpt2, sizes=dict(vocab=96, context=32, hidden=32, layers=3, heads=4, inner=None, tied=True)),
    "gpt2_odd": dict(seed=12, sequence=19, make=gpt2, sizes=dict(vocab=257, context=24, hidden=30, layers=2, heads=3, inner=100, tied=True)),
    "gpt2_untied": dict(seed=13, sequence=16, make=gpt2, documents=[5, 9, 1, 1, 20, 3, 16], sizes=dict(vocab=50, context=16, hidden=16, layers=1, heads=2, inner=None, tied=False)),
    "opt_tiny": dict(seed=21, sequence=17, make=opt, documents=[6, 30, 2, 12], sizes=dict(
        vocab_size=61, max_position_embeddings=20, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, ffn_dim=40)),
    "llama_tiny": dict(seed=22, sequence=20, make=llama, documents=[3, 8, 22, 1, 30], sizes=dict(
        vocab_size=48, max_position_embeddings=48, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, head_dim=8,
        intermediate_size=28, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32))),
    "llama_smol": dict(seed=23, sequence=19, make=llama, sizes=dict(
        vocab_size=53, max_position_embeddings=19, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        intermediate_size=33, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2)),
    "mistral_tiny": dict(seed=24, sequence=18, make=mistral, sizes=dict(
        vocab_size=64, max_position_embeddings=40, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=36, sliding_window=18, rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=2.5))),
    "mistral_sliding": dict(seed=27, sequence=23, make=mistral, documents=[15, 2, 40, 11], sizes=dict(
        vocab_size=64, max_position_embeddings=40, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=36, sliding_window=7, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0))),
    "qwen2_tiny": dict(seed=25, sequence=21, make=qwen2, sizes=dict(
        vocab_size=67, max_position_embeddings=32, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=40, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0), eos_token_id=5)),
    "qwen3_tiny": dict(seed=26, sequence=20, make=qwen3, sizes=dict(
        vocab_size=64, max_position_embeddings=32, hidden_size=20, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=10,
        intermediate_size=37, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
}

STEPS = 20
MICRO_BATCH = 2
ACCUMULATION = 2
PEAK, WARMUP = 5e-3, 4
BETA1, BETA2, EPS, WEIGHT_DECAY, CLIPPING = 0.9, 0.999, 1e-8, 0.1, 1.0


def make_model(f):
    kind, config = f["make"](**f["sizes"])
    torch.manual_seed(f["seed"])
    model = kind(config)
    # Larger than a training init, biases and gains included, so that every term of every gradient counts.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.12)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
            else:
                parameter.normal_(1, 0.1)
    return model


def make_tokens(f):
    """A stream that can be learnt: mostly a fixed map of the token before, sometimes anything."""
    random = numpy.random.Generator(numpy.random.PCG64(f["seed"]))
    n = STEPS * MICRO_BATCH * ACCUMULATION * f["sequence"] + 1
    tokens = numpy.empty(n, dtype=numpy.int32)
    tokens[0] = 1
    vocab = f["sizes"].get("vocab_size") or f["sizes"]["vocab"]
    for i in range(1, n):
        tokens[i] = random.integers(vocab) if random.random() < 0.3 else (int(tokens[i - 1]) * 7 + 3) % (vocab // 3)
    return tokens


def batch_of(f, tokens, sample, rows):
    t = f["sequence"]
    block = numpy.stack([tokens[i * t : i * t + t + 1] for i in range(sample, sample + rows)]).astype(numpy.int64)
    return torch.from_numpy(block[:, :-1].copy()), torch.from_numpy(block[:, 1:].copy())


def mean_loss(model, inputs, targets):
    logits = model(input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)), logits


def document_begins(f):
    """The tokens of the first batch that begin a document, the very first one aside."""
    begins = numpy.cumsum(f["documents"])
    return [int(b) for b in begins if b <= MICRO_BATCH * ACCUMULATION * f["sequence"]]


def documents_of_row(f, tokens, begins, row):
    t = f["sequence"]
    row_tokens = tokens[row * t : row * t + t + 1].astype(numpy.int64)
    return numpy.split(row_tokens, [b - row * t for b in begins if row * t < b <= row * t + t])


def loss_of_documents(model, f, tokens, begins):
    """The mean loss with each document, or part of one in a row, by itself; and how many tokens were predicted."""
    total, predicted = 0.0, 0
    for row in range(MICRO_BATCH * ACCUMULATION):
        for document in documents_of_row(f, tokens, begins, row):
            if len(document) < 2:
                continue
            ids = torch.from_numpy(document.copy())[None]
            logits = model(input_ids=ids[:, :-1]).logits
            total = total + torch.nn.functional.cross_entropy(logits[0], ids[0, 1:], reduction="sum")
            predicted += len(document) - 1
    return total / predicted, predicted


def loss_of_packed_rows(model, f, tokens, begins):
    """The same as transformers does it with the documents of a row in one forward pass."""
    collate = transformers.DataCollatorWithFlattening(return_tensors="pt")
    total, predicted = 0.0, 0
    for row in range(MICRO_BATCH * ACCUMULATION):
        batch = collate([{"input_ids": document.tolist()} for document in documents_of_row(f, tokens, begins, row)])
        logits = model(input_ids=batch["input_ids"][:, :-1], position_ids=batch["position_ids"][:, :-1], use_cache=False).logits
        labels = batch["labels"][0, 1:]
        total = total + torch.nn.functional.cross_entropy(logits[0], labels, ignore_index=-100, reduction="sum")
        predicted += int((labels != -100).sum())
    return total / predicted, predicted


def plain(name):
    for prefix in ("transformer.", "model.decoder.", "model."):
        name = name.removeprefix(prefix)
    return name


def train(model, f, tokens):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=WEIGHT_DECAY), dict(params=vectors, weight_decay=0.0)],
                                  lr=PEAK, betas=(BETA1, BETA2), eps=EPS, foreach=False)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=WARMUP, num_training_steps=STEPS)
    steps, sample = [], 0
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss_sum = 0.0
        for _ in range(ACCUMULATION):
            inputs, targets = batch_of(f, tokens, sample, MICRO_BATCH)
            sample += MICRO_BATCH
            loss, _ = mean_loss(model, inputs, targets)
            (loss / ACCUMULATION).backward()
            loss_sum += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPING).item()
        steps.append(dict(loss=loss_sum / ACCUMULATION, grad_norm=norm, learning_rate=optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return steps


def make(name, into):
    f = FIXTURES[name]
    folder = into / name
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(f)
    model.save_pretrained(folder)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    tokens = make_tokens(f)
    tokens.astype("<i4").tofile(folder / "tokens.bin")
    inputs, targets = batch_of(f, tokens, 0, MICRO_BATCH * ACCUMULATION)

    loss_f32, _ = mean_loss(model, inputs, targets)
    steps_f32 = train(model, f, tokens)

    model.load_state_dict(weights)
    model.double()
    model.zero_grad(set_to_none=True)
    loss, logits = mean_loss(model, inputs, targets)
    loss.backward()
    save_file({"logits": logits.detach().float().contiguous()}, folder / "logits.safetensors")
    save_file({plain(key): p.grad.float().contiguous() for key, p in model.named_parameters()}, folder / "gradients.safetensors")
    documents = None
    if "documents" in f:
        begins = document_begins(f)
        model.zero_grad(set_to_none=True)
        document_loss, predicted = loss_of_documents(model, f, tokens, begins)
        document_loss.backward()
        save_file({plain(key): p.grad.float().contiguous() for key, p in model.named_parameters()}, folder / "document_gradients.safetensors")
        documents = dict(begins=begins, predicted=predicted, loss=document_loss.item())
        if f["make"] is not opt:  # whose masks know nothing of positions
            packed, packed_predicted = loss_of_packed_rows(model, f, tokens, begins)
            assert packed_predicted == predicted and abs(packed.item() - document_loss.item()) < 1e-12, (packed.item(), document_loss.item())
    steps = train(model, f, tokens)
    for step, rough in zip(steps, steps_f32):
        step["loss_f32"] = rough["loss"]

    expected = dict(
        made_by=dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__),
        sequence=f["sequence"], micro_batch=MICRO_BATCH, accumulation=ACCUMULATION,
        loss=loss.item(), loss_f32=loss_f32.item(), parameters=sum(p.numel() for p in model.parameters()),
        optimizer=dict(beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=WEIGHT_DECAY, decay_on="matrices", gradient_clipping=CLIPPING),
        schedule=dict(kind="cosine", peak=PEAK, warmup_steps=WARMUP, total_steps=STEPS),
        steps=steps)
    if documents:
        expected["documents"] = documents
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    apart = max(abs(s["loss"] - s["loss_f32"]) / s["loss"] for s in steps)
    clipped = sum(s["grad_norm"] > CLIPPING for s in steps)
    print(f"{name}: loss {loss.item():.6f} -> {steps[-1]['loss']:.6f} in {STEPS} steps, {clipped} clipped; fp32 is up to {apart:.1e} apart")
    assert math.isfinite(apart)


# Base, scaling, width of a head and positions of LLaMA 2, SmolLM2, a stretched LLaMA, LLaMA 3.1 8B and LLaMA 3.2 1B.
ROTARY = [
    (dict(rope_type="default", rope_theta=10000.0), 128, 4096),
    (dict(rope_type="default", rope_theta=100000.0), 64, 8192),
    (dict(rope_type="linear", rope_theta=10000.0, factor=2.5), 80, 4096),
    (dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
          original_max_position_embeddings=8192), 128, 131072),
    (dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
          original_max_position_embeddings=8192), 64, 131072),
]


def make_rotary(into):
    cases = []
    for rope, head_dim, context in ROTARY:
        config = transformers.LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, max_position_embeddings=context,
                                          rope_parameters=dict(rope))
        frequencies = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq
        cases.append(dict(rope, head_dim=head_dim, frequencies=frequencies.tolist()))
    (into / "rotary.json").write_text(json.dumps(cases, indent=1) + "\n")


def rotary_differences(committed, fresh):
    """By more than two units in the last place, in which PyTorch's own builds differ."""
    found = []
    for a, b in zip(json.loads(committed.read_text()), json.loads(fresh.read_text()), strict=True):
        far = [(x, y) for x, y in zip(a.pop("frequencies"), b.pop("frequencies"), strict=True) if not math.isclose(x, y, rel_tol=2.4e-7)]
        if a != b or far:
            found.append(f"{a}: {far[:1]}")
    return found


def differences(committed, fresh):
    """What the committed fixture says differently from a fresh one, beyond rounding."""
    found = []

    def compare(where, a, b):
        if isinstance(a, dict):
            for key in sorted(set(a) | set(b)):
                if key != "made_by":
                    compare(f"{where}.{key}", a.get(key), b.get(key))
        elif isinstance(a, list):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                compare(f"{where}[{i}]", x, y)
        elif isinstance(a, float):
            if not math.isclose(a, b, rel_tol=1e-4 if "f32" in where else 1e-7):
                found.append(f"{where}: {a} committed, {b} now")
        elif a != b:
            found.append(f"{where}: {a} committed, {b} now")

    compare("expected", json.loads((committed / "expected.json").read_text()), json.loads((fresh / "expected.json").read_text()))
    files = ["model.safetensors", "gradients.safetensors", "logits.safetensors"]
    if (fresh / "document_gradients.safetensors").exists():
        files.append("document_gradients.safetensors")
    for file in files:
        a, b = load_file(committed / file), load_file(fresh / file)
        if set(a) != set(b):
            found.append(f"{file}: other tensors")
            continue
        for key in a:
            if not torch.allclose(a[key], b[key], rtol=1e-5, atol=1e-7):
                found.append(f"{file}: {key} is up to {(a[key] - b[key]).abs().max().item():.1e} apart")
    return found


def check():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        make_rotary(pathlib.Path(folder))
        for line in rotary_differences(HERE / "rotary.json", pathlib.Path(folder) / "rotary.json"):
            print(f"rotary.json: {line}")
            failed += 1
        for name in FIXTURES:
            make(name, pathlib.Path(folder))
            for line in differences(HERE / name, pathlib.Path(folder) / name):
                print(f"{name}: {line}")
                failed += 1
    print("the committed fixtures are what PyTorch and transformers say today" if failed == 0 else f"{failed} differences")
    return 1 if failed else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    words = sys.argv[1:]
    if words == ["--check"]:
        sys.exit(check())
    into = HERE
    if words[:1] == ["--into"]:
        into, words = pathlib.Path(words[1]), words[2:]
    if not words:
        make_rotary(into)
    for chosen in words or FIXTURES:
        make(chosen, into)
