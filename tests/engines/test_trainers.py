"""The two training back ends are one: the same steps, the same logprobs, the same checkpoints, by one rank or two.

Runs where verl is installed (`scripts/engines_env.sh` makes such an environment).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.envs.errors import UserError
from harness.rl.algorithm.loss import ClippedLoss, DpoLoss, LossFn, SftLoss, ValueLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.experience import Example, Pair
from harness.rl.trainer.batch import Batch, from_examples, from_experiences, from_pairs
from harness.rl.trainer.engine import TrainEngine, make_engine

pytest.importorskip("verl", reason="needs verl: scripts/engines_env.sh makes an environment that has it")

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("ray_of_one_machine")]

RANKS = (1, 2)
CLOSE = {"rel": 1e-4, "abs": 1e-6}
RATE, TEMPERATURE = 1e-2, 0.7


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


Key = tuple[str, str, int]


class Engines:
    """Engines are slow to start: each is made once, and begins each test with the weights of its folder."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders
        self._made: dict[Key, TrainEngine] = {}

    def get(self, kind: str, engine: str, ranks: int = 1, *, optimizer: Any = "adamw") -> TrainEngine:
        key = (kind, engine, ranks)
        if key not in self._made:
            config = TrainerConfig(engine=engine, ranks=ranks, token_budget=64)
            self._made[key] = make_engine(self._folders[kind], config, temperature=TEMPERATURE)
        found = self._made[key]
        found.load_weights(self._folders[kind])
        found.begin(OptimizerConfig(name=optimizer, lr=RATE, weight_decay=0.01, warmup_steps=2), 4)
        return found


@pytest.fixture(scope="module")
def engines(folders: dict[str, Path]) -> Engines:
    return Engines(folders)


def same(ours: TrainEngine, theirs: TrainEngine) -> None:
    """Every weight, to 1e-4 of the largest in its tensor."""
    want = dict(theirs.weights())
    got = dict(ours.weights())
    assert got.keys() == want.keys()
    for name, weight in want.items():
        assert float((got[name] - weight).abs().max()) <= 1e-4 * float(weight.abs().max()), name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_step_is_the_local_engines(engines: Engines, tiny: Any, ranks: int, optimizer: str, case: str) -> None:
    """Each batch takes several micro-batches; the second step shows that the first left the same state."""
    make, loss = CASES[case]
    verl, local = (
        engines.get("qwen3", "verl", ranks, optimizer=optimizer),
        engines.get("qwen3", "local", optimizer=optimizer),
    )
    for _ in range(2):
        assert verl.step(make(tiny), loss) == pytest.approx(local.step(make(tiny), loss), **CLOSE)
        same(verl, local)


@pytest.mark.parametrize("ranks", RANKS)
def test_logprobs_are_the_local_engines(engines: Engines, tiny: Any, folders: dict[str, Path], ranks: int) -> None:
    """Of the policy and of a reference, after training has parted them, in the order of the rows."""
    verl, local = engines.get("llama", "verl", ranks), engines.get("llama", "local")
    batch = grpo(tiny)
    held = verl.reference(folders["llama"])
    before = local.logprobs(batch)
    for engine in (verl, local):
        engine.step(batch, ClippedLoss())
    after = local.logprobs(batch)
    for got, want in ((held.logprobs(batch), before), (verl.logprobs(batch), after)):
        for row, expected in zip(got, want, strict=True):
            torch.testing.assert_close(row, expected, atol=1e-5, rtol=0)
    assert max(float((a - b).abs().max()) for a, b in zip(before, after, strict=True)) > 1e-2
    # Asking leaves nothing behind that the next step would stumble over.
    assert verl.step(batch, ClippedLoss()) == pytest.approx(local.step(batch, ClippedLoss()), **CLOSE)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(("writer", "reader"), [(2, 1), (1, 2), (2, 0), (0, 2)])
