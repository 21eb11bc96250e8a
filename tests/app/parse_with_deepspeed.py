#!/usr/bin/env python3
"""Gives configuration files to DeepSpeed's own parser and to accelerate's, which transformers uses.

    python3 tests/app/parse_with_deepspeed.py FILE...

A file that serves us serves them: our block "sluice" must not disturb them, and our keys must be theirs. Fails on the first file
that one of them refuses, or reads otherwise than it is written.
"""

import json
import logging
import sys

from accelerate.utils import DeepSpeedPlugin
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from deepspeed.runtime.config import DeepSpeedConfig


def check(path):
    with open(path) as file:
        written = json.load(file)
    read = DeepSpeedConfig(path)
    assert read.train_batch_size == written["train_batch_size"], read.train_batch_size
    assert read.gradient_clipping == written["gradient_clipping"], read.gradient_clipping
    assert read.optimizer_name == written["optimizer"]["type"].lower(), read.optimizer_name
    assert read.optimizer_params == written["optimizer"]["params"], read.optimizer_params
    assert read.scheduler_name == written["scheduler"]["type"], read.scheduler_name
    assert read.zero_optimization_stage == written.get("zero_optimization", {}).get("stage", 0), read.zero_optimization_stage
    assert read.bfloat16_config.enabled == written.get("bf16", {}).get("enabled", False)
    # accelerate walks every nested key, ours included, and takes each "auto" for one that it must fill.
    for config in (HfDeepSpeedConfig(path), DeepSpeedPlugin(hf_ds_config=path).hf_ds_config):
        assert "auto" not in json.dumps(config.config["sluice"]), config.config["sluice"]


def main():
    logging.disable(logging.WARNING)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        check(path)
        print(f"{path}: read by DeepSpeed and accelerate")


if __name__ == "__main__":
    main()
