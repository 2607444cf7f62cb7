"""The local sampling engine beside vLLM, on the same prompts, and beside `generate` on episodes of ten turns.

    python benchmarks/engines.py [--quick] [--smollm2 FOLDER]

Needs vLLM (`scripts/engines_env.sh` makes an environment with it). Both engines sample the same lengths from the same
prompts at the same number of episodes in flight, with logprobs, in float32 on one thread; one lives at a time, and each
is warmed up first. --smollm2 names a folder that `scripts/smollm2.py` wrote; else one is made.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import ModelConfig, TinyConfig
from harness.agents.models.base import Policy, Prompt, Sampling
from harness.agents.models.registry import make_model
from harness.agents.models.tiny import make_tiny
from harness.envs.registry import world_class

GROUP = 8
TURNS = 10


def prompts(count: int, length: int, vocabulary: int) -> list[list[int]]:
    """Groups of eight share a prompt, as in training."""
    return [np.random.default_rng(i // GROUP).integers(3, vocabulary, length).tolist() for i in range(count)]


async def answer(model: Policy, tokens: list[int], session: str, longest: int, seed: int) -> list[int]:
    """Ids of an answer of about `longest` tokens: where an end token comes early, the rest is asked for."""
    said: list[int] = []
    while len(said) < longest:
        sampling = Sampling(max_tokens=longest - len(said), seed=seed + len(said))
        prompt = Prompt(messages=(), tokens=(*tokens, *said))
        said += (await model.complete(prompt, sampling, session=session)).tokens
    return said


def throughput(engine: str, folder: Path, asked: list[list[int]], longest: int) -> float:
    """Sampled tokens a second, the prompts' reading included."""
    model = make_model(ModelConfig(engine=engine, slots=len(asked)), folder)

    async def all_of_them(turn: int) -> int:
        said = await asyncio.gather(
            *(answer(model, tokens, f"{turn}/{i}", longest, 1000 * i) for i, tokens in enumerate(asked))
        )
        for i in range(len(asked)):
            model.release(f"{turn}/{i}")
        return sum(map(len, said))

    async def work() -> float:
        await all_of_them(0)
        for i, tokens in enumerate(asked):  # the second time nothing may be in a cache
            asked[i] = [*reversed(tokens)]
        began = time.perf_counter()
        count = await all_of_them(1)
        seconds = time.perf_counter() - began
        await model.close()
        return count / seconds

    return asyncio.run(work())


def episodes(folder: Path, asked: list[list[int]], said: int, heard: int) -> tuple[float, float]:
    """Sampled tokens a second over talks of ten turns: of the local engine, which keeps each talk's cache, and of
    `generate`, which reads each talk anew in each turn, all talks as one batch."""
    model = make_model(ModelConfig(slots=len(asked)), folder)

    async def talk(i: int, turns: int) -> None:
        tokens = asked[i]
        for turn in range(turns):
            tokens = [*tokens, *await answer(model, tokens, f"{turns}/{i}", said, 1000 * i + turn), *tokens[:heard]]
        model.release(f"{turns}/{i}")

    async def all_of_them(turns: int) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(talk(i, turns) for i in range(len(asked))))
        return time.perf_counter() - began

    asyncio.run(all_of_them(1))
    ours = asyncio.run(all_of_them(TURNS))
    plain: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    batch = torch.tensor(asked)
    began = time.perf_counter()
    for _ in range(TURNS):
        batch = plain.generate(batch, do_sample=True, max_new_tokens=said, min_new_tokens=said, pad_token_id=0)
        batch = torch.cat([batch, batch[:, :heard]], 1)
    theirs = time.perf_counter() - began
    tokens = len(asked) * TURNS * said
    return tokens / ours, tokens / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter answers, fewer talks")
    parser.add_argument("--smollm2", type=Path, help="a folder that scripts/smollm2.py wrote")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        tiny, smollm2 = Path(made) / "tiny", args.smollm2 or Path(made) / "smollm2"
        make_tiny(tiny, TinyConfig(), world_class("alfworld").texts(), 0)
        if not args.smollm2:
            script = Path(__file__).parents[1] / "scripts" / "smollm2.py"
            subprocess.run([sys.executable, script, smollm2], check=True, capture_output=True)
        cases = {"tiny": (tiny, 64, 200, 64), "smollm2": (smollm2, 16, 192, 32 if args.quick else 128)}
        ratios = {}
        for name, (folder, count, length, longest) in cases.items():
            asked = prompts(count, length, 1500)
            ours, theirs = (throughput(e, folder, [*asked], longest) for e in ("local", "vllm"))
            print(
                f"{name}: {count} in flight, {length} in, {longest} out: local {ours:.0f}, vllm {theirs:.0f} tokens/s"
            )
            ratios[f"local_vs_vllm_{name}"] = ours / theirs
        count = 16 if args.quick else 64
        ours, theirs = episodes(tiny, prompts(count, 200, 1500), 16, 40)
        print(f"tiny: {count} talks of {TURNS} turns: local {ours:.0f}, generate {theirs:.0f} tokens/s")
        ratios["local_vs_generate_10turns"] = ours / theirs
    for name, ratio in ratios.items():
        print(f"RATIO {name} {ratio:.2f}")


if __name__ == "__main__":
    main()
