"""Which policy version samples which batch, and how far explorers may run ahead.

Knows numbers and the weights it was offered; neither explorer nor trainer, nor how weights travel. Batch s is what
training step s learns from; version v is the policy after v training steps. Invariants: without `staleness` batch s is
sampled by exactly `version_for(s)`, whatever the speed of the parts; with it no batch is begun that is further ahead
of the newest version than the bound.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..config import SyncConfig


def version_for(step: int, sync: SyncConfig) -> int:
    """Policy version (training steps done) that must sample batch `step`, counted from 0, where `staleness` is None.

    With interval k and offset d this is k * floor(max(0, step - d) / k): k=1, d=0 is strictly on-policy, k=1, d=1 is
    one step off, larger k reuses one version for k batches.

    >>> [version_for(s, SyncConfig(interval=1, offset=1)) for s in range(4)]
    [0, 0, 1, 2]
    >>> [version_for(s, SyncConfig(interval=2, offset=0)) for s in range(5)]
    [0, 0, 2, 2, 4]
    """
    return sync.interval * (max(0, step - sync.offset) // sync.interval)


def horizon(version: int, sync: SyncConfig) -> int:
    """Batches that may have been begun when `version` is the newest there is: those before this number.

    >>> [horizon(v, SyncConfig(interval=2, offset=1)) for v in (0, 2, 4)]
    [3, 5, 7]
    >>> horizon(100, SyncConfig(staleness=1))
    102
    """
    if sync.staleness is None:
        return sync.offset + sync.interval * (version // sync.interval + 1)
    return version + sync.staleness + 1


def published(version: int, sync: SyncConfig) -> bool:
    """Explorers get this version."""
    return version % sync.interval == 0


class Synchronizer:
    """The versions that one explorer knows of, and the weights of those it still needs. For one event loop."""

    def __init__(self, sync: SyncConfig) -> None:
        self._sync = sync
        self._weights: dict[int, Any] = {}
        self._changed = asyncio.Event()
        self.newest = -1
        """The newest version offered, or -1."""

    @property
    def horizon(self) -> int:
        """See `horizon`; 0 before anything was offered."""
        return horizon(self.newest, self._sync) if self.newest >= 0 else 0

    def offer(self, version: int, weights: Any) -> None:
        """From here on `version` can be sampled with. One older than the newest is taken as a trainer's that was
        resumed: it is in force, and what it has not made yet is forgotten."""
        if version < self.newest or self._sync.staleness is not None:
            self._weights.clear()
        self._weights[version] = weights
        self.newest = version
        self._changed.set()

    def choose(self, step: int) -> tuple[int, Any]:
        """(v, weights) to sample batch `step` with; older ones are forgotten.

        v is the newest version with `staleness`; else exactly `version_for(step)`, but for the first batches after a
        resume, when only the checkpoint's is there. Asked before anything was offered, it raises KeyError.
        """
        wanted = version_for(step, self._sync) if self._sync.staleness is None else self.newest
        found = min((v for v in self._weights if v >= wanted), default=self.newest)
        for old in [v for v in self._weights if v < found]:
            del self._weights[old]
        return found, self._weights[found]

    async def changed(self, seconds: float) -> None:
        """Wait for the next offer, no longer than `seconds`."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
