"""Routing between engines that answer, fail, hang, and do not take new weights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
import torch

from harness.agents.models import router
from harness.agents.models.base import ModelError, Prompt, Sampling
from harness.agents.models.router import STRIKES, Router
from harness.agents.types import Completion

PROMPT = Prompt(messages=(), tokens=(1,))


class Engine:
    """A policy of one word, that can be told to fail or to hang."""

    tokenizer = None
    context = 8

    def __init__(self, name: str) -> None:
        self.name, self.version = name, 0
        self.failing: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.released: list[str] = []
        self.asked: Counter[str] = Counter()
        self.running = self.busiest = 0

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        self.asked[session] += 1
        self.running += 1
        self.busiest = max(self.busiest, self.running)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        if self.failing:
            raise self.failing
        return Completion(tokens=(), logprobs=(), text=self.name, finish="stop", version=self.version)

    def release(self, session: str) -> None:
        self.released.append(session)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        if self.failing:
            raise self.failing
        assert dict(weights).keys() == {"w"}
        self.version = version

    async def close(self) -> None:
        self.name = "closed"


async def ask(model: Router, session: str) -> str:
    return (await model.complete(PROMPT, Sampling(), session=session)).text


def pair() -> tuple[Engine, Engine, Router]:
    a, b = Engine("a"), Engine("b")
    return a, b, Router([a, b])


def test_episodes_are_spread_and_stay() -> None:
    async def work() -> None:
        a, b, model = pair()
        first = await asyncio.gather(*(ask(model, str(i)) for i in range(10)))
        assert Counter(first) == {"a": 5, "b": 5}
        assert (a.busiest, b.busiest) == (5, 5)
        for _ in range(3):
            assert await asyncio.gather(*(ask(model, str(i)) for i in range(10))) == first
        for i in range(10):
            model.release(str(i))
        model.release("nobody")
        assert len(a.released) == len(b.released) == 5

    asyncio.run(work())


def test_a_new_episode_goes_where_least_is_running() -> None:
    async def work() -> None:
        a, _, model = pair()
        a.open.clear()
        waiting = [asyncio.create_task(ask(model, f"w{i}")) for i in range(2)]  # one on each
        await asyncio.sleep(0.01)
        assert [await ask(model, f"s{i}") for i in range(4)] == ["b"] * 4
        a.open.set()
        assert sorted(await asyncio.gather(*waiting)) == ["a", "b"]

    asyncio.run(work())


def test_an_engine_that_fails_is_taken_out_and_its_episodes_move(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        a, _, model = pair()
        assert (await ask(model, "1"), await ask(model, "2")) == ("a", "b")
        a.failing = ModelError("broken")
        for _ in range(STRIKES):
            with pytest.raises(ModelError, match="broken"):
                await ask(model, "1")
        assert await ask(model, "1") == "b"
        assert "1" in a.released
        assert [await ask(model, f"new{i}") for i in range(5)] == ["b"] * 5
        monkeypatch.setattr(router, "PAUSE", 0.0)  # its time for a trial has come
        with pytest.raises(ModelError, match="broken"):
            await ask(model, "x")
        a.failing = None
        assert await ask(model, "y") == "a"
        monkeypatch.undo()
        assert {*await asyncio.gather(*(ask(model, f"more{i}") for i in range(8)))} == {"a", "b"}

    asyncio.run(work())


def test_one_failure_among_answers_is_forgiven() -> None:
    async def work() -> None:
        a = Engine("a")
        model = Router([a])
        for _ in range(3 * STRIKES):
            a.failing = ModelError("once")
            with pytest.raises(ModelError, match="once"):
                await ask(model, "1")
            a.failing = None
            assert await ask(model, "1") == "a"

    asyncio.run(work())


def test_an_engine_that_stops_answering_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(model: Router, session: str) -> str:
        async with asyncio.timeout(0.02):
            return await ask(model, session)

    async def work() -> None:
        a, _, model = pair()
        assert await ask(model, "1") == "a"
        a.open.clear()
        for _ in range(STRIKES):
            with pytest.raises(TimeoutError):
                await late(model, "1")
        assert a.asked["1"] == STRIKES + 1
        with pytest.raises(TimeoutError):  # not silent for long enough yet: it may only be busy
            await late(model, "1")
        monkeypatch.setattr(router, "SILENCE", 0.01)
        for _ in range(STRIKES):
            with pytest.raises(TimeoutError):
                await late(model, "1")
        assert await ask(model, "1") == "b"

    asyncio.run(work())


def test_weights_reach_all_and_who_does_not_take_them_is_not_asked() -> None:
    weights: Any = {"w": torch.zeros(1)}

    async def work() -> None:
        a, b, model = pair()
        assert (await ask(model, "1"), await ask(model, "2")) == ("a", "b")
        await model.update(iter(weights.items()), 1)
        assert (a.version, b.version) == (1, 1)
        a.failing = ModelError("died")
        await model.update(iter(weights.items()), 2)
        a.failing = None
        assert [await ask(model, "1") for _ in range(3)] == ["b"] * 3
        await model.update(iter(weights.items()), 3)
        assert (a.version, b.version) == (3, 3)
        a.failing = b.failing = ModelError("all dead")
        with pytest.raises(ModelError, match="all dead"):
            await model.update(iter(weights.items()), 4)
        with pytest.raises(ModelError, match="none of the 2 engines"):
            await ask(model, "1")
        b.failing = ValueError("does not fit")
        with pytest.raises(ValueError, match="does not fit"):
            await model.update(iter(weights.items()), 5)
        await model.close()
        assert (a.name, b.name) == ("closed", "closed")

    asyncio.run(work())


class Slow(Engine):
    """Takes new weights for a while, and answers nobody meanwhile; counts who would have to wait."""

    taking = waited = 0

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        self.waited += self.taking
        return await super().complete(prompt, sampling, session=session)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        self.taking = 1
        await asyncio.sleep(0.06)
        self.version, self.taking = version, 0


def test_a_client_that_asks_every_50_ms_never_waits_for_twenty_updates() -> None:
    async def work() -> tuple[list[Slow], list[int]]:
        engines, versions = [Slow("a"), Slow("b")], []
        model = Router(engines)

        async def client() -> None:
            for i in range(10**6):
                answer = await model.complete(PROMPT, Sampling(), session=f"s{i % 3}")
                versions.append(answer.version)
                await asyncio.sleep(0.05)

        asking = asyncio.create_task(client())
        for version in range(1, 21):
            await model.update([], version)
        asking.cancel()
        return engines, versions

    engines, versions = asyncio.run(work())
    assert [e.waited for e in engines] == [0, 0]
    assert all(e.asked for e in engines)
    assert [e.version for e in engines] == [20, 20]
    assert len(set(versions)) > 1
    assert all(later >= earlier - 1 for earlier, later in pairwise(versions))
