"""examples/mix.py: its loss is what it says, and a run with it learns from experts and from episodes in one step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.agents.base import Agent
from harness.agents.models.tiny import make_tiny
from harness.agents.registry import make
from harness.envs.echo import Echo
from harness.load import load
from harness.rl.algorithm.loss import ClippedLoss, SftLoss
from harness.rl.monitor import read
from harness.rl.trainer.batch import Batch, split
from harness.runs import RunFolder
from harness.train import train

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def mix(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import mix

    return mix


def rows(expert: list[bool], seed: int = 0) -> Batch:
    """Rows of seven tokens, of which the first two carry no loss, with one more token of loss less a row."""
    torch.manual_seed(seed)
    B, L = len(expert), 7
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[:, :2] = False
    for b in range(B):
        mask[b, 2 : 2 + b % 3] = False
    experts = torch.tensor(expert)
    return Batch(
        tokens=torch.randint(0, 9, (B, L)),
        lengths=torch.full((B,), L),
        mask=mask,
        logprobs=torch.where(experts[:, None], 0.0, -torch.rand(B, L)) * mask,
        advantages=torch.randn(B, L) * mask,
        expert=experts,
        counted=(int(mask[~experts].sum()), int(mask[experts].sum())),
    )


def loss_of(mix: Any, batch: Batch, logprobs: torch.Tensor, budget: int) -> tuple[float, dict[str, float]]:
    """As an engine computes it: sums over micro-batches, divided by the count of the whole batch."""
    loss = mix.MixLoss(grpo=ClippedLoss(), mu=0.25)
    count, total, metrics = loss.count(batch), 0.0, {}
    start = 0
    for micro in split(batch, budget):
        part, more = loss(logprobs[start : start + len(micro)][micro.mask], micro)
        start += len(micro)
        total += float(part)
        for name, value in more.items():
            if not name.endswith("_max"):
                metrics[name] = metrics.get(name, 0.0) + float(value) / count
    return total / count, metrics


@pytest.mark.parametrize("budget", [7, 14, 1000])
def test_the_loss_is_the_weighted_sum_of_two_means_however_it_is_cut(mix: Any, budget: int) -> None:
    batch = rows([False, True, False, False, True])
    logprobs = -torch.rand(5, 7)
    parts = []
    for experts, loss in ((False, ClippedLoss()), (True, SftLoss())):
        mine = batch.pick((batch.expert == experts).nonzero()[:, 0])  # type: ignore[union-attr]
        sums, _ = loss(logprobs[batch.expert == experts][mine.mask], mine)
        parts.append(float(sums) / int(mine.mask.sum()))
    found, metrics = loss_of(mix, batch, logprobs, budget)
    assert found == pytest.approx(0.75 * parts[0] + 0.25 * parts[1], rel=1e-5)
    assert metrics["expert_loss"] == pytest.approx(parts[1], rel=1e-5)


@pytest.mark.parametrize("kind", [False, True])
def test_a_batch_of_one_kind_has_that_part_alone(mix: Any, kind: bool) -> None:
    batch = rows([kind] * 3)
    found, metrics = loss_of(mix, batch, -torch.rand(3, 7), 14)
    assert ("expert_loss" in metrics) == kind
    assert ("clip_fraction" in metrics) != kind
    assert found == found  # not nan


def talk(agent: Agent, seed: int) -> dict[str, Any]:
    world, task = Echo(), Echo.tasks("train", rounds=1)[seed]
    observation, info = world.reset(seed=task.seed, options={"task": task})
    messages = [*agent.start(observation, info, lambda tools=(), *, thinking=None: None)]
    told = [{"role": m.role, "content": m.content} for m in messages]
    return {"messages": [*told, {"role": "assistant", "content": agent.write("", f"say {world.words[0]}")}]}


def test_a_run_learns_from_experts_and_from_what_it_plays(
    mix: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "runs"))
    options = {"demonstrations": str(tmp_path / "demos.jsonl"), "model": str(tmp_path / "model"), "share": 1.0}
    settings = (
        "env.name=echo",
        "env.options={rounds: 1}",
        "agent.prompt=plain",
        "agent.max_steps=1",
        "run.place=inline",
        "run.steps=6",
        "model.slots=16",
        "sampling.max_tokens=16",
        "explorer.groups=4",
        "explorer.group_size=4",
        "warmup.stages=[]",
        "trainer.optimizer.lr=5e-3",
        "trainer.updates=4",
        "eval.n=4",
        f"model.path={tmp_path / 'model'}",
        "algorithm.name=mix:mix",
        "buffer.strategy=mix:WithExperts",
        f"buffer.options={json.dumps(options)}",
    )
    shape = load("default", ["model.tiny={layers: 1, width: 48, heads: 1, kv_heads: 1, mlp: 64, context: 128}"])
    make_tiny(tmp_path / "model", shape.model.tiny, Echo.texts(), 0)
    make_talk: Callable[[int], str] = lambda i: json.dumps(talk(make(shape.agent, Echo.world), i)) + "\n"  # noqa: E731
    (tmp_path / "demos.jsonl").write_text("".join(map(make_talk, range(64))))
    config = load("default", settings)
    run = RunFolder.create(config, "mixed")
    train(config, run)
    lines = [line for line in read(run.path) if line["phase"] == "train"]
    assert [line["attempts"] for line in lines] == [16] * 6  # what experts show is no attempt
    assert [line["lag_max"] for line in lines] == [0] * 6  # and explorers play on strictly on-policy
    assert lines[-1]["expert_loss"] < 0.5 * lines[0]["expert_loss"]
    # At first every attempt fails, so that GRPO alone would have nothing to learn from.
    assert lines[0]["groups_used"] >= 4
