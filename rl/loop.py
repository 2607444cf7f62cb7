"""The loop of a run: explorers play, the trainer learns, and new weights go back.

| who               | produces                      | waits for                               | unblocked by         |
|-------------------|-------------------------------|-----------------------------------------|----------------------|
| `Explorer.run`, N | groups in the buffer          | a version that lets it go on; room      | `offer`; the trainer |
| `_train`          | version s + 1, a checkpoint   | enough groups in the buffer for step s  | explorers            |
| `_deliver`        | weights at one explorer after | a version that explorers get            | `_publish`           |
|                   | the other                     |                                         |                      |
| `_keep`, N        | an explorer that lives        | its end                                 | a kill               |

Every mode is these tasks and the numbers of `sync`, `explorer.workers` and `run.place`; how weights travel is
transport.py's. With place apart explorers are started by hand, and there is nobody to keep. The trainer
alone, on what is stored or on a file, is the same with no explorers. Knows no
worlds, models or losses, nor where parts live. Invariants: training steps are taken in order, each once; all that must
survive is in the buffer and the checkpoints, so a run that is killed anywhere goes on from the newest checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.envs.errors import UserError

from .config import Plan
from .explorer.explorer import Explorer, figures
from .gpus import trainer_seats
from .place import Handle, PartDied, Place
from .sync.synchronizer import published, version_for
from .transport import make_transport

Report = Callable[[int, Mapping[str, float]], None]
"""Hears (training steps done, metrics of that step)."""

RESPAWNS = 5
"""Times that a lost explorer process is replaced between two training steps before the run stops."""
FIRST_LOOK, LAST_LOOK = 0.004, 0.1
"""Seconds between two looks for a batch: from, growing to."""


@dataclass(kw_only=True)
class Loop:
    """One run of reinforcement learning, from the newest checkpoint to `plan.run.steps`."""

    plan: Plan
    folder: Path
    """Model folder that explorers start from, before their first weights arrive."""
    place: Place
    trainer: Handle
    buffer_url: str
    outlet: Path
    """Where weights are written for explorers that are apart."""
    report: Report
    explorers: list[Handle] = field(default_factory=list, init=False)

    async def run(self, done: int) -> None:
        """`done`: training steps in the trainer's present state.

        Raises UserError where the run cannot go on, and what explorer or trainer raised.
        """
        if done >= self.plan.run.steps:
            return
        self._transport = make_transport(self.plan, self.place, self.trainer, self.outlet)
        players = 0 if self.plan.data.file or self.plan.run.place == "apart" else self.plan.explorer.workers
        self._delivered = [-1] * players
        self._somebody = players > 0 or self.plan.run.place == "apart"
        self._news = asyncio.Event()
        self._respawns = 0
        self._done = done
        await self._recall(done)
        await self._publish(done)
        tasks: list[Coroutine[Any, Any, None]] = [self._train(done), self._deliver()]
        self.explorers = [self._spawn(i) for i in range(players)]
        tasks += [self._keep(i) for i in range(players)]
        try:
            await _first(tasks)
        finally:
            for explorer in self.explorers:
                explorer.kill()

    async def _train(self, done: int) -> None:
        every, last = self.plan.trainer.checkpoint_every, self.plan.run.steps
        for step in range(done, last):
            began, pause = time.monotonic(), FIRST_LOOK
            while (metrics := await self.trainer.call("train", step)) is None:
                await asyncio.sleep(pause)
                pause = min(LAST_LOOK, 1.3 * pause)
            version = step + 1
            waited = time.monotonic() - began - metrics["train_seconds"]
            sums = [await self._figures(explorer) for explorer in self.explorers]
            if published(version, self.plan.sync) or version == last:
                await self._publish(version)
            respawns, self._respawns = self._respawns, 0
            extra = {"train_wait_seconds": waited, "explorer_respawns": float(respawns)}
            self.report(version, {**metrics, **figures(sums), **extra})  # before the checkpoint: it ends what is redone
            if version % every == 0 or version == last:
                older, weights = self._transport.older(self._oldest(version), version)
                await self.trainer.call("save", version, older, *weights)

    async def _figures(self, explorer: Handle) -> dict[str, float]:
        try:
            sums: dict[str, float] = await explorer.call("figures")
            return sums
        except PartDied:
            return {}

    async def _publish(self, version: int) -> None:
        """Have the weights ready for whoever gets them next."""
        if self._somebody:
            await self._transport.publish(version, self._oldest(version))
            self._news.set()

    async def _recall(self, done: int) -> None:
        """What was in force when the checkpoint was made is so again, so that a resumed run goes on as it would
        have."""
        for version in [v for v in await self.trainer.call("older") if self._oldest(done) <= v < done]:
            if self._somebody:
                await self._transport.recall(version, self._oldest(done))

    def _oldest(self, version: int) -> int:
        """The oldest version that batches from `version` on are sampled by."""
        return version_for(version, self.plan.sync) if self.plan.sync.staleness is None else version

    async def _deliver(self) -> None:
        """One explorer after the other, so that never all of them take new weights at once."""
        while True:
            await self._news.wait()
            self._news.clear()
            for index in range(len(self.explorers)):
                await self._bring(index)

    async def _bring(self, index: int) -> None:
        for version in sorted(self._transport.offers):
            if version > self._delivered[index] and version in self._transport.offers:
                self._delivered[index] = version
                try:
                    await self.explorers[index].call("offer", version, self._transport.offers[version])
                except PartDied:
                    self.explorers[index].kill()  # it may live, without weights; `_keep` sees to the rest
                    return

    async def _keep(self, index: int) -> None:
        while True:
            try:
                await self.explorers[index].call("run")
                return
            except PartDied as error:
                died = error
            self.explorers[index].kill()
            self._respawns += 1
            if self._respawns > RESPAWNS:
                raise UserError(
                    f"explorers died {RESPAWNS + 1} times in one step: {died}. "
                    "Most often this is want of memory: fewer `model.slots` or `explorer.workers` need less."
                )
            self.explorers[index] = self._spawn(index)
            self._delivered[index] = -1
            self._news.set()

    def _spawn(self, index: int) -> Handle:
        made = (self.plan, self.folder, self.buffer_url, index, None, self._done, self._transport.link(index))
        seat = trainer_seats(self.plan) + index
        return self.place.put(Explorer, *made, threads=self.plan.model.threads, seat=seat)


async def _first(parts: list[Coroutine[Any, Any, None]]) -> None:
    """Until the first of the parts (the training) ends, or any fails; then the others are cancelled."""
    tasks = [asyncio.ensure_future(p) for p in parts]
    running = set(tasks)
    try:
        while not tasks[0].done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
