"""Which group an explorer plays next.

Groups are numbered slots, for ever: `candidates` of them belong to each batch, the first `groups` complete ones make
it, and slot c of a batch is in share c % workers. An explorer plays its own share, and what nobody is left to play.
Knows the buffer and numbers; no episodes. Invariant: a function of what is stored, so whoever is killed whenever, the
slots that are missing are played and the others are not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil
from typing import Protocol

from ..buffer.base import Buffer
from ..config import ExplorerConfig

_LOOK = 256
"""Slots that one question to the buffer covers."""


class Seat(Protocol):
    """Which explorer this is."""

    index: int

    def vacant(self, index: int) -> bool:
        """Nobody plays share `index`, and it is this explorer's to take over."""


class Assigned:
    """A seat among explorers whose loss is somebody else's to mend."""

    def __init__(self, index: int) -> None:
        self.index = index

    def vacant(self, index: int) -> bool:
        return False


class Slots:
    """The slots of one explorer. See the module."""

    def __init__(self, config: ExplorerConfig, buffer: Buffer, seat: Seat) -> None:
        self._groups, self._workers = config.groups, config.workers
        self.candidates = ceil(config.groups * config.oversample)
        self._buffer, self._seat = buffer, seat
        self._cursor = 0
        self._looked = range(0)
        self._stored: set[str] = set()
        self._passed: list[int] = []  # the others' slots, as far as they were seen missing

    def batch(self, slot: int) -> int:
        """Number of the batch that the slot belongs to."""
        return slot // self.candidates

    def name(self, slot: int) -> str:
        """Name of the slot's group.

        >>> Slots(ExplorerConfig(groups=4), None, Assigned(0)).name(9)
        '2/1'
        """
        return "{}/{}".format(*divmod(slot, self.candidates))

    def resume(self, limit: int, capacity: int) -> None:
        """Begin where at most `capacity` slots below `limit` are missing: what was left in flight is played again, what
        is not in the buffer because it never was in this one is not."""
        stop = limit
        while stop > 0:
            looked = range(max(0, stop - _LOOK), stop)
            stored = self._ask([self.name(q) for q in looked])
            for slot in reversed(looked):
                capacity -= self.name(slot) not in stored
                if capacity < 0:
                    self._cursor = slot + 1
                    return
            stop = looked.start
        self._cursor = 0

    def next(self, first: int, limit: int) -> int | None:
        """The next slot to play, from `first` (those before are over) and below `limit`; None while there is none."""
        self._cursor = max(self._cursor, first)
        while self._cursor < limit:
            slot = self._cursor
            self._cursor += 1
            if slot not in self._looked:
                self._looked = range(slot, min(limit, slot + _LOOK))
                self._stored = self._buffer.stored([self.name(q) for q in self._looked])
            if self.name(slot) in self._stored:
                continue
            if self._share(slot) == self._seat.index:
                return slot
            self._passed.append(slot)
            if len(self._passed) > 16 * _LOOK:
                self._forget(first)
        return self._left_behind(first)

    def open(self, slots: Sequence[int]) -> set[int]:
        """Those of `slots` that are neither stored nor made needless by the others of their share."""
        shares = {(self.batch(q), self._share(q)) for q in slots}
        names = {self.name(q): q for share in shares for q in self._of(*share)}
        stored = {names[name] for name in self._ask(names)}
        full = {share for share in shares if len(stored.intersection(self._of(*share))) >= self._quota(share[1])}
        return {q for q in slots if q not in stored and (self.batch(q), self._share(q)) not in full}

    def whole(self, batch: int) -> bool:
        """All that the batch needs is stored."""
        slots = range(batch * self.candidates, (batch + 1) * self.candidates)
        return len(self._ask([self.name(q) for q in slots])) >= self._groups

    def _left_behind(self, first: int) -> int | None:
        """A slot passed over because it was another's, whose explorer is gone."""
        vacant = {i for i in range(self._workers) if i != self._seat.index and self._seat.vacant(i)}
        if not vacant:
            return None
        self._forget(first)
        for slot in self._passed:
            if self._share(slot) in vacant:
                self._passed.remove(slot)
                return slot
        return None

    def _forget(self, first: int) -> None:
        missing = self.open([q for q in self._passed if q >= first])
        self._passed = [q for q in self._passed if q in missing]

    def _share(self, slot: int) -> int:
        return slot % self.candidates % self._workers

    def _of(self, batch: int, share: int) -> range:
        return range(batch * self.candidates + share, (batch + 1) * self.candidates, self._workers)

    def _quota(self, share: int) -> int:
        return len(range(share, self._groups, self._workers))

    def _ask(self, names: Collection[str]) -> set[str]:
        return self._buffer.stored(list(names)) if names else set()
