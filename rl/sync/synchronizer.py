"""Which policy version samples which batch, and the weights of the versions that are still wanted.

Knows neither explorer nor trainer. Invariant: batch s is sampled by exactly version `version_for(s)`, so a run with
the same numbers has the same lags, whatever the speed of its parts.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..config import SyncConfig


def version_for(step: int, sync: SyncConfig) -> int:
    """Policy version (training steps done) that must sample batch `step`, counted from 0.

    With interval k and offset d this is k * floor(max(0, step - d) / k): k=1, d=0 is strictly on-policy, k=1, d=1 is
    one step off, larger k reuses one version for k batches.

    >>> [version_for(s, SyncConfig(interval=1, offset=1)) for s in range(4)]
    [0, 0, 1, 2]
    >>> [version_for(s, SyncConfig(interval=2, offset=0)) for s in range(5)]
    [0, 0, 2, 2, 4]
    """
    return sync.interval * (max(0, step - sync.offset) // sync.interval)


class Synchronizer:
    """Hands published weights to whoever waits for their version. For one event loop."""

    def __init__(self, sync: SyncConfig) -> None:
        self._sync = sync
        self._weights: dict[int, Any] = {}
        self._published = asyncio.Condition()

    def wanted(self, version: int) -> bool:
        """Some batch will be sampled by this version."""
        return version % self._sync.interval == 0

    async def publish(self, version: int, weights: Any) -> None:
        """`weights` may be the tensors themselves or a reference to where they are."""
        async with self._published:
            self._weights[version] = weights
            self._published.notify_all()

    async def weights(self, version: int) -> tuple[int, Any]:
        """(v, weights) of the oldest version v >= `version`, waiting for one; older ones are forgotten.

        v is `version` itself, but for the first batches after a resume, when only the checkpoint's is there.
        """
        async with self._published:
            await self._published.wait_for(lambda: any(v >= version for v in self._weights))
            for old in [v for v in self._weights if v < version]:
                del self._weights[old]
            found = min(self._weights)
            return found, self._weights[found]
