"""The same run by both sets of engines: ALFWorld under Ray, sampled by vLLM and trained by verl, and by the local ones.

Runs where vLLM and verl are installed (`scripts/engines_env.sh` makes such an environment).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.registry import world_class
from harness.load import load
from harness.rl.loop import Loop
from harness.rl.place import open_place
from harness.rl.trainer.learner import WARMUP
from harness.rl.trainer.trainer import Trainer

for package in ("vllm", "verl"):
    pytest.importorskip(package, reason="needs vLLM and verl: scripts/engines_env.sh makes an environment with them")

# vLLM warns of much that is not ours.
pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1200)]

STEPS = 10
SMALL = (
    "env.options={receptacles: [3, 3], objects: [3, 3], task_types: [look_at_obj_in_light]}",
    "warmup.stages=[{episodes: 2000, turns: 1}, {episodes: 800, turns: 3}, {episodes: 800}]",
    "model.slots=32",
    f"run.steps={STEPS}",
    "explorer.groups=4",
    "explorer.group_size=8",
    "explorer.max_steps=8",
    "explorer.workers=1",
    "trainer.threads=1",
    "trainer.optimizer.warmup_steps=0",
)


def config(*overrides: str) -> RunConfig:
    """The recipe, in small."""
    return load("alfworld/tiny", [*SMALL, *overrides])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has been warmed up: now and then it does the task."""
    folder = tmp_path_factory.mktemp("base")
    made = config("run.place=inline", "warmup.optimizer.decay_steps=40")
    make_tiny(folder / "initial", made.model.tiny, world_class("alfworld").texts(), made.run.seed)
    trainer = Trainer(made, folder / "initial", folder, f"sqlite:///{folder}/none.db")
    for _ in trainer.warm_up():
        pass
    trainer.close()
    return folder / WARMUP


def run(base: Path, folder: Path, *engines: str) -> list[Mapping[str, float]]:
    """The metrics of each step, from the warmed-up model on."""
    plan = config("run.place=ray", f"model.path={base}", "warmup.stages=[]", *engines)
    heard: list[Mapping[str, float]] = []
    folder.mkdir()

    async def scene() -> None:
        place, url = open_place("ray"), f"sqlite:///{folder / 'buffer.db'}"
        try:
            loop = Loop(
                plan=plan,
                folder=base,
                place=place,
                trainer=place.put(Trainer, plan, base, folder / "checkpoints", url),
                buffer_url=url,
                outlet=folder / "weights",
                report=lambda _, metrics: heard.append(metrics),
            )
            await loop.run(0)
        finally:
            place.close()

    asyncio.run(scene())
    return heard


def test_ten_steps_are_the_local_engines(base: Path, tmp_path: Path) -> None:
    local = run(base, tmp_path / "local")
    real = run(base, tmp_path / "real", "model.engine=vllm", "trainer.engine=verl")
    print("\nreward, local engines:  " + " ".join(f"{m['reward']:.3f}" for m in local))
    print("reward, vLLM and verl:  " + " ".join(f"{m['reward']:.3f}" for m in real))
    first, same = local[0], real[0]
    assert first["groups_used"] > 0
    for name in ("reward", "loss", "grad_norm", "trained_tokens", "trained_loss_tokens", "groups_used"):
        assert same[name] == pytest.approx(first[name], rel=1e-4, abs=1e-6), name
    assert len(local) == len(real) == STEPS
    means = [sum(m["reward"] for m in heard) / STEPS for heard in (local, real)]
    assert means[0] == pytest.approx(means[1], abs=0.1)
