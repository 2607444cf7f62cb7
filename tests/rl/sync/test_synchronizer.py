"""Which version samples which batch, for any numbers."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from harness.rl.config import SyncConfig
from harness.rl.sync.synchronizer import Synchronizer, version_for


@given(st.integers(0, 500), st.integers(1, 10), st.integers(0, 10))
def test_a_version_is_never_from_the_future_and_never_older_than_promised(
    step: int, interval: int, offset: int
) -> None:
    sync = SyncConfig(interval=interval, offset=offset)
    version = version_for(step, sync)
    assert 0 <= version <= step
    assert step - version < interval + offset
    assert Synchronizer(sync).wanted(version)


@given(st.integers(0, 500))
def test_strictly_on_policy_and_one_step_off(step: int) -> None:
    assert version_for(step, SyncConfig()) == step
    assert version_for(step, SyncConfig(interval=1, offset=1)) == max(0, step - 1)


def test_an_explorer_waits_for_its_version_and_gets_that_one() -> None:
    async def scene() -> list[tuple[int, str]]:
        sync = Synchronizer(SyncConfig(interval=2))
        await sync.publish(0, "w0")
        first = await sync.weights(0)
        waiting = asyncio.create_task(sync.weights(2))
        await asyncio.sleep(0)
        assert not waiting.done()
        await sync.publish(2, "w2")
        await sync.publish(4, "w4")
        return [first, await waiting]

    assert asyncio.run(scene()) == [(0, "w0"), (2, "w2")]


def test_after_a_resume_the_oldest_weights_there_are_serve() -> None:
    async def scene() -> tuple[int, str]:
        sync = Synchronizer(SyncConfig(interval=1, offset=1))
        await sync.publish(10, "checkpoint")
        return await sync.weights(version_for(10, SyncConfig(interval=1, offset=1)))

    assert asyncio.run(scene()) == (10, "checkpoint")
