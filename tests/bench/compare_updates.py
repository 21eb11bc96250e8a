#!/usr/bin/env python3
"""The optimizer update on host memory: Sluice's AdamW, PyTorch's fused AdamW and DeepSpeed's CPUAdam, in turns in one run.

    tests/support/oracle_python tests/bench/compare_updates.py BUILD/bench/update_bench [ELEMENTS] [THREADS] [ROUNDS] [avx2|avx512]

"bare" is the f32 update; "full" adds unscaling with the clipping factor and the bf16 copy of the parameters, on every side. Prints medians
over the rounds, with the rate of a memcpy of as many bytes. DeepSpeed is left out, by name, where it isn't installed.
"""
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
program = sys.argv[1]
elements = int(float(sys.argv[2])) if len(sys.argv) > 2 else 1 << 24
threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 9
isa = sys.argv[5:6]
os.environ["OMP_NUM_THREADS"] = str(threads)
if isa == ["avx2"]:
    os.environ["ATEN_CPU_CAPABILITY"] = "avx2"

import torch  # noqa: E402  (after the environment is set)

torch.set_num_threads(threads)
REPEATS = 4


class Theirs:
    def __init__(self, make_optimizer):
        self.param = torch.nn.Parameter((torch.arange(elements) % 97 - 48).float() * 0.01)
        self.param.grad = (torch.arange(elements) % 89 - 44).float() * 0.001
        self.copy = torch.empty(elements, dtype=torch.bfloat16)
        self.optimizer = make_optimizer([self.param])

    def once(self, kind):
        if kind == "full":
            self.param.grad.mul_(1.0)  # its pass over the gradient; the factor doesn't matter for time
        self.optimizer.step()
        if kind == "full":
            self.copy.copy_(self.param.detach())

    def seconds(self, kind):
        self.once(kind)
        begin = time.perf_counter()
        for _ in range(REPEATS):
            self.once(kind)
        return (time.perf_counter() - begin) / REPEATS


class Ours:
    def __init__(self):
        self.process = subprocess.Popen(
            [program, str(elements), str(threads), *isa], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, kind):
        self.process.stdin.write(kind + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


sides = {"sluice": Ours()}
adamw = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
sides["PyTorch " + torch.__version__.split("+")[0]] = Theirs(lambda p: torch.optim.AdamW(p, fused=True, **adamw))
try:
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    sides["DeepSpeed " + deepspeed.__version__] = Theirs(lambda p: DeepSpeedCPUAdam(p, adamw_mode=True, **adamw))
except Exception as error:  # not installed, or its extension doesn't build here
    print(f"DeepSpeed is left out: {type(error).__name__}: {error}")

times = {(name, kind): [] for name in sides for kind in ("bare", "full")}
copies = []
for _ in range(rounds):
    copies.append(sides["sluice"].seconds("copy"))
    for kind in ("bare", "full"):
        for name, side in sides.items():
            times[name, kind].append(side.seconds(kind))
copy_rate = 28 * elements / statistics.median(copies)
print(f"{elements} elements, {threads} threads, medians of {rounds}; memcpy {copy_rate / 1e9:.2f} GB/s read and written")
for kind, size in (("bare", 28), ("full", 30)):
    ours = statistics.median(times["sluice", kind])
    for name in sides:
        took = statistics.median(times[name, kind])
        ratio = statistics.median(b / a for a, b in zip(times["sluice", kind], times[name, kind]))
        rate = size * elements / took
        print(f"{kind}: {name:18} {took * 1e3:8.2f} ms, {rate / 1e9:6.2f} GB/s ({rate / copy_rate:.2f} of memcpy), {ratio:.2f} x ours")
