"""Three GRPO steps of a model of 135 million parameters by the local trainer, on a GPU and on the CPU.

    python scripts/gpu_steps.py [--device cuda] [--layers 30]

The model has the shape of SmolLM2-135M (on a CPU: its first layers) and random weights, the episodes are made up, so
nothing is downloaded. The losses and gradient norms of the device (float32 and bfloat16) are compared with those of the
CPU in float32 on a small batch; then the speed is measured on a larger one, in bfloat16. Ends in a short table; exits
with 1 where losses differ.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.rl.algorithm.loss import ClippedLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.experience import Experience
from harness.rl.trainer.batch import Batch, from_experiences
from harness.rl.trainer.local import LocalEngine

VOCABULARY = 49152
STEPS = 3
TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}
"""Largest relative difference of loss and gradient norm from the CPU's in float32."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--layers", type=int, help="of the model: 30, on a CPU 4")
    parser.add_argument("--rows", type=int, help="episodes of the batch whose speed is measured: 64, on a CPU 4")
    args = parser.parse_args()
    layers, rows = args.layers or (4 if args.device == "cpu" else 30), args.rows or (4 if args.device == "cpu" else 64)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: give --device cpu to try the script itself")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder, layers)
        small = episodes(4, length=160)
        wanted = steps(LocalEngine(folder, TrainerConfig(), device="cpu"), small)
        fine = True
        for dtype, tolerance in TOLERANCE.items():
            engine = LocalEngine(folder, TrainerConfig(dtype=dtype), device=args.device)  # type: ignore[arg-type]
            found = steps(engine, small)
            worst = max(
                abs(f[key] - w[key]) / abs(w[key])
                for f, w in zip(found, wanted, strict=True)
                for key in ("loss", "grad_norm")
            )
            fine = fine and worst <= tolerance
            verdict = "agrees" if worst <= tolerance else "DIFFERS"
            print(f"{dtype:>9} on {args.device}: {verdict} with float32 on the CPU, at most {worst:.1e} apart")
        losses = ", ".join(f"{w['loss']:.4f}" for w in wanted)
        print(f"losses of the {STEPS} steps on the CPU: {losses}")
        table(measure(LocalEngine(folder, TrainerConfig(dtype="bfloat16"), device=args.device), rows))
    return 0 if fine else 1


def make_model(folder: Path, layers: int) -> None:
    """The shape of SmolLM2-135M."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<0>": 0}, unk_token="<0>"))  # noqa: S106 - a token
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<0>").save_pretrained(folder)  # noqa: S106


def episodes(count: int, length: int) -> Batch:
    """Answers (with loss) and observations (without) in turn, sampled by a policy that is a little different."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        mask = np.tile(np.repeat([False, True], 16), length)[: length - int(rng.integers(0, length // 4))]
        made.append(
            Experience(
                key=str(i),
                task_key="check",
                group="check",
                attempt=i,
                versions=(0, 0),
                reward=0.0,
                tokens=rng.integers(0, VOCABULARY, len(mask), dtype=np.int32),
                mask=mask,
                # A random model gives every token about 1 / vocabulary.
                logprobs=np.where(mask, -np.log(VOCABULARY) + rng.normal(0, 0.2, len(mask)), 0).astype(np.float32),
                advantages=np.where(mask, rng.normal() + 0.5, 0).astype(np.float32),
            )
        )
    return from_experiences(made)


def steps(engine: LocalEngine, batch: Batch) -> list[dict[str, float]]:
    engine.begin(OptimizerConfig(lr=1e-5), STEPS)
    return [engine.step(batch, ClippedLoss()) for _ in range(STEPS)]


class Utilisation(threading.Thread):
    """Asks nvidia-smi how busy the GPU is, twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: list[float] = []
        self.stop = threading.Event()

    def run(self) -> None:
        if shutil.which("nvidia-smi") is None:
            return
        ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self.stop.wait(0.5):
            done = subprocess.run(ask, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
            if done.returncode == 0:
                self.found.append(float(done.stdout.split()[0]))


def measure(engine: LocalEngine, rows: int) -> dict[str, str]:
    """Speed, memory and utilisation of steps on a larger batch."""
    cuda = engine.device.type == "cuda"
    batch = episodes(rows, length=512)
    engine.begin(OptimizerConfig(lr=1e-5), 1000)
    engine.step(batch, ClippedLoss())
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    watch = Utilisation()
    watch.start()
    began, count, tokens = time.perf_counter(), 0, 0.0
    while count < STEPS or (cuda and time.perf_counter() - began < 20):
        tokens += engine.step(batch, ClippedLoss())["tokens"]
        count += 1
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    watch.stop.set()
    watch.join()
    parameters = sum(weight.numel() for _, weight in engine.weights())
    return {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "parameters": f"{parameters / 1e6:.0f} million",
        "steps": f"{count} of {int(tokens / count):,} tokens, bfloat16",
        "tokens/s": f"{tokens / seconds:,.0f}",
        "model TFLOP/s": f"{6 * parameters * tokens / seconds / 1e12:.1f} (6 a parameter and token)",
        "peak memory": f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if cuda else "not measured",
        "utilisation": f"{np.mean(watch.found):.0f}% by nvidia-smi" if watch.found else "not measured",
    }


def table(rows: dict[str, str]) -> None:
    print()
    for name, text in rows.items():
        print(f"{name:>14}  {text}")


if __name__ == "__main__":
    sys.exit(main())
