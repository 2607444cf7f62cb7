"""Several engines as one: each request goes to the least busy one, an episode stays with its engine.

Knows policies and how they fail; not what they are. New weights go to one engine after the other, and what is asked
meanwhile to the others. Invariants: while two engines or more serve, no request waits for weights; one that failed to
take them is asked nothing until it has.

| an engine                                                    | what follows                                          |
|--------------------------------------------------------------|-------------------------------------------------------|
| fails `STRIKES` calls in a row, or leaves them all unanswered | it is taken out; its episodes go to others           |
| has been out for `PAUSE` seconds                             | it gets one call, and is back if it answers           |
| fails to take new weights                                    | it is out until it takes the next ones                |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from .base import ModelError

if TYPE_CHECKING:
    import torch

    from ..types import Completion
    from .base import Policy, Prompt, Puller, Sampling, Sleeper
    from .collective import Sender

STRIKES = 3
PAUSE = 60.0
SILENCE = 10.0
"""Seconds without any answer after which a call that its caller gives up counts against the engine."""


@dataclass(slots=True, eq=False)
class _Member:
    engine: Policy
    running: int = 0
    sessions: set[str] = field(default_factory=set)
    strikes: int = 0
    out_since: float | None = None
    answered: float = 0.0
    current: bool = True
    """Took the newest weights."""
    taking: bool = False
    """Is taking them just now."""

    def usable(self, now: float) -> bool:
        probe = self.out_since is not None and now - self.out_since >= PAUSE and not self.running
        return self.current and (self.out_since is None or probe)


class Router:
    """Implements `Policy` over engines of the same model."""

    def __init__(self, engines: Sequence[Policy]) -> None:
        if not engines:
            raise ValueError("a router needs at least one engine")
        first = engines[0]
        self.name, self.tokenizer = first.name, first.tokenizer
        self.context = min(engine.context for engine in engines)
        self._members = [_Member(engine) for engine in engines]
        self._seat: dict[str, _Member] = {}

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Raises what the engine raises, and ModelError where none is left."""
        member = self._choose(session)
        began = time.monotonic()
        member.running += 1
        try:
            completion = await member.engine.complete(prompt, sampling, session=session)
        except ModelError:
            self._strike(member)
            raise
        except asyncio.CancelledError:
            silent_since = max(began, member.answered)
            if time.monotonic() - silent_since >= SILENCE:
                self._strike(member)
            raise
        finally:
            member.running -= 1
        member.answered, member.strikes, member.out_since = time.monotonic(), 0, None
        return completion

    def release(self, session: str) -> None:
        member = self._seat.pop(session, None)
        if member is not None:
            member.sessions.discard(session)
            member.engine.release(session)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """One engine after the other; all sample with these weights on return. Raises ValueError where the weights fit
        none, ModelError where none could take them."""
        named = list(weights)

        async def give(_: int, engine: Policy) -> int:
            await engine.update(iter(named), version)
            return version

        await self._each(give)

    async def pull(self, sender: Sender, version: int) -> int:
        """See `Puller`; of the versions that they got the oldest."""

        async def take(index: int, engine: Policy) -> int:
            return await cast("Puller", engine).pull(sender.of(index), version)

        return min(await self._each(take))

    async def _each(self, change: Callable[[int, Policy], Awaitable[int]]) -> list[int]:
        """Weights for one engine after the other; the versions of those that took them."""
        versions, errors = [], []
        for index, member in enumerate(self._members):
            member.taking = True
            try:
                versions.append(await change(index, member.engine))
                member.current = True
            except ModelError as error:
                errors.append(error)
                member.current = False
                self._dismiss(member)
            finally:
                member.taking = False
        if not versions:
            raise errors[0]
        return versions

    async def sleep(self) -> None:
        """All of them; see `Sleeper`."""
        for member in self._members:
            await cast("Sleeper", member.engine).sleep()

    async def close(self) -> None:
        await asyncio.gather(*(member.engine.close() for member in self._members))

    def _choose(self, session: str) -> _Member:
        now = time.monotonic()
        usable = [member for member in self._members if member.usable(now)]
        if not usable:
            raise ModelError(f"none of the {len(self._members)} engines of '{self.name}' answers")
        usable = [member for member in usable if not member.taking] or usable
        seated = self._seat.get(session)
        if seated in usable:
            return seated
        # An engine whose turn for a trial has come goes first: without a call it could not come back.
        member = min(usable, key=lambda m: (m.out_since is None, m.running, len(m.sessions)))
        if seated is not None:
            self.release(session)
        self._seat[session] = member
        member.sessions.add(session)
        return member

    def _strike(self, member: _Member) -> None:
        member.strikes += 1
        if member.strikes >= STRIKES:
            self._dismiss(member)

    def _dismiss(self, member: _Member) -> None:
        """Take it out. Its episodes choose anew at their next call, since their seat is not usable any more."""
        member.out_since = time.monotonic()
