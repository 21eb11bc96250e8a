"""Seconds of one training step of GPT-2 124M in PyTorch eager with fused AdamW, to hold step_bench against.

usage: pytorch_step.py ROWS SEQUENCE THREADS STEPS   (under torchrun: DistributedDataParallel over gloo)
"""
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

rows, sequence, threads, steps = (int(word) for word in sys.argv[1:5])
torch.set_num_threads(threads)
torch.manual_seed(1)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))
model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
model.train()
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
seconds = []
for step in range(steps):
    inputs = torch.randint(0, 50257, (rows, sequence))
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = model(input_ids=inputs, labels=inputs).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    seconds.append(time.perf_counter() - begin)
seconds.sort()
median = seconds[len(seconds) // 2]
if rank == 0:
    print(f"median {median * 1e3:.1f} ms, {ranks * rows * sequence / median:.1f} tokens/s over {ranks} ranks (torch {torch.__version__})")
