"""The two training back ends are one: the same steps, the same logprobs, the same checkpoints, by one rank or two.

Runs where verl is installed (`scripts/engines_env.sh` makes such an environment).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.rl.algorithm.loss import ClippedLoss, DpoLoss, LossFn, SftLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.experience import Example, Pair
from harness.rl.trainer.batch import Batch, from_examples, from_experiences, from_pairs
from harness.rl.trainer.engine import TrainEngine, make_engine

pytest.importorskip("verl", reason="needs verl: scripts/engines_env.sh makes an environment that has it")

pytestmark = pytest.mark.engines

RANKS = (1, 2)
CLOSE = {"rel": 1e-4, "abs": 1e-6}
RATE = 1e-2


@pytest.fixture(scope="module", autouse=True)
def ray_of_one_machine() -> Iterator[None]:
    """Where the ranks of a group of two live."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with tied embeddings and one without."""
    return {kind: tiny.write(tmp_path_factory.mktemp(kind), kind) for kind in ("qwen3", "llama")}


def grpo(tiny: Any) -> Batch:
    """Two groups of unequal length, attempts of unequal length, an odd number of rows."""
    rng = np.random.default_rng(0)
    rows = [
        tiny.experience(rng, n, i, group=g)
        for g, ns in (("a", (9, 31, 4)), ("b", (22, 17, 12, 40)))
        for i, n in enumerate(ns)
    ]
    batch = from_experiences(rows)
    return batch.with_reference([torch.full((n,), -3.0) for n in batch.lengths.tolist()])


def examples(seed: int, lengths: tuple[int, ...]) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [Example(tokens=rng.integers(0, 37, n, dtype=np.int32), mask=np.arange(n) >= n // 3) for n in lengths]


def sft(tiny: Any) -> Batch:
    return from_examples(examples(1, (12, 30, 7, 21, 16)))


def dpo(tiny: Any) -> Batch:
    chosen, rejected = examples(2, (14, 25, 9)), examples(3, (20, 8, 11))
    batch = from_pairs([Pair(chosen=c, rejected=r) for c, r in zip(chosen, rejected, strict=True)])
    return batch.with_reference([torch.full((n,), -3.5) for n in batch.lengths.tolist()])


CASES: dict[str, tuple[Any, LossFn]] = {
    "grpo": (grpo, ClippedLoss()),
    "grpo, sequence means, kl": (grpo, ClippedLoss(aggregate="seq-mean-token-mean", kl=0.1)),
    "sft": (sft, SftLoss()),
    "dpo": (dpo, DpoLoss(beta=0.5)),
}


@pytest.fixture(scope="module")
def engines(folders: dict[str, Path]) -> dict[tuple[str, str, int], TrainEngine]:
    """One of each kind; a phase begun anew is a new optimizer, and weights are loaded anew."""
    made: dict[tuple[str, str, int], TrainEngine] = {}
    for kind, folder in folders.items():
        for ranks in RANKS:
            config = TrainerConfig(engine="verl", ranks=ranks, token_budget=64)
            made[kind, "verl", ranks] = make_engine(folder, config, temperature=0.7)
        made[kind, "local", 1] = make_engine(folder, TrainerConfig(token_budget=64), temperature=0.7)
    return made


def test_print(engines, tiny, folders):
    import time

    for key, e in engines.items():
        for name, (make, loss) in CASES.items():
            for opt in ("adamw", "muon"):
                e.load_weights(folders[key[0]])
                e.begin(OptimizerConfig(name=opt, lr=RATE, weight_decay=0.01), 3)
                t = time.time()
                m = e.step(make(tiny), loss)
                w = sum(float((w**2).sum()) for _, w in e.weights())
                print(key, name, opt, {k: round(v, 6) for k, v in m.items()}, w, round(time.time() - t, 2))
