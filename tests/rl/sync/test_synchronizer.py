"""Which version samples which batch, and how far explorers may run ahead, for any numbers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rl.config import SyncConfig
from harness.rl.sync.synchronizer import Synchronizer, horizon, published, version_for


@given(st.integers(0, 500), st.integers(1, 10), st.integers(0, 10))
def test_a_version_is_never_from_the_future_and_never_older_than_promised(
    step: int, interval: int, offset: int
) -> None:
    sync = SyncConfig(interval=interval, offset=offset)
    version = version_for(step, sync)
    assert 0 <= version <= step
    assert step - version < interval + offset
    assert published(version, sync)


@given(st.integers(0, 500))
def test_strictly_on_policy_and_one_step_off(step: int) -> None:
    assert version_for(step, SyncConfig()) == step
    assert version_for(step, SyncConfig(interval=1, offset=1)) == max(0, step - 1)


@given(st.integers(0, 60), st.integers(1, 10), st.integers(0, 10))
def test_a_batch_may_begin_exactly_when_its_version_is_there(version: int, interval: int, offset: int) -> None:
    sync = SyncConfig(interval=interval, offset=offset)
    begun = [s for s in range(200) if version_for(s, sync) <= version]
    assert begun == list(range(horizon(version, sync)))


@given(st.integers(0, 500), st.integers(0, 10))
def test_with_a_bound_no_batch_begins_beyond_it(version: int, bound: int) -> None:
    ahead = horizon(version, SyncConfig(staleness=bound)) - 1 - version
    assert ahead == bound


def offered(sync: SyncConfig, *versions: int) -> Synchronizer:
    it = Synchronizer(sync)
    for version in versions:
        it.offer(version, f"w{version}")
    return it


def test_each_batch_gets_its_own_version_though_newer_ones_are_there() -> None:
    it = offered(SyncConfig(interval=2), 0, 2, 4)
    assert [it.choose(s) for s in (0, 1, 2, 4)] == [(0, "w0"), (0, "w0"), (2, "w2"), (4, "w4")]


def test_with_a_bound_the_newest_version_serves() -> None:
    it = offered(SyncConfig(staleness=2), 0, 1, 2)
    assert it.choose(0) == (2, "w2")
    assert it.horizon == 5


def test_after_a_resume_the_oldest_weights_there_are_serve() -> None:
    it = offered(SyncConfig(interval=1, offset=1), 10)
    assert it.choose(10) == (10, "w10")


def test_a_trainer_that_went_back_is_followed() -> None:
    it = offered(SyncConfig(), 8, 9, 10, 7)
    assert (it.newest, it.horizon) == (7, 8)
    assert it.choose(7) == (7, "w7")


@pytest.mark.parametrize("offers", [True, False])
def test_waiting_ends_with_an_offer_or_with_its_time(offers: bool) -> None:
    async def scene() -> None:
        it = Synchronizer(SyncConfig())
        waiting = asyncio.create_task(it.changed(60 if offers else 0.01))
        await asyncio.sleep(0)
        if offers:
            it.offer(0, None)
        await waiting

    asyncio.run(scene())
