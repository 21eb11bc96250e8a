#!/usr/bin/env python3
"""The optimizer update on host memory: Sluice's AdamW, PyTorch's fused AdamW and DeepSpeed's CPUAdam, in turns in one run.

    tests/support/oracle_python tests/bench/compare_updates.py BUILD/bench/update_bench [ELEMENTS] [THREADS] [ROUNDS] [avx2|avx512]

"bare" is the f32 update; "full" adds unscaling with the clipping factor and the bf16 copy of the parameters, on every side. "bf16"
is what 16-bit training calls: ours as "full", on f32 master parameters and gradients; CPUAdam on bf16 parameters and gradients with
f32 moments, with and without the factor. With avx2 every side is built for it or told to use nothing wider. All memory asks for huge
pages. Prints medians over the rounds, with the rate of a memcpy of as many bytes. DeepSpeed is left out, by name, where it isn't
installed.
"""
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # PyTorch's large tensors ask for huge pages, as our arenas do
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
# Bytes an element that must be moved: as many as a pass over each array, once, reads and writes.
KINDS = {"bare": 28, "full": 30, "bf16 bare": 30, "bf16 full": 30}


class Theirs:
    def __init__(self, make_optimizer, dtype=torch.float):
        self.param = torch.nn.Parameter(((torch.arange(elements) % 97 - 48).float() * 0.01).to(dtype))
        self.param.grad = ((torch.arange(elements) % 89 - 44).float() * 0.001).to(dtype)
        self.copy = torch.empty(elements, dtype=torch.bfloat16) if dtype == torch.float else None
        self.optimizer = make_optimizer([self.param])

    def kinds(self):
        return [kind for kind in KINDS if kind.startswith("bf16") == (self.copy is None)]

    def once(self, kind):
        if kind.endswith("full"):
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

    def kinds(self):
        return list(KINDS)

    def seconds(self, kind):
        # The factor is applied in the same pass whether it is 1 or not.
        self.process.stdin.write(("full" if kind.startswith("bf16") else kind) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def build_cpu_adam_for_avx2(module):
    """DeepSpeed builds for this machine's widest instructions; a builder that knows others than `module` would ask."""

    class Avx2Builder(module.CPUAdamBuilder):
        NAME = "cpu_adam_avx2"

        def cpu_arch(self):
            return "-march=x86-64-v3"

        def simd_width(self):
            return "-D__AVX256__"

    module.CPUAdamBuilder = Avx2Builder


sides = {"sluice": Ours()}
adamw = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
sides["PyTorch " + torch.__version__.split("+")[0]] = Theirs(lambda p: torch.optim.AdamW(p, fused=True, **adamw))
try:
    import deepspeed
    import deepspeed.ops.adam.cpu_adam
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    if isa == ["avx2"]:
        build_cpu_adam_for_avx2(deepspeed.ops.adam.cpu_adam)
    name = "DeepSpeed " + deepspeed.__version__
    sides[name] = Theirs(lambda p: DeepSpeedCPUAdam(p, adamw_mode=True, **adamw))
    sides[name + ", bf16"] = Theirs(lambda p: DeepSpeedCPUAdam(p, adamw_mode=True, **adamw), torch.bfloat16)
except Exception as error:  # not installed, or its extension doesn't build here
    print(f"DeepSpeed is left out: {type(error).__name__}: {error}")

times = {(name, kind): [] for name, side in sides.items() for kind in side.kinds()}
copies = []
for _ in range(rounds):
    copies.append(sides["sluice"].seconds("copy"))
    for kind in KINDS:
        for name, side in sides.items():
            if kind in side.kinds():
                times[name, kind].append(side.seconds(kind))
copy_rate = 28 * elements / statistics.median(copies)
print(
    f"{elements} elements, {threads} threads, {isa[0] if isa else 'widest instructions'}, medians of {rounds}; "
    f"memcpy {copy_rate / 1e9:.2f} GB/s read and written"
)
for kind, size in KINDS.items():
    for name in (name for name, side in sides.items() if kind in side.kinds()):
        took = statistics.median(times[name, kind])
        ratio = statistics.median(b / a for a, b in zip(times["sluice", kind], times[name, kind]))
        rate = size * elements / took
        print(f"{kind + ':':10} {name:22} {took * 1e3:8.2f} ms, {rate / 1e9:6.2f} GB/s ({rate / copy_rate:.2f} of memcpy), {ratio:.2f} x ours")