def test_any_engine_goes_on_from_anothers_checkpoint(
    engines: Engines, tiny: Any, tmp_path: Path, writer: int, reader: int, optimizer: str
) -> None:
    """0 stands for the local engine, a number for verl by so many ranks."""

    def engine(ranks: int) -> TrainEngine:
        return engines.get("qwen3", "verl" if ranks else "local", ranks or 1, optimizer=optimizer)

    first, second = engine(writer), engine(reader)
    first.step(sft(tiny), SftLoss())
    first.save(tmp_path)
    second.load(tmp_path)
    same(second, first)
    assert second.step(grpo(tiny), ClippedLoss()) == pytest.approx(first.step(grpo(tiny), ClippedLoss()), **CLOSE)
    same(second, first)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_critic_is_the_local_engines(
    engines: Engines, tiny: Any, folders: dict[str, Path], tmp_path: Path, ranks: int, optimizer: Any
) -> None:
    """Of PPO: values before the step, then the policy's and the critic's steps, and each goes on from the other's
    checkpoint."""
    kind = {"adamw": "llama", "muon": "qwen3"}[optimizer]  # without tied embeddings, and with them
    policies = [engines.get(kind, e, n, optimizer=optimizer) for e, n in (("verl", ranks), ("local", 1))]
    critics = [policy.critic(folders[kind]) for policy in policies]
    for critic in critics:
        critic.begin(OptimizerConfig(name=optimizer, lr=RATE), 9)
    loss, rng = ValueLoss(), np.random.default_rng(0)
    batch = grpo(tiny)
    returns = torch.from_numpy(rng.random(batch.tokens.shape, np.float32))
    for step in range(3):
        found = [critic.values(batch) for critic in critics]
        for row, want in zip(*found, strict=True):
            torch.testing.assert_close(row, want, atol=1e-5, rtol=0)
        assert any(row.any() for row in found[1]) == (step > 0)  # it begins knowing nothing
        values = torch.nn.utils.rnn.pad_sequence(found[1], batch_first=True)
        judged = replace(batch, values=values, returns=returns, advantages=returns - values)
        for models, loss_of in ((policies, ClippedLoss()), (critics, loss)):
            ours, theirs = (model.step(judged, loss_of) for model in models)
            assert ours == pytest.approx(theirs, **CLOSE)
    same(*policies)
    for number, critic in enumerate(critics):
        (tmp_path / str(number)).mkdir()
        critic.save(tmp_path / str(number))
    for number, critic in enumerate(critics):
        critic.load(tmp_path / str(1 - number))
    assert critics[0].step(judged, loss) == pytest.approx(critics[1].step(judged, loss), **CLOSE)


def test_tied_weights_are_streamed_and_saved_once(engines: Engines, tmp_path: Path) -> None:
    from safetensors import safe_open

    for kind, expected in (("qwen3", False), ("llama", True)):
        engine = engines.get(kind, "verl", 2)
        streamed = dict(engine.weights())
        engine.save(tmp_path)
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            assert set(file.keys()) == streamed.keys()
        assert ("lm_head.weight" in streamed) == expected


def test_computing_layers_twice_changes_nothing(engines: Engines, tiny: Any, folders: dict[str, Path]) -> None:
    config = TrainerConfig(engine="verl", token_budget=64, gradient_checkpointing=True)
    verl = make_engine(folders["qwen3"], config, temperature=TEMPERATURE)
    verl.begin(OptimizerConfig(lr=RATE, weight_decay=0.01, warmup_steps=2), 4)
    local = engines.get("qwen3", "local")
    assert verl.step(grpo(tiny), ClippedLoss()) == pytest.approx(local.step(grpo(tiny), ClippedLoss()), **CLOSE)
    same(verl, local)


@pytest.mark.parametrize("ranks", RANKS)
def test_what_is_refused_leaves_the_engine_as_it_was(
    engines: Engines, tiny: Any, folders: dict[str, Path], tmp_path: Path, ranks: int
) -> None:
    verl, local = engines.get("qwen3", "verl", ranks), engines.get("qwen3", "local")
    with pytest.raises(UserError, match=r"another model.*LlamaForCausalLM there and Qwen3ForCausalLM here"):
        verl.load_weights(folders["llama"])
    with pytest.raises(UserError, match="no optimizer state"):
        verl.load(folders["qwen3"])
    foreign = replace(sft(tiny), tokens=sft(tiny).tokens + tiny.V)
    with pytest.raises(UserError, match="tokenizer"):
        verl.step(foreign, SftLoss())
    with pytest.raises(UserError, match="no model in"):
        make_engine(tmp_path, TrainerConfig(engine="verl", ranks=ranks))
    assert verl.step(sft(tiny), SftLoss()) == pytest.approx(local.step(sft(tiny), SftLoss()), **CLOSE)
    same(verl, local)


def test_a_rank_that_dies_is_an_end_and_not_a_hang(tiny: Any, folders: dict[str, Path]) -> None:
    class Deadly(SftLoss):
        def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> Any:
            import os

            import torch.distributed

            if torch.distributed.get_rank() == 1:
                os._exit(1)
            return super().__call__(logprobs_N, batch)

    engine = make_engine(folders["llama"], TrainerConfig(engine="verl", ranks=2))
    engine.begin(OptimizerConfig(), 1)
    deadly: LossFn = Deadly()
    with pytest.raises(UserError, match="a rank of the trainer died"):
        engine.step(sft(tiny), deadly)
