"""An explorer started by hand: its seat among the others, and the weights that come through a folder.

Knows the run's folders; not who else is there, nor where the trainer runs. Invariants: a seat has one holder, and the
operating system frees it when that one dies; of explorers that take weights in the middle of episodes one does so at a
time, so that the others serve meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.envs.errors import UserError

from ..config import Plan
from ..sync.weights import Publication, WeightFolder
from .explorer import TICK, Explorer, figures

REPORT_SECONDS = 10.0
Report = Callable[[Mapping[str, float]], None]
"""Hears what was played since it last heard; see `figures`."""


class HeldSeat:
    """A `Seat` that is a locked file; the shares of free seats fall to the next one that is held, in a circle."""

    def __init__(self, folder: Path, index: int, seats: int) -> None:
        self.index = index
        self._folder, self._seats = folder, seats

    def vacant(self, index: int) -> bool:
        return all(self._free((index + i) % self._seats) for i in range((self.index - index) % self._seats))

    def _free(self, index: int) -> bool:
        try:
            file = (self._folder / str(index)).open("rb")
        except FileNotFoundError:
            return True
        with file:  # closing it drops the lock
            return _lock(file, fcntl.LOCK_SH)


@contextmanager
def take_seat(folder: Path, seats: int) -> Iterator[HeldSeat]:
    """The first free seat, until the block ends or this process dies. Raises UserError where all are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(5):  # another explorer may be looking at a free seat just now
        for index in range(seats):
            with (folder / str(index)).open("ab") as file:
                if _lock(file, fcntl.LOCK_EX):
                    yield HeldSeat(folder, index, seats)
                    return
        time.sleep(0.05)
    raise UserError(
        f"all {seats} explorers of this run are running already (explorer.workers={seats}). Stop one, or start a run "
        "with more."
    )


async def explore(explorer: Explorer, plan: Plan, weights: WeightFolder, report: Report) -> None:
    """Play with what the trainer publishes in `weights`, until its last version. Raises UserError."""
    playing = asyncio.create_task(explorer.run())
    following = asyncio.create_task(_follow(explorer, weights, plan.sync.partial))
    telling = asyncio.create_task(_tell(explorer, report))
    others = [following, telling]
    try:
        await asyncio.wait([playing, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            if task.done():
                task.result()
        await playing
    finally:
        for task in (playing, *others):
            task.cancel()
        await asyncio.gather(playing, *others, return_exceptions=True)
        _report(explorer, report)


async def _follow(explorer: Explorer, weights: WeightFolder, in_turn: bool) -> None:
    seen: set[str] = set()
    while True:
        publication = weights.look()
        fresh = sorted(set(publication.files.values()) - seen) if publication else []
        if publication is not None and fresh:
            if not in_turn:
                await _offer(explorer, weights, publication, seen)
            else:
                with weights.turn() as mine:
                    if mine:
                        await _offer(explorer, weights, publication, seen)
        await asyncio.sleep(TICK / 2)


async def _offer(explorer: Explorer, weights: WeightFolder, publication: Publication, seen: set[str]) -> None:
    """Everything in the publication that the explorer has not, oldest first."""
    if publication.tokenizer != explorer.tokenizer:
        raise UserError(
            f"the weights in {weights.folder} go with another tokenizer ({publication.tokenizer}) than this "
            f"explorer's ({explorer.tokenizer}). Trainer and explorers need the same model.path."
        )
    for version, name in sorted(publication.files.items()):
        if name in seen:
            continue
        tensors = weights.read(name)
        if tensors is None:
            return
        seen.add(name)
        await explorer.offer(version, tensors)


async def _tell(explorer: Explorer, report: Report) -> None:
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        _report(explorer, report)


def _report(explorer: Explorer, report: Report) -> None:
    if sums := explorer.figures():
        report(figures([sums]))


def _lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
