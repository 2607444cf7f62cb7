"""Faults come as often as asked for, the same each time, and as what they are named."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.config import Faults
from harness.envs.echo import Echo
from harness.envs.errors import WorldError, WorldTimeout
from harness.envs.faults import GARBAGE, KINDS, Faulty, InjectedFault, struck
from harness.envs.host import ProcessHost, open_host


def kinds(faults: Faults, tasks: int = 400) -> list[str | None]:
    """What strikes the resets of so many tasks."""
    return [struck(faults, [task.key]) for task in Echo.tasks("train")[:tasks]]


@given(st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 1000))
def test_rates_are_kept_and_draws_repeat(kind: str, rate: float, seed: int) -> None:
    faults = Faults(**{kind: rate}, seed=seed)
    found = kinds(faults)
    assert found == kinds(faults)
    assert set(found) <= {kind, None}
    assert abs(found.count(kind) / 400 - rate) < 0.15  # over five standard deviations


def test_all_at_once_share_the_answers() -> None:
    counts = Counter(kinds(Faults(slow=0.2, hang=0.2, error=0.2, exit=0.2, garbage=0.1, lost=0.1), 2000))
    assert set(counts) == set(KINDS)


def test_another_seed_strikes_others() -> None:
    assert kinds(Faults(error=0.5)) != kinds(Faults(error=0.5, seed=1))


def test_without_faults_nothing_changes() -> None:
    task = Echo.tasks("train")[0]
    plain, wrapped = Echo(), Faulty(Echo(), Faults())
    assert wrapped.reset(options={"task": task}) == plain.reset(options={"task": task})
    assert wrapped.step("say apple") == plain.step("say apple")


def test_an_error_is_raised_garbage_is_seen_and_a_lost_connection_stays_lost() -> None:
    with pytest.raises(InjectedFault):
        Faulty(Echo(), Faults(error=1)).reset(seed=1)
    junk = Faulty(Echo(), Faults(garbage=1))
    assert junk.reset(seed=1)[0] in GARBAGE
    observation, reward, *_ = junk.step("say apple")
    assert observation in GARBAGE
    assert reward == 0.0
    seed = next(s for s in range(100) if struck(Faults(lost=0.5, seed=s), ["1"]) is None)
    world = Faulty(Echo(), Faults(lost=0.5, seed=seed))
    world.reset(seed=1)
    with pytest.raises(ConnectionResetError):  # noqa: PT012 - one of them is struck
        for action in map(str, range(50)):
            world.step(action)
    for action in ("a", "b", "c"):
        with pytest.raises(ConnectionResetError):
            world.step(action)


@pytest.mark.slow
def test_behind_a_host_a_faulty_world_has_a_process_and_its_faults_are_world_errors() -> None:
    async def play() -> None:
        task = Echo.tasks("train")[0]
        for faults, fault, says in (
            (Faults(error=1), WorldError, "InjectedFault: on purpose"),
            (Faults(lost=1), WorldError, "ConnectionResetError"),
            (Faults(exit=1), WorldError, "exited with code 3"),
        ):
            host = open_host("echo", faults=faults)
            assert isinstance(host, ProcessHost)
            with pytest.raises(fault, match=says):
                await host.reset(task)
            await host.close()
        host = open_host("echo", faults=Faults(hang=0.5, seed=step_that_hangs()), step_seconds=0.5)
        await host.reset(task)
        with pytest.raises(WorldTimeout):
            await host.step("say apple")
        await host.close()

    asyncio.run(play())


def step_that_hangs() -> int:
    """A seed under which the reset answers and the first step does not."""
    key = Echo.tasks("train")[0].key
    for seed in range(100):
        faults = Faults(hang=0.5, seed=seed)
        if struck(faults, [key]) is None and struck(faults, [key, "say apple"]) == "hang":
            return seed
    raise AssertionError
