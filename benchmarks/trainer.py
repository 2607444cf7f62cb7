"""Training throughput: our engine against a bare torch loop on the same micro-batches.

    python benchmarks/trainer.py [--quick]

The bare loop is what one writes by hand: the transformers model's logits at every position, log-softmax, the clipped
loss, AdamW; it is even given our length-sorted micro-batches and spared the attention mask. Both train the tiny model
on the same batch of episodes of the length and share of loss tokens that ALFWorld has, in turns; figures are medians.
On a CPU the time is the process's own CPU time, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.envs.registry import world_class
from harness.rl.algorithm.loss import ClippedLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.experience import Experience
from harness.rl.trainer.batch import Batch, from_experiences, split
from harness.rl.trainer.local import LocalEngine

RATE = 1e-4
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes and rounds")
    parser.add_argument("--token-budget", type=int, default=TrainerConfig().token_budget)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    config = TrainerConfig(token_budget=args.token_budget)
    with tempfile.TemporaryDirectory() as folder:
        make_tiny(Path(folder), TinyConfig(), world_class("alfworld").texts(), seed=0)
        engine = LocalEngine(folder, config)
        engine.begin(OptimizerConfig(lr=RATE), 1000)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.nn.Module.to(model, engine.device)
    batch = episodes(32 if args.quick else 64, model.config.vocab_size)
    tokens, loss_tokens = int(batch.lengths.sum()), int(batch.mask.sum())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(batch)} episodes, {tokens:,} tokens, {loss_tokens / tokens:.0%} with loss")
    micro = list(split(batch, config.token_budget, engine.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    ours, bare = measure(
        [lambda: engine.step(batch, ClippedLoss()), lambda: bare_step(model, optimizer, micro, loss_tokens)],
        rounds=3 if args.quick else 5,
        clock=time.process_time if engine.device.type == "cpu" else time.perf_counter,
    )
    print(f"ours {tokens / ours:,.0f} tokens/s, bare torch {tokens / bare:,.0f} tokens/s")
    print(f"RATIO vs_bare_torch {bare / ours:.3f}")


def episodes(count: int, vocabulary: int) -> Batch:
    """Multi-turn episodes: an opening, then answers (with loss) and observations (without) in turn."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        mask = [False] * 120
        for _ in range(int(rng.integers(4, 21))):
            mask += [True] * int(rng.integers(8, 17)) + [False] * int(rng.integers(8, 33))
        mask_L = np.array(mask)
        made.append(
            Experience(
                key=str(i),
                task_key="benchmark",
                group="benchmark",
                attempt=i,
                versions=(0, 0),
                reward=0.0,
                tokens=rng.integers(0, vocabulary, len(mask), dtype=np.int32),
                mask=mask_L,
                logprobs=np.where(mask_L, -rng.random(len(mask)), 0).astype(np.float32),
                advantages=np.where(mask_L, rng.normal(), 0).astype(np.float32),
            )
        )
    return from_experiences(made)


def bare_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, micro: list[Batch], loss_tokens: int) -> None:
    """One optimizer step, written plainly."""
    for b in micro:
        assert b.logprobs is not None
        assert b.advantages is not None
        logits = model(input_ids=b.tokens, use_cache=False).logits[:, :-1]
        logprobs = logits.float().log_softmax(-1).gather(-1, b.tokens[:, 1:, None])[..., 0]
        ratio = (logprobs - b.logprobs[:, 1:]).exp()
        advantages = b.advantages[:, 1:]
        losses = -torch.minimum(advantages * ratio, advantages * ratio.clamp(0.8, 1.28))
        ((losses * b.mask[:, 1:]).sum() / loss_tokens).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def measure(steps: list[Step], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Median seconds of each, run in turns, after one round to warm up."""
    seconds: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds + 1):
        for step, taken in zip(steps, seconds, strict=True):
            began = clock()
            step()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:
                taken.append(clock() - began)
    return [statistics.median(s) for s in seconds]


if __name__ == "__main__":
    main()
