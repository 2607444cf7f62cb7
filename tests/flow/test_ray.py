"""The same run with its parts in Ray actors: weights by the object store and by process groups, an explorer that is
killed in the middle (C20), and one that new weights do not reach."""

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
from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.loop import Loop
from harness.rl.place import open_place
from harness.rl.trainer.trainer import Trainer

Small = Callable[..., RunConfig]
LEARNED = ("reward", "loss", "grad_norm", "trained_tokens", "groups_used", "lag_mean")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # several processes that import torch, on whatever machine
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray's own sockets and files
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def run(config: RunConfig, folder: Path, blow: signal.Signals) -> list[Mapping[str, float]]:
    """The metrics of each step of a run in which the first explorer is dealt a blow after one step."""
    base, url = folder / "initial", f"sqlite:///{folder / 'buffer.db'}"
    make_tiny(base, config.model.tiny, Echo.texts(), seed=0)
    heard: list[Mapping[str, float]] = []

    async def scene() -> None:
        place = open_place("ray")
        trainer = place.put(Trainer, config, base, folder / "checkpoints", url, calls=3)
        buffer = SqlBuffer(url)

        def report(version: int, metrics: Mapping[str, float]) -> None:
            heard.append(metrics)
            if version == 1:
                os.kill(pids[0], blow)

        loop = Loop(
            plan=config,
            folder=base,
            place=place,
            trainer=trainer,
            buffer_url=url,
            outlet=folder / "weights",
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
    return heard


def test_a_lost_explorer_is_replaced_and_weights_travel_alike(tmp_path: Path, small: Small) -> None:
    settings = ("run.place=ray", "explorer.workers=2", "warmup.stages=[]", "run.steps=3", "model.slots=1")
    heard, weights = {}, {}
    for transport in ("object", "group"):
        folder = tmp_path / transport
        heard[transport] = run(small(*settings, f"sync.transport={transport}"), folder, signal.SIGKILL)
        weights[transport] = load_file(folder / "checkpoints" / "step-000003" / "model.safetensors")
        assert sum(m["explorer_respawns"] for m in heard[transport]) >= 1
    for ours, theirs in zip(heard["group"], heard["object"], strict=True):
        assert {name: ours[name] for name in LEARNED} == {name: theirs[name] for name in LEARNED}
    assert all(torch.equal(w, weights["object"][name]) for name, w in weights["group"].items())
    assert not torch.equal(*(w for w in (weights["group"]["x"], weights["object"]["x"])))
