#!/usr/bin/env python3
"""Makes the GPT-2 fixtures of tests/golden: tiny models, their losses, gradients and twenty AdamW steps, by transformers and PyTorch.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_gpt2.py [--into FOLDER] [NAME...]
    python3 tests/golden/make_gpt2.py --check      makes them elsewhere and holds the committed ones against them

Each folder gpt2_NAME/ holds
    config.json, generation_config.json, model.safetensors   as save_pretrained writes them (f32, Conv1D weights [in, out])
    tokens.bin                  the token stream, int32, little endian; sample i is tokens i*T .. i*T+T inclusive
    logits.safetensors          "logits" [rows, T, vocab] of the first global batch, dropout off
    gradients.safetensors       of the mean loss of the first global batch, by parameter name without "transformer."
    expected.json               loss of that batch, the hyperparameters, and of each step loss, gradient norm and learning rate

The reference runs in fp64 on the f32 weights; loss_f32 is what PyTorch gets in fp32, to show how far rounding alone goes. Loss
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

# What they differ in: heads of 8 and a width that kernels like; odd sizes everywhere (heads of 10, an inner width that isn't
# 4 C, a prime vocabulary, rows shorter than the context); a head of its own.
FIXTURES = {
    "tiny": dict(seed=11, vocab=96, context=32, hidden=32, layers=3, heads=4, inner=None, tied=True, sequence=32),
    "odd": dict(seed=12, vocab=257, context=24, hidden=30, layers=2, heads=3, inner=100, tied=True, sequence=19),
    "untied": dict(seed=13, vocab=50, context=16, hidden=16, layers=1, heads=2, inner=None, tied=False, sequence=16),
}

STEPS = 20
MICRO_BATCH = 2
ACCUMULATION = 2
PEAK, WARMUP = 5e-3, 4
BETA1, BETA2, EPS, WEIGHT_DECAY, CLIPPING = 0.9, 0.999, 1e-8, 0.1, 1.0


def make_model(f):
    config = transformers.GPT2Config(
        vocab_size=f["vocab"], n_positions=f["context"], n_embd=f["hidden"], n_layer=f["layers"], n_head=f["heads"], n_inner=f["inner"],
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=f["tied"], bos_token_id=0, eos_token_id=0,
        attn_implementation="eager")
    torch.manual_seed(f["seed"])
    model = transformers.GPT2LMHeadModel(config)
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
    for i in range(1, n):
        tokens[i] = random.integers(f["vocab"]) if random.random() < 0.3 else (int(tokens[i - 1]) * 7 + 3) % (f["vocab"] // 3)
    return tokens


def batch_of(f, tokens, sample, rows):
    t = f["sequence"]
    block = numpy.stack([tokens[i * t : i * t + t + 1] for i in range(sample, sample + rows)]).astype(numpy.int64)
    return torch.from_numpy(block[:, :-1].copy()), torch.from_numpy(block[:, 1:].copy())


def mean_loss(model, inputs, targets):
    logits = model(input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)), logits


def plain(name):
    return name.removeprefix("transformer.")


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
    folder = into / f"gpt2_{name}"
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
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    apart = max(abs(s["loss"] - s["loss_f32"]) / s["loss"] for s in steps)
    clipped = sum(s["grad_norm"] > CLIPPING for s in steps)
    print(f"gpt2_{name}: loss {loss.item():.6f} -> {steps[-1]['loss']:.6f} in {STEPS} steps, {clipped} clipped; fp32 is up to {apart:.1e} apart")
    assert math.isfinite(apart)


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
    for file in ("model.safetensors", "gradients.safetensors", "logits.safetensors"):
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
        for name in FIXTURES:
            make(name, pathlib.Path(folder))
            for line in differences(HERE / f"gpt2_{name}", pathlib.Path(folder) / f"gpt2_{name}"):
                print(f"gpt2_{name}: {line}")
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
    for chosen in words or FIXTURES:
        make(chosen, into)
