"""The same run with its parts in Ray actors: whatever way weights travel, and though an explorer is killed in the
middle (C20), it is the run that one process makes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.echo import Echo
from harness.load import load
from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.loop import Loop
from harness.rl.place import open_place
from harness.rl.trainer.learner import WARMUP
from harness.rl.trainer.trainer import Trainer

from .conftest import SMALL

Heard = list[Mapping[str, float]]
LEARNED = ("reward", "loss", "grad_norm", "trained_tokens", "groups_used", "lag_mean")


def config(*overrides: str) -> RunConfig:
    """Warmed up until some attempts succeed; one sequence at a time, so that sums are the same to the last bit."""
    learns = ("warmup.stages=[{episodes: 300}]", "warmup.optimizer.lr=0.01", "warmup.batch_tokens=512")
    settings = ("explorer.workers=2", "explorer.group_size=4", "run.steps=3", "model.slots=1")
    return load("default", [*SMALL, *learns, *settings, *overrides])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warmed-up model."""
    folder = tmp_path_factory.mktemp("base")
    make_tiny(folder / "initial", config().model.tiny, Echo.texts(), seed=0)
    trainer = Trainer(config(), folder / "initial", folder, "memory://base")
    for _ in trainer.warm_up():
        pass
    trainer.close()
    return folder / WARMUP


def run(plan: RunConfig, base: Path, folder: Path, meanwhile: Callable[[int], None]) -> Heard:
    """The metrics of each step; `meanwhile` hears the first explorer's process when one step is done."""
    url = f"sqlite:///{folder / 'buffer.db'}"
    heard: Heard = []
    folder.mkdir()

    async def scene() -> None:
        place = open_place(plan.run.place)
        trainer = place.put(Trainer, plan, base, folder / "checkpoints", url, calls=3)
        buffer = SqlBuffer(url)
        pids: list[int] = []

        def report(version: int, metrics: Mapping[str, float]) -> None:
            heard.append(metrics)
            if version == 1:
                meanwhile(pids[0])

        loop = Loop(
            plan=plan,
            folder=base,
            place=place,
            trainer=trainer,
            buffer_url=url,
            outlet=folder / "weights",
            report=report,
        )

        async def look() -> None:
            while not loop.explorers:
                await asyncio.sleep(0.05)
            pids.append(await loop.explorers[0].call("pid"))

        watching = asyncio.create_task(look())
        await loop.run(await trainer.call("resume"))
        await watching
        assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": 24}
        buffer.close()
        place.close()

    asyncio.run(scene())
    return heard


@pytest.fixture(scope="module")
def alone(base: Path) -> tuple[Heard, Path]:
    """The run in one process, where nobody dies: what was heard, and its folder."""
    folder = base.parent / "alone"
    return run(config("run.place=inline"), base, folder, lambda _: None), folder


@pytest.mark.slow
@pytest.mark.timeout(900)  # several processes that import torch, on whatever machine
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own sockets and files
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("transport", ["object", "group"])
def test_a_lost_explorer_is_replaced_and_nothing_else_differs(
    transport: str, base: Path, alone: tuple[Heard, Path], tmp_path: Path
) -> None:
    plan = config("run.place=ray", f"sync.transport={transport}")
    heard = run(plan, base, tmp_path / "ray", lambda pid: os.kill(pid, signal.SIGKILL))
    assert sum(m["explorer_respawns"] for m in heard) >= 1
    same, folder = alone
    assert sum(m["groups_used"] for m in same), "nothing was learned, so nothing could differ"
    assert [{n: m[n] for n in LEARNED if n in m} for m in heard] == [{n: m[n] for n in LEARNED if n in m} for m in same]
    ours, theirs = (
        load_file(f / "checkpoints" / "step-000003" / "model.safetensors") for f in (tmp_path / "ray", folder)
    )
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
