"""Several engines as one: load, prefixes, and a client that never waits for weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from harness.agents.models.base import Message, Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.types import Completion
from harness.rl.explorer.engines import Engines

PROMPT = Prompt(messages=(Message(role="user", content="?"),), tokens=())


class Slow(ScriptedModel):
    """Takes new weights for a while, and answers nobody meanwhile; notes who had to wait."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(lambda prompt, sampling, session: "yes", seconds=seconds)
        self.busy = asyncio.Lock()
        self.waited = self.asked = 0
        self.most = 0
        self._now = 0

    async def update(self, weights: Iterable[tuple[str, Any]], version: int) -> None:
        async with self.busy:
            await asyncio.sleep(0.03)
            self.version = version

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        self.asked += 1
        self.waited += self.busy.locked()
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            async with self.busy:
                pass
            return await super().complete(prompt, sampling, session=session)
        finally:
            self._now -= 1


async def ask(model: Engines, session: str) -> Completion:
    return await model.complete(PROMPT, Sampling(), session=session)


def test_a_client_never_waits_for_twenty_updates_of_two_engines() -> None:
    async def scene() -> tuple[list[Slow], list[int]]:
        engines = [Slow(), Slow()]
        model, versions = Engines(engines), []

        async def client() -> None:
            for i in range(10**6):
                versions.append((await ask(model, f"s{i % 3}")).version)
                await asyncio.sleep(0.005)

        asking = asyncio.create_task(client())
        for version in range(1, 21):
            await model.update([], version)
        asking.cancel()
        return engines, versions

    engines, versions = asyncio.run(scene())
    assert [e.waited for e in engines] == [0, 0]
    assert all(e.asked for e in engines)
    assert [e.version for e in engines] == [20, 20]
    assert len(set(versions)) > 10
    assert all(later >= earlier - 1 for earlier, later in pairwise(versions))


def test_requests_are_spread_by_load_and_an_episode_stays_where_its_prefix_is() -> None:
    async def scene() -> None:
        engines = [Slow(0.02), Slow(0.02), Slow(0.02)]
        model = Engines(engines)
        await asyncio.gather(*(ask(model, f"s{i}") for i in range(12)))
        assert [e.most for e in engines] == [4, 4, 4]
        homes = dict(model._home)
        await asyncio.gather(*(ask(model, f"s{i}") for i in range(12)))
        assert model._home == homes
        for i in range(12):
            model.release(f"s{i}")
        assert model._home == {}

    asyncio.run(scene())


def test_one_engine_alone_serves_all_the_same() -> None:
    async def scene() -> None:
        model = Engines([Slow()])
        updating = asyncio.create_task(model.update([], 1))
        await asyncio.sleep(0)
        assert (await ask(model, "s")).text == "yes"
        await updating

    asyncio.run(scene())
