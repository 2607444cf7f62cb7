"""Explorers with real parts on echo; the test plays the trainer, which takes and offers the next version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.echo import Echo
from harness.load import load
from harness.rl.buffer.base import Buffer
from harness.rl.buffer.registry import open_buffer
from harness.rl.experience import ExperienceGroup
from harness.rl.explorer.explorer import Explorer, figures
from harness.rl.place import PartDied

from ..sync.near import Near

Plans = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make_tiny(folder, TinyConfig(layers=1, width=16, heads=1, kv_heads=1, mlp=16, context=256), Echo.texts(), seed=0)
    return folder


@pytest.fixture
def plans() -> Plans:
    small = ("env.name=echo", "agent.prompt=plain", "run.place=inline", "sampling.max_tokens=6", "warmup.stages=[]")
    return lambda *more: load("default", [*small, "explorer.groups=4", "explorer.group_size=2", *more])


class Scene:
    """Explorers that play, and what a trainer does to them."""

    def __init__(self, plan: RunConfig, base: Path, folder: Path) -> None:
        self.plan, self.url = plan, f"sqlite:///{folder / 'buffer.db'}"
        self.buffer: Buffer = open_buffer(self.url, plan.buffer, staleness=plan.sync.staleness)
        self.weights = dict(AutoModelForCausalLM.from_pretrained(base).state_dict())
        self.explorers = [Explorer(plan, base, self.url, i) for i in range(plan.explorer.workers)]
        self.playing = [asyncio.create_task(e.run()) for e in self.explorers]

    async def offer(self, version: int) -> None:
        for explorer in self.explorers:
            await explorer.offer(version, self.weights)

    async def take(self, step: int) -> list[ExperienceGroup]:
        while (groups := self.buffer.take(step, self.plan.explorer.groups, step)) is None:
            for task in self.playing:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)
        self.buffer.acknowledge(step)
        return groups

    async def calm(self) -> int:
        """Groups in the buffer once no explorer does anything any more."""
        stored = -1
        while stored < (stored := sum(self.buffer.counts().values())) or any(e._flights for e in self.explorers):
            await asyncio.sleep(0.3)
        return stored // self.plan.explorer.group_size

    async def end(self) -> dict[str, float]:
        await self.offer(self.plan.run.steps)
        await asyncio.gather(*self.playing)
        self.buffer.close()
        return figures([e.figures() for e in self.explorers])


def lags(groups: list[ExperienceGroup], step: int) -> set[int]:
    return {step - v for g in groups for e in g.experiences for v in e.versions}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("interval", "offset"), [(1, 0), (1, 1), (2, 1), (1, 3)])
def test_without_a_bound_every_batch_is_its_own(
    interval: int, offset: int, workers: int, plans: Plans, base: Path, tmp_path: Path
) -> None:
    plan = plans(f"sync.interval={interval}", f"sync.offset={offset}", "run.steps=5", f"explorer.workers={workers}")

    async def scene() -> None:
        it = Scene(plan, base, tmp_path)
        for step in range(5):
            if step % interval == 0:
                await it.offer(step)
            groups = await it.take(step)
            assert [g.group for g in groups] == [f"{step}/{i}" for i in range(4)]
            assert lags(groups, step) == {step - interval * (max(0, step - offset) // interval)}
        await it.end()

    asyncio.run(scene())


def test_the_engine_sleeps_before_its_batch_is_handed_over(plans: Plans, base: Path, tmp_path: Path) -> None:
    plan = plans("run.steps=3")

    async def scene() -> None:
        it = Scene(plan, base, tmp_path)
        (explorer,) = it.explorers
        whole: list[bool] = []

        class Bed:
            async def sleep(self) -> None:
                await asyncio.sleep(0.05)
                whole.append(explorer._slots.whole(len(whole)))

        explorer._sleeper = Bed()
        for step in range(3):
            await it.offer(step)
            await it.take(step)
            assert len(whole) > step, "the trainer has the batch, and the engine is awake"
        await it.end()
        assert not any(whole)

    asyncio.run(scene())


def test_a_bound_of_zero_with_two_explorers_does_not_stall(plans: Plans, base: Path, tmp_path: Path) -> None:
    """C12."""
    plan = plans("sync.staleness=0", "run.steps=3", "explorer.workers=2")

    async def scene() -> None:
        it = Scene(plan, base, tmp_path)
        for step in range(3):
            await it.offer(step)
            assert await it.calm() == 4 * (step + 1)
            assert lags(await it.take(step), step) == {0}
        await it.end()

    asyncio.run(scene())


def test_what_is_in_flight_is_bounded_and_what_is_too_old_is_played_anew(
    plans: Plans, base: Path, tmp_path: Path
) -> None:
    """C12 and C13: resumed at version 100 with a bound of 1; then the trainer runs away from what was played."""
    plan = plans("sync.staleness=1", "run.steps=110")

    async def scene() -> None:
        it = Scene(plan, base, tmp_path)
        await it.offer(100)
        assert await it.calm() == 2 * 4
        await it.offer(103)
        assert await it.calm() == 5 * 4 - 3 * 4 + 3 * 4
        groups = await it.take(103)
        assert lags(groups, 103) == {0}
        assert it.buffer.dropped() == 8
        await it.end()

    asyncio.run(scene())


@pytest.mark.parametrize("partial", [True, False])
def test_weights_come_in_the_middle_of_episodes_only_where_that_is_wanted(
    partial: bool, plans: Plans, base: Path, tmp_path: Path
) -> None:
    plan = plans(
        "sync.staleness=50", f"sync.partial={partial}", "run.steps=60", "explorer.groups=8", "model.slots=4",
        "sampling.max_tokens=40",
    )  # fmt: skip

    async def scene() -> set[bool]:
        it = Scene(plan, base, tmp_path)
        await it.offer(0)
        for version in range(1, 9):
            await asyncio.sleep(0.1)
            await it.offer(version)
        mixed = {e.versions[0] != e.versions[1] for g in await it.take(0) for e in g.experiences}
        await it.end()
        return mixed

    assert (True in asyncio.run(scene())) is partial


def test_the_first_complete_groups_make_the_batch_and_the_rest_is_given_up(
    plans: Plans, base: Path, tmp_path: Path
) -> None:
    plan = plans("explorer.oversample=1.5", "run.steps=2", "model.slots=6")

    async def scene() -> dict[str, float]:
        it = Scene(plan, base, tmp_path)
        for step in range(2):
            await it.offer(step)
            groups = await it.take(step)
            assert {int(g.group.split("/")[0]) for g in groups} == {step}
            assert await it.calm() == 4 * (step + 1)
        return await it.end()

    assert asyncio.run(scene())["groups_needless"] == 4


def test_back_pressure_holds_explorers_back(plans: Plans, base: Path, tmp_path: Path) -> None:
    plan = plans("sync.staleness=9", "run.steps=10", "buffer.bound=6")

    async def scene() -> None:
        it = Scene(plan, base, tmp_path)
        await it.offer(0)
        assert await it.calm() <= 6
        await it.take(0)
        assert 6 < await it.calm() <= 10
        await it.end()

    asyncio.run(scene())


def test_experiences_name_their_tokenizer(plans: Plans, base: Path, tmp_path: Path) -> None:
    async def scene() -> Any:
        it = Scene(plans("run.steps=1"), base, tmp_path)
        await it.offer(0)
        groups = await it.take(0)
        await it.end()
        return {e.lineage["tokenizer"] for g in groups for e in g.experiences}, it.explorers[0].tokenizer

    found, own = asyncio.run(scene())
    assert found == {own}


def test_an_explorer_that_weights_do_not_reach_counts_as_died(plans: Plans, base: Path, tmp_path: Path) -> None:
    async def scene() -> None:
        trainer, plan, url = Near(), plans("run.steps=2"), f"sqlite:///{tmp_path / 'buffer.db'}"
        buffer = open_buffer(url, plan.buffer)
        link = trainer.link(seconds=2)
        explorer = Explorer(plan, base, url, link=link)
        playing = asyncio.create_task(explorer.run())
        trainer.outlets.keep(0, AutoModelForCausalLM.from_pretrained(base).named_parameters(), 0, "cpu")
        await explorer.offer(0, None)
        while buffer.take(0, plan.explorer.groups, 0) is None:
            await asyncio.sleep(0.05)
        buffer.close()
        await link.listen(2)  # the trainer waits for another group from here on
        await explorer.offer(1, None)
        with pytest.raises(PartDied, match="version 1 did not get to explorer 0"):
            await playing

    asyncio.run(scene())
