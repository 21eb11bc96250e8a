#!/usr/bin/env python3
"""Makes rates.json: learning rates by DeepSpeed's own schedulers and by those of transformers' Trainer.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/schedules/make_schedules.py [--check]      --check holds the committed file against a new one

Each case says what a user would write (the configuration's blocks, or the Trainer's names with the steps of the run) and the rate
that the optimizer has in step s (0-based), which DeepSpeed's engine sets by the scheduler's constructor for step 0 and by its s-th
step() for step s.
"""

import json
import logging
import pathlib
import sys

import torch
import transformers
from deepspeed.runtime import lr_schedules

HERE = pathlib.Path(__file__).resolve().parent
STEPS = list(range(40)) + [49, 50, 51, 75, 99, 100, 101, 250, 999, 1000, 1001, 1999, 2000, 2001, 4000, 4001, 7777]

# type, lr of the optimizer, params
DEEPSPEED = [
    ("WarmupLR", 0.5, {}),
    ("WarmupLR", 0.5, {"warmup_num_steps": 1}),
    ("WarmupLR", 3e-4, {"warmup_min_lr": 1e-5, "warmup_max_lr": 7e-4, "warmup_num_steps": 17}),
    ("WarmupLR", 0.5, {"warmup_min_lr": 0.1, "warmup_max_lr": 0.7, "warmup_num_steps": 5, "warmup_type": "linear"}),
    ("WarmupDecayLR", 0.5, {"total_num_steps": 250}),
    ("WarmupDecayLR", 0.5, {"total_num_steps": 100, "warmup_min_lr": 0.1, "warmup_max_lr": 0.7, "warmup_num_steps": 11}),
    ("WarmupDecayLR", 0.5, {"total_num_steps": 37, "warmup_max_lr": 2e-4, "warmup_num_steps": 10, "warmup_type": "linear"}),
    ("WarmupDecayLR", 0.5, {"total_num_steps": 20, "warmup_max_lr": 2e-4, "warmup_num_steps": 20, "warmup_type": "linear"}),
    ("WarmupDecayLR", 0.5, {"total_num_steps": 9, "warmup_min_lr": 1e-6, "warmup_max_lr": 2e-4, "warmup_num_steps": 20}),
    ("WarmupCosineLR", 0.01, {"total_num_steps": 100, "warmup_num_steps": 10}),
    ("WarmupCosineLR", 0.01, {"total_num_steps": 30, "warmup_num_steps": 6, "warmup_min_ratio": 0.2, "cos_min_ratio": 0.05,
                              "warmup_type": "linear"}),
    ("WarmupCosineLR", 0.01, {"total_num_steps": 12, "warmup_num_steps": 20, "cos_min_ratio": 0.0}),
    ("OneCycle", 0.5, {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_momentum": False}),
    ("OneCycle", 0.5, {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_momentum": False, "cycle_first_step_size": 10,
                       "cycle_second_step_size": 15, "decay_lr_rate": 0.25, "decay_step_size": 7}),
    ("OneCycle", 0.5, {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_momentum": False, "cycle_first_step_size": 12,
                       "cycle_second_step_size": 21, "cycle_first_stair_count": 5, "cycle_second_stair_count": 4}),
    ("OneCycle", 0.5, {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_momentum": False, "cycle_first_step_size": 9,
                       "cycle_second_step_size": 0, "cycle_first_stair_count": 3, "decay_lr_rate": 1.0}),
    ("LRRangeTest", 0.5, {}),
    ("LRRangeTest", 0.5, {"lr_range_test_min_lr": 1e-5, "lr_range_test_step_size": 7, "lr_range_test_step_rate": 3.0}),
    ("LRRangeTest", 0.5, {"lr_range_test_min_lr": 1e-5, "lr_range_test_step_size": 7, "lr_range_test_step_rate": 3.0,
                          "lr_range_test_staircase": True}),
]

# steps of the run, names of TrainingArguments
TRAINER = [
    (100, {"learning_rate": 1e-3}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 7}),
    (101, {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 0.06}),
    (10, {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 10}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 10}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "constant"}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 12}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "cosine_with_min_lr", "warmup_steps": 5,
           "lr_scheduler_kwargs": {"min_lr": 1e-4}}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.25}}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "polynomial", "warmup_steps": 5}),
    (100, {"learning_rate": 1e-3, "lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"lr_end": 1e-5, "power": 2.5}}),
]


def rates_of(optimizer, scheduler, steps):
    rates = []
    for step in range(max(steps) + 1):
        if step in steps:
            rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def make_optimizer(lr):
    return torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def deepspeed_case(kind, lr, params):
    optimizer = make_optimizer(lr)
    scheduler = getattr(lr_schedules, kind)(optimizer, **params)
    blocks = {"optimizer": {"type": "Adam", "params": {"lr": lr}}, "scheduler": {"type": kind, "params": params}}
    return dict(blocks=blocks, steps=STEPS, rates=rates_of(optimizer, scheduler, STEPS))


def trainer_case(total, names):
    arguments = transformers.TrainingArguments(output_dir="unused", max_steps=total, use_cpu=True, **names)
    optimizer = make_optimizer(arguments.learning_rate)
    scheduler = transformers.get_scheduler(arguments.lr_scheduler_type, optimizer, arguments.get_warmup_steps(total), total,
                                           scheduler_specific_kwargs=arguments.lr_scheduler_kwargs)
    # Past the end of a run some of them rise again; no run goes there.
    steps = [step for step in STEPS if step < total]
    flags = {name: value if isinstance(value, str) else json.dumps(value) for name, value in names.items()}
    return dict(run_steps=total, trainer=flags, steps=steps, rates=rates_of(optimizer, scheduler, steps))


def main():
    logging.disable(logging.WARNING)
    cases = [deepspeed_case(*case) for case in DEEPSPEED] + [trainer_case(*case) for case in TRAINER]
    text = "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"
    if "--check" not in sys.argv:
        (HERE / "rates.json").write_text(text)
        return
    for old, new in zip(json.loads((HERE / "rates.json").read_text()), json.loads(text), strict=True):
        same = {key: value for key, value in old.items() if key != "rates"} == {key: value for key, value in new.items() if key != "rates"}
        near = same and all(abs(a - b) <= 1e-12 * abs(b) for a, b in zip(old["rates"], new["rates"], strict=True))
        if not near:
            sys.exit(f"rates.json is not what the schedulers say today: {old.get('blocks', old.get('trainer'))}")


if __name__ == "__main__":
    main()
