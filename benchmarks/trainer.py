"""The local trainer against a bare torch loop, against TRL, and one masked sequence against a sample a turn.

    python benchmarks/trainer.py [--quick] [--trl PYTHON]

The bare loop is what one writes by hand: the transformers model's logits at every position, log-softmax, the clipped
loss, AdamW; it is even given our length-sorted micro-batches and spared the attention mask. TRL's GRPOTrainer takes
one step on the same 64 episodes, handed over by its own hook for rollouts, so that nothing is sampled; it is timed
with micro-batches of 8 and of 16 rows (--quick: 8), and the best counts. It needs an environment of its own:

    python3 -m venv trl && trl/bin/pip install torch==2.13.0 transformers==5.10.4 trl==1.16.0
    python benchmarks/trainer.py --trl trl/bin/python

A step that trains a change of rank 8 alone (trainer.lora) is measured against one that trains all weights, and so is
what each sends to the explorers. Last, an episode of K turns is trained on as one sequence, and as K samples that each
end with one turn's answer: the same loss (checked), computed from more tokens. All train the tiny model on episodes of
the length and share of loss tokens that ALFWorld has; figures are medians. On a CPU the time is the process's own CPU
time, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.envs.registry import world_class
from harness.rl.algorithm.loss import ClippedLoss
from harness.rl.config import LoraConfig, OptimizerConfig, TrainerConfig
from harness.rl.experience import Experience
from harness.rl.trainer.batch import Batch, from_experiences, split
from harness.rl.trainer.local import LocalEngine

RATE = 1e-4
OPENING = 120
GROUPS = 8
PEER = Path(__file__).parent / "peers" / "trl_grpo.py"
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and fewer and shorter episodes of K turns")
    parser.add_argument("--token-budget", type=int, default=TrainerConfig().token_budget)
    parser.add_argument("--trl", default=os.environ.get("HARNESS_TRL"), help="a Python that has TRL")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    config = TrainerConfig(token_budget=args.token_budget)
    rounds = 1 if args.quick else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tiny(folder, TinyConfig(context=4096), world_class("alfworld").texts(), seed=0)
        engine = LocalEngine(folder, config)
        engine.begin(OptimizerConfig(lr=RATE), 1000)
        rng = np.random.default_rng(0)
        made = [episode(rng, i, turns=int(rng.integers(4, 21)), vocabulary=engine._vocabulary) for i in range(64)]
        against_bare_torch(engine, folder, made, config, rounds)
        change_against_all(engine, folder, made, config, rounds)
        against_trl(engine, folder, made, args.trl, rounds, (8,) if args.quick else (8, 16))
    for turns in (5, 20) if args.quick else (5, 20, 50):
        one_sequence_against_samples(engine, turns, rounds=1 if args.quick else 3)


def episode(rng: np.random.Generator, number: int, *, turns: int, vocabulary: int) -> Experience:
    """An opening, then answers (with loss) and observations (without) in turn."""
    mask = [False] * OPENING
    for _ in range(turns):
        mask += [True] * int(rng.integers(8, 17)) + [False] * int(rng.integers(8, 33))
    mask_L = np.array(mask)
    return Experience(
        key=str(number),
        task_key="benchmark",
        group=str(number * GROUPS // 64),
        attempt=number,
        versions=(0, 0),
        reward=0.0,
        tokens=rng.integers(0, vocabulary, len(mask), dtype=np.int32),
        mask=mask_L,
        logprobs=np.where(mask_L, -rng.random(len(mask)), 0).astype(np.float32),
        advantages=np.where(mask_L, rng.normal(), 0).astype(np.float32),
    )


def against_bare_torch(
    engine: LocalEngine, folder: Path, made: Sequence[Experience], config: TrainerConfig, rounds: int
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.nn.Module.to(model, engine.device)
    batch = from_experiences(made)
    tokens, loss_tokens = int(batch.lengths.sum()), int(batch.mask.sum())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(batch)} episodes, {tokens:,} tokens, {loss_tokens / tokens:.0%} with loss")
    micro = list(split(batch, config.token_budget, engine.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    ours, bare = measure(
        [lambda: engine.step(batch, ClippedLoss()), lambda: bare_step(model, optimizer, micro, loss_tokens)], rounds
    )
    print(f"ours {tokens / ours:,.0f} tokens/s, bare torch {tokens / bare:,.0f} tokens/s")
    print(f"RATIO vs_bare_torch {bare / ours:.3f}")


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


def change_against_all(
    engine: LocalEngine, folder: Path, made: Sequence[Experience], config: TrainerConfig, rounds: int
) -> None:
    changing = LocalEngine(folder, replace(config, lora=LoraConfig(rank=8)))
    changing.begin(OptimizerConfig(lr=RATE), 1000)
    batch = from_experiences(made)
    steps: list[Step] = [lambda e=e: e.step(batch, ClippedLoss()) for e in (engine, changing)]
    whole, change = measure(steps, rounds)
    sent = [sum(w.numel() for _, w in e.weights()) for e in (engine, changing)]
    print(f"a change of rank 8: {change:.2f} s a step, {sent[1]:,} numbers sent; all: {whole:.2f} s, {sent[0]:,} sent")
    print(f"RATIO lora_vs_all_step {whole / change:.2f}")
    print(f"RATIO lora_vs_all_sent {sent[0] / sent[1]:.1f}")


def against_trl(
    engine: LocalEngine,
    folder: Path,
    made: Sequence[Experience],
    python: str | None,
    rounds: int,
    micro_rows: Sequence[int],
) -> None:
    if python is None:
        print("vs_trl: not measured, no Python with TRL was given (--trl)")
        return
    batch = from_experiences(made)
    (ours,) = measure([lambda: engine.step(batch, ClippedLoss())], rounds)
    given = {
        "prompt": [e.tokens[:OPENING].tolist() for e in made],
        "completion": [e.tokens[OPENING:].tolist() for e in made],
        "mask": [e.mask[OPENING:].astype(int).tolist() for e in made],
        "logprobs": [e.logprobs[OPENING:].tolist() for e in made],
        "groups": GROUPS,
        "rounds": rounds,
    }
    theirs: dict[int, float] = {}
    for rows in micro_rows:
        file = folder / "episodes.json"
        file.write_text(json.dumps({**given, "rows": rows}))
        done = subprocess.run([python, PEER, folder, file], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"TRL's step failed:\n{done.stderr[-2000:]}")
        theirs[rows] = statistics.median(json.loads(done.stdout.splitlines()[-1]))
    listed = ", ".join(f"{s:.2f} s with {rows} rows" for rows, s in theirs.items())
    print(f"one step of {len(made)} episodes: ours {ours:.2f} s, TRL {listed}")
    print(f"RATIO vs_trl {min(theirs.values()) / ours:.2f}")


def one_sequence_against_samples(engine: LocalEngine, turns: int, rounds: int) -> None:
    rng = np.random.default_rng(turns)
    whole = [episode(rng, i, turns=turns, vocabulary=engine._vocabulary) for i in range(max(1, 40 // turns))]
    samples = [sample for e in whole for sample in by_turn(e)]
    assert len(samples) == turns * len(whole)
    one, many = from_experiences(whole), from_experiences(samples)
    engine.begin(OptimizerConfig(lr=0.0), 1000)  # the same weights for all, so that losses can be compared
    losses = [engine.step(b, ClippedLoss())["loss"] for b in (one, many)]
    assert abs(losses[0] - losses[1]) < 1e-4 * abs(losses[0]) + 1e-6, losses
    fast, slow = measure([lambda: engine.step(one, ClippedLoss()), lambda: engine.step(many, ClippedLoss())], rounds)
    print(
        f"{turns} turns: one sequence {int(one.lengths.sum()):,} tokens, {fast:.2f} s; "
        f"a sample a turn {int(many.lengths.sum()):,} tokens, {slow:.2f} s ({len(whole)} episodes)"
    )
    print(f"RATIO one_sequence_vs_k{turns} {slow / fast:.2f}")


def by_turn(e: Experience) -> list[Experience]:
    """A sample for each answer: all that came before it, and loss on the answer alone."""
    edges = np.diff(e.mask.astype(int), prepend=0, append=0)
    spans = zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True)
    assert e.advantages is not None
    made = []
    for start, stop in spans:
        mine = np.arange(stop) >= start
        made.append(
            replace(
                e,
                key=f"{e.key}.{start}",
                tokens=e.tokens[:stop],
                mask=mine,
                logprobs=np.where(mine, e.logprobs[:stop], np.float32(0)),
                advantages=np.where(mine, e.advantages[:stop], np.float32(0)),
            )
        )
    return made


def measure(steps: Sequence[Step], rounds: int) -> list[float]:
    """Median seconds of each, run in turns, after one round to warm up."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
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
