"""Several engines that serve as one policy.

Knows engines by their contract alone, wherever each lives. A new episode goes to the engine with the fewest running
requests, and stays there, since that one holds its prefix. New weights go to one engine after the other; requests of
the engine that is busy taking them go to the others meanwhile. Invariant: while there are two engines or more, no
request waits for weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.agents.models.base import Policy, Prompt, Sampling
from harness.agents.types import Completion

if TYPE_CHECKING:
    import torch


class Engines:
    """Implements `Policy` over others of one model; see the module."""

    def __init__(self, engines: Sequence[Policy]) -> None:
        """All engines must serve the same model; the first one's name, tokenizer and context count."""
        self._engines = tuple(engines)
        self.name, self.tokenizer, self.context = engines[0].name, engines[0].tokenizer, engines[0].context
        self._running = [0] * len(engines)
        self._home: dict[str, int] = {}
        self._updating: int | None = None

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        index = self._choose(session)
        self._running[index] += 1
        try:
            return await self._engines[index].complete(prompt, sampling, session=session)
        finally:
            self._running[index] -= 1

    def release(self, session: str) -> None:
        home = self._home.pop(session, None)
        if home is not None:
            self._engines[home].release(session)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """One engine after the other; all of them sample with these weights on return."""
        named = list(weights)
        for index, engine in enumerate(self._engines):
            self._updating = index
            try:
                await engine.update(iter(named), version)
            finally:
                self._updating = None

    async def close(self) -> None:
        for engine in self._engines:
            await engine.close()

    def _choose(self, session: str) -> int:
        home = self._home.get(session)
        free = [i for i in range(len(self._engines)) if i != self._updating or len(self._engines) == 1]
        if home in free:
            return home
        index = min(free, key=self._running.__getitem__)
        if home is not None:
            self._engines[home].release(session)
        self._home[session] = index
        return index
