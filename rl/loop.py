"""The loop of a run: batches are explored, then trained on, and the new weights go back.

| who           | produces              | waits for                              | unblocked by           |
|---------------|-----------------------|----------------------------------------|------------------------|
| `_explore`    | batch s in the buffer | the version that must sample batch s   | `Synchronizer.publish` |
| `_train`      | version s + 1         | batch s, whole                         | `_Explored.reach`      |

Every mode is these two tasks and the numbers of `sync`. Knows no worlds, models or losses, nor where parts live.
Invariants: batches are trained in order, each once; all that must survive is in the buffer and the checkpoints, so a
run that is killed anywhere goes on from the newest checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.envs.errors import UserError

from .buffer.base import Buffer
from .config import Plan
from .explorer.explorer import Explorer, figures
from .place import Handle, PartDied, Place
from .sync.synchronizer import Synchronizer, version_for

Report = Callable[[int, Mapping[str, float]], None]
"""Hears (training steps done, metrics of that step)."""

RESPAWNS = 5
"""Times that a lost explorer process is replaced before the run stops."""


class _Explored:
    """How many leading batches are whole."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._changed = asyncio.Condition()

    async def reach(self, count: int) -> None:
        async with self._changed:
            self.count = count
            self._changed.notify_all()

    async def wait(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


@dataclass(kw_only=True)
class Loop:
    """One run of reinforcement learning, from the newest checkpoint to `plan.run.steps`."""

    plan: Plan
    folder: Path
    """Model folder that explorers start from, before their first weights arrive."""
    place: Place
    trainer: Handle
    buffer_url: str
    buffer: Buffer
    report: Report

    async def run(self, done: int) -> None:
        """`done`: training steps in the trainer's present state.

        Raises UserError where the run cannot go on, and what explorer or trainer raised.
        """
        if done >= self.plan.run.steps:
            return
        self._sync = Synchronizer(self.plan.sync)
        self._explored = _Explored(done)
        self._metrics: dict[int, dict[str, float]] = {}
        self._explorers = [self._spawn(i) for i in range(self.plan.explorer.workers)]
        await self._sync.publish(done, self.trainer.refer("snapshot"))
        tasks = [asyncio.create_task(self._explore()), asyncio.create_task(self._train(done))]
        try:
            await _first_error(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for explorer in self._explorers:
                explorer.kill()

    def _spawn(self, index: int) -> Handle:
        return self.place.put(Explorer, self.plan, self.folder, self.buffer_url, index, threads=self.plan.model.threads)

    async def _explore(self) -> None:
        held = [-1] * len(self._explorers)
        for step in range(self._explored.count, self.plan.run.steps):
            version, weights = await self._sync.weights(version_for(step, self.plan.sync))
            began = time.monotonic()
            parts = await _all(
                [self._explore_part(i, step, version, weights, held) for i in range(len(self._explorers))]
            )
            self._metrics[step] = {"explore_seconds": time.monotonic() - began, **figures(parts)}
            await self._explored.reach(step + 1)

    async def _explore_part(
        self, index: int, step: int, version: int, weights: Any, held: list[int]
    ) -> dict[str, float]:
        for respawns in range(RESPAWNS + 1):
            explorer = self._explorers[index]
            try:
                if held[index] != version:
                    await explorer.call("update", weights, version)
                    held[index] = version
                return {**await explorer.call("explore", step), "explorer_respawns": float(respawns)}
            except PartDied as error:
                died = error
                held[index] = -1
                self._explorers[index] = self._spawn(index)
        raise UserError(
            f"explorer {index} died {RESPAWNS + 1} times in batch {step}: {died}. "
            "Most often this is want of memory: fewer `model.slots` or `explorer.workers` need less."
        )

    async def _train(self, done: int) -> None:
        every, last = self.plan.trainer.checkpoint_every, self.plan.run.steps
        for step in range(done, last):
            began = time.monotonic()
            await self._explored.wait(step + 1)
            waited = time.monotonic() - began
            metrics = await self.trainer.call("train", step)
            version = step + 1
            if self._sync.wanted(version):
                await self._sync.publish(version, self.trainer.refer("snapshot"))
            if version % every == 0 or version == last:
                await self.trainer.call("save", version)
            self.report(version, {**metrics, **self._metrics.pop(step, {}), "train_wait_seconds": waited})


async def _all(parts: Sequence[Any]) -> list[Any]:
    """Results of all; the first failure ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(p) for p in parts]
    await _first_error(tasks)
    return [t.result() for t in tasks]


async def _first_error(tasks: Sequence[asyncio.Future[Any]]) -> None:
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        if error := task.exception():
            for other in pending:
                other.cancel()
            raise error
