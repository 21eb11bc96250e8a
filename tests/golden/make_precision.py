#!/usr/bin/env python3
"""Makes precision.json of each model fixture in tests/golden (make_models.py): what PyTorch gets from it with 16-bit parameters.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_precision.py [NAME...]
    python3 tests/golden/make_precision.py --check      says whether the committed files are what PyTorch says today

For bf16 and fp16 it holds
    loss_of_rounded_weights   of the first global batch: weights rounded to 16 bits, all else in fp64
    losses, grad_norms        of twenty AdamW steps of the mixed-precision loop everybody writes: a 16-bit model whose parameters are
                              rounded from an fp32 master before each step, its 16-bit gradients added up, clipped and applied in fp32
    loss_scale                what the loss was multiplied by (fp16)
"""

import json
import math
import sys

import torch
import transformers

import make_models as models

KINDS = {"bf16": (torch.bfloat16, 1.0), "fp16": (torch.float16, 1024.0)}


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(models.HERE / name, attn_implementation="eager")


def loss_of_rounded_weights(dtype, name, f, tokens):
    model = load(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype).float())
    model.double()
    inputs, targets = models.batch_of(f, tokens, 0, models.MICRO_BATCH * models.ACCUMULATION)
    return models.mean_loss(model, inputs, targets)[0].item()


def train(dtype, scale, name, f, tokens):
    master, working = load(name), load(name).to(dtype)
    pairs = list(zip(master.parameters(), working.parameters(), strict=True))
    matrices = [p for p in master.parameters() if p.dim() >= 2]
    vectors = [p for p in master.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=models.WEIGHT_DECAY), dict(params=vectors, weight_decay=0.0)],
                                  lr=models.PEAK, betas=(models.BETA1, models.BETA2), eps=models.EPS, foreach=False)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=models.WARMUP, num_training_steps=models.STEPS)
    losses, norms, sample = [], [], 0
    for _ in range(models.STEPS):
        with torch.no_grad():
            for wide, narrow in pairs:
                narrow.copy_(wide)
                wide.grad = torch.zeros_like(wide)
        loss_sum = 0.0
        for _ in range(models.ACCUMULATION):
            inputs, targets = models.batch_of(f, tokens, sample, models.MICRO_BATCH)
            sample += models.MICRO_BATCH
            logits = working(input_ids=inputs).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1))
            working.zero_grad(set_to_none=True)
            (loss * scale / models.ACCUMULATION).backward()
            for wide, narrow in pairs:
                wide.grad += narrow.grad.float() / scale
            loss_sum += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(master.parameters(), models.CLIPPING).item())
        losses.append(loss_sum / models.ACCUMULATION)
        optimizer.step()
        schedule.step()
    return losses, norms


def make(name):
    f = models.FIXTURES[name]
    tokens = models.make_tokens(f)
    made = dict(made_by=dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__))
    steps = json.loads((models.HERE / name / "expected.json").read_text())["steps"]
    for kind, (dtype, scale) in KINDS.items():
        losses, norms = train(dtype, scale, name, f, tokens)
        assert all(math.isfinite(x) for x in losses + norms)
        made[kind] = dict(loss_of_rounded_weights=loss_of_rounded_weights(dtype, name, f, tokens), loss_scale=scale, losses=losses,
                          grad_norms=norms)
        apart = max(abs(loss - step["loss"]) / step["loss"] for loss, step in zip(losses, steps, strict=True))
        print(f"{name}, {kind}: {losses[0]:.6f} -> {losses[-1]:.6f}, up to {apart:.1e} from fp64")
    return made


def differences(name):
    committed, fresh = json.loads((models.HERE / name / "precision.json").read_text()), make(name)
    for kind in KINDS:
        a, b = committed[kind], fresh[kind]
        pairs = [("loss_of_rounded_weights", a["loss_of_rounded_weights"], b["loss_of_rounded_weights"], 1e-7)]
        # Kernels may add 16-bit products in another order.
        pairs += [(f"losses[{i}]", x, y, 1e-2) for i, (x, y) in enumerate(zip(a["losses"], b["losses"], strict=True))]
        for where, x, y, tolerance in pairs:
            if not math.isclose(x, y, rel_tol=tolerance):
                yield f"{name}, {kind}.{where}: {x} committed, {y} now"


def check():
    failed = [line for name in models.FIXTURES for line in differences(name)]
    print("\n".join(failed) or "the committed files are what PyTorch says today")
    return 1 if failed else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    for chosen in sys.argv[1:] or models.FIXTURES:
        (models.HERE / chosen / "precision.json").write_text(json.dumps(make(chosen), indent=1) + "\n")
