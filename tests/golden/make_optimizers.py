#!/usr/bin/env python3
"""Makes optimizers.json: twenty updates of a few numbers by PyTorch's own optimizers, and by Lion written out here, all in f64.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_optimizers.py [--check]      --check holds the committed file against a new one

Lion is algorithm 2 of Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", as lion-pytorch computes it.
"""

import json
import pathlib
import sys

import torch

FILE = pathlib.Path(__file__).resolve().parent / "optimizers.json"
ELEMENTS, STEPS = 203, 20
SHOWN = [1, 20]

CASES = [
    ("AdamW", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}),
    ("Adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}),
    ("Adam", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.0}),
    ("SGD", {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}),
    ("SGD", {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3, "nesterov": False, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.0, "nesterov": True, "weight_decay": 0.1}),
    ("Lion", {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}),
    ("Lion", {"beta1": 0.95, "beta2": 0.98, "weight_decay": 0.0}),
]


def sign(x):
    return (x > 0) - (x < 0)


class Lion:
    def __init__(self, param, beta1, beta2, weight_decay):
        self.param, self.beta1, self.beta2, self.weight_decay = param, beta1, beta2, weight_decay
        self.exp_avg = [0.0] * len(param)
        self.param_groups = [{"lr": 0.0}]

    def step(self):
        lr = self.param_groups[0]["lr"]
        for i, (p, g, m) in enumerate(zip(self.param.tolist(), self.param.grad.tolist(), self.exp_avg)):
            p -= lr * self.weight_decay * p
            self.param.data[i] = p - lr * sign(self.beta1 * m + (1 - self.beta1) * g)
            self.exp_avg[i] = self.beta2 * m + (1 - self.beta2) * g

    def planes(self):
        return [self.exp_avg]


def make(name, param, settings):
    if name == "Lion":
        return Lion(param, **settings)
    given = {key: value for key, value in settings.items() if key not in ("beta1", "beta2")}
    if name != "SGD":
        given["betas"] = (settings["beta1"], settings["beta2"])
    return getattr(torch.optim, name)([param], lr=0.0, **given)


def planes(name, optimizer, param):
    if name == "Lion":
        return optimizer.planes()
    names = ["momentum_buffer"] if name == "SGD" else ["exp_avg", "exp_avg_sq"]
    state = optimizer.state[param]
    return [state[key].tolist() for key in names if state.get(key) is not None]


def short(values):
    return [float("%.9g" % value) for value in values]


def document():
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(ELEMENTS, generator=generator)
    gradients = torch.randn(STEPS, ELEMENTS, generator=generator) * 0.1
    gradients[:, 3] = 0  # what has no gradient at all
    gradients[:5, 11] = 0  # and what has none at first
    rates = [0.01 * (1 + s % 4) for s in range(STEPS)]
    # %.9g is enough to give an f32 back, so these are what everybody starts from.
    start, gradients = short(start.tolist()), [short(row.tolist()) for row in gradients]
    cases = []
    for name, settings in CASES:
        param = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32).double())
        optimizer = make(name, param, settings)
        after = {}
        for step in range(1, STEPS + 1):
            param.grad = torch.tensor(gradients[step - 1], dtype=torch.float32).double()
            optimizer.param_groups[0]["lr"] = rates[step - 1]
            optimizer.step()
            if step in SHOWN:
                after[str(step)] = {"param": short(param.tolist()), "state": [short(plane) for plane in planes(name, optimizer, param)]}
        cases.append({"optimizer": name, **settings, "after": after})
    return {"torch": torch.__version__.split("+")[0], "start": start, "gradients": gradients, "rates": rates, "cases": cases}


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a if key != "torch")
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-8 * max(abs(a), abs(b)) + 1e-14
    return a == b


def main():
    made = document()
    if "--check" in sys.argv[1:]:
        if not same(json.loads(FILE.read_text()), json.loads(json.dumps(made))):
            sys.exit("%s is not what PyTorch %s says" % (FILE.name, made["torch"]))
        print("%d cases as committed" % len(made["cases"]))
        return
    FILE.write_text(json.dumps(made, separators=(",", ":")) + "\n")


main()
