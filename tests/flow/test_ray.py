"""The same run with its parts in Ray actors, and an explorer that is killed in the middle (C20)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.echo import Echo
from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.loop import Loop
from harness.rl.place import open_place
from harness.rl.trainer.trainer import Trainer

Small = Callable[..., RunConfig]


@pytest.mark.slow
@pytest.mark.timeout(900)  # several processes that import torch, on whatever machine
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray's own sockets and files
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_lost_explorer_is_replaced_and_the_batch_is_whole(tmp_path: Path, small: Small) -> None:
    config = small("run.place=ray", "explorer.workers=2", "warmup.stages=[]", "run.steps=3")
    base, url = tmp_path / "initial", f"sqlite:///{tmp_path / 'buffer.db'}"
    make_tiny(base, config.model.tiny, Echo.texts(), seed=0)
    heard: list[Mapping[str, float]] = []

    async def scene() -> None:
        place = open_place("ray")
        trainer = place.put(Trainer, config, base, tmp_path / "checkpoints", url)
        buffer = SqlBuffer(url)

        def report(version: int, metrics: Mapping[str, float]) -> None:
            heard.append(metrics)
            if version == 1:
                os.kill(pids[0], signal.SIGKILL)

        loop = Loop(
            plan=config,
            folder=base,
            place=place,
            trainer=trainer,
            buffer_url=url,
            outlet=tmp_path / "weights",
            report=report,
        )
        pids: list[int] = []

        async def look() -> None:
            while not loop.explorers:
                await asyncio.sleep(0.05)
            pids.append(await loop.explorers[0].call("pid"))

        watching = asyncio.create_task(look())
        done = await trainer.call("resume")
        await loop.run(done)
        await watching
        assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": 12}
        buffer.close()
        place.close()

    asyncio.run(scene())
    assert len(heard) == 3
    assert sum(m["explorer_respawns"] for m in heard) >= 1
