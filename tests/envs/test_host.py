"""Holding worlds: in place, in threads, in processes; and whatever they do, the others play on (case C21)."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.envs.base import Task
from harness.envs.echo import Echo
from harness.envs.errors import GraderError, UserError, WorldError, WorldTimeout
from harness.envs.host import Host, HostPool, InPlaceHost, ProcessHost, ThreadHost, open_host

WORLDS = Path(__file__).with_name("worlds.py")


@pytest.fixture(autouse=True)
def _find_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(WORLDS.parent))
    monkeypatch.setenv("PYTHONPATH", str(WORLDS.parent))  # for the workers


def task(number: int = 0, at_reset: str = "") -> Task:
    return Task(env="bad", split="train", id=str(number), seed=number, data={"at_reset": at_reset})


KINDS = {"in place": "worlds:BadPlace", "thread": "worlds:BadThread", "process": "worlds:Bad"}


def test_the_declared_isolation_chooses_the_host() -> None:
    assert isinstance(open_host("echo"), InPlaceHost)
    assert isinstance(open_host("worlds:BadThread"), ThreadHost)
    assert isinstance(open_host("worlds:Bad"), ProcessHost)


@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
def test_a_fault_is_named_and_the_host_plays_on(name: str) -> None:
    async def play() -> None:
        host = open_host(name, step_seconds=20)
        for action, fault, message in [
            ("raise", WorldError, "^ValueError: a bug in two lines$"),
            ("leave", WorldError, "4"),
            ("grader", GraderError, "cannot tell"),
            ("user", UserError, "mend this"),
            ("reward nan", WorldError, "nan is not finite"),
            ("reward inf", WorldError, "inf is not finite"),
            ("reward 1.5", WorldError, r"1.5 is outside of the declared range \[0, 1\]"),
            ("reward -0.5", WorldError, "-0.5 is outside"),
            ("reward none", WorldError, "step must give .* got .str, NoneType, bool, bool, dict."),
        ][:: 2 if name == "worlds:Bad" else 1]:  # a worker process takes its second to start
            with pytest.raises(fault, match=message):  # noqa: PT012 - either call may be the one that fails
                await host.reset(task(at_reset="" if fault is not UserError else action))
                await host.step(action)
            observation, _ = await host.reset(task(7))
            assert observation == "task 7"
            assert await host.step("end") == ("did end", 0.0, True, False, {"kinds": info_kinds(name)})
        await host.close()

    asyncio.run(play())


def info_kinds(name: str) -> Any:
    return ["a", "b"] if name == "worlds:Bad" else {"a", "b"}  # plain data crosses a process boundary


@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
def test_the_sum_of_rewards_is_checked_not_only_each(name: str) -> None:
    async def play() -> None:
        host = open_host(name, step_seconds=20)
        await host.reset(task())
        assert (await host.step("reward 0.75"))[1] == 0.75
        with pytest.raises(WorldError, match=r"sum of rewards 1\.25"):
            await host.step("reward 0.5")
        await host.reset(task())
        assert (await host.step("reward 0.5"))[1] == 0.5
        await host.close()

    asyncio.run(play())


@pytest.mark.parametrize("name", KINDS.values(), ids=KINDS.keys())
def test_a_step_without_an_episode_is_refused(name: str) -> None:
    async def play() -> None:
        host = open_host(name, step_seconds=20)
        with pytest.raises(WorldError, match="call reset first"):
            await host.step("end")

    asyncio.run(play())


def test_a_world_that_cannot_be_made_is_a_world_error() -> None:
    async def play() -> None:
        host = open_host("worlds:Unmade", step_seconds=20)
        with pytest.raises(WorldError, match=r"^RuntimeError: no such display$"):
            await host.reset(task())
        await host.close()

    asyncio.run(play())


def test_what_is_sure_to_wait_for_nothing_needs_no_thread() -> None:
    async def play() -> None:
        host = open_host("math", step_seconds=20)
        gold = Task(env="math", split="test", id="0", data={"question": "?", "answer": r"\frac{1}{2}", "kind": "own"})
        before = threading.active_count()
        for answer, reward in (("answer 0.5", 1.0), ("answer 3", 0.0), ("no idea", 0.0)):
            await host.reset(gold)
            assert (await host.step(answer))[1] == reward
        assert threading.active_count() == before
        await host.reset(gold)
        assert (await host.step(r"answer \sin(\pi/6)"))[1] == 1.0
        assert threading.active_count() > before  # this one takes algebra
        await host.close()

    asyncio.run(play())


def test_a_late_thread_is_left_behind() -> None:
    async def play() -> None:
        host = open_host("worlds:BadThread", step_seconds=0.2)
        await host.reset(task())
        with pytest.raises(WorldTimeout, match=r"no answer within 0\.2 s"):
            await host.step("hang")
        assert (await host.reset(task(3)))[0] == "task 3"
        await host.close()

    asyncio.run(play())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_one_hangs_one_raises_one_exits_and_the_others_play_on() -> None:
    """Case C21, with a fourth that is killed and a fifth that writes to stdout."""

    async def episode(pool: HostPool, number: int, action: str) -> tuple[str, int]:
        pid = 0
        async with pool.lease() as host:
            try:
                _, info = await host.reset(task(number))
                pid = info["pid"]
                for _ in range(20):
                    await host.step(action)
                observation = (await host.step("end"))[0]
            except WorldTimeout:
                return "late", pid
            except WorldError as error:
                return str(error), pid
        return observation, pid

    async def play() -> None:
        pool = HostPool("worlds:Bad", size=6, step_seconds=3)
        actions = ["hang", "raise", "exit", "kill", "print", "look"]
        first = await asyncio.gather(*(episode(pool, i, action) for i, action in enumerate(actions)))
        assert [said for said, _ in first] == [
            "late",
            "ValueError: a bug in two lines",
            "bad: step: process exited with code 3",
            "bad: step: process was killed by signal SIGKILL",
            "did end",
            "did end",
        ]
        assert all(gone(pid) for _, pid in first[:4])
        second = await asyncio.gather(*(episode(pool, i, "look") for i in range(6)))
        assert [said for said, _ in second] == ["did end"] * 6
        old, new = {pid for _, pid in first}, {pid for _, pid in second}
        assert len(old & new) == 2  # those that did nothing wrong are reused
        await pool.close()
        assert all(gone(pid) for pid in new)

    asyncio.run(play())


def test_a_cancelled_episode_leaves_no_answer_for_the_next() -> None:
    async def play() -> None:
        host: Host = open_host("worlds:Bad", step_seconds=20)
        _, info = await host.reset(task())
        step = asyncio.create_task(host.step("hang"))
        await asyncio.sleep(0.1)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert gone(info["pid"])
        assert (await host.reset(task(5)))[0] == "task 5"
        await host.close()

    asyncio.run(play())


def test_a_worker_is_reused_also_by_a_later_event_loop() -> None:
    host = open_host("worlds:Bad", step_seconds=20)
    first = asyncio.run(host.reset(task()))[1]
    second = asyncio.run(host.reset(task()))[1]
    assert first["pid"] == second["pid"] != os.getpid()
    assert (first["episodes"], second["episodes"]) == (1, 2)
    asyncio.run(host.close())


def test_a_pool_of_worlds_in_place_makes_one_each_for_those_out_at_once() -> None:
    async def play() -> None:
        pool = HostPool("worlds:BadPlace", size=1)
        seen: set[int] = set()
        barrier = asyncio.Barrier(20)

        async def episode() -> None:
            async with pool.lease() as host:
                await host.reset(task())
                seen.add(id(host))
                await barrier.wait()  # all are out at once, whatever `size` says

        for _ in range(3):
            await asyncio.gather(*(episode() for _ in range(20)))
        assert len(seen) == 20
        await pool.close()

    asyncio.run(play())


def test_a_pool_of_processes_keeps_to_its_size() -> None:
    async def play() -> None:
        pool = HostPool("worlds:Bad", size=2, step_seconds=20)
        pids: set[int] = set()

        async def episode(number: int) -> None:
            async with pool.lease() as host:
                pids.add((await host.reset(task(number)))[1]["pid"])
                await host.step("look")

        await asyncio.gather(*(episode(i) for i in range(8)))
        assert len(pids) == 2
        await pool.close()

    asyncio.run(play())


def test_an_expert_plays_echo_through_a_host() -> None:
    async def play() -> None:
        host = open_host("echo")
        expert, total, done = Echo().expert(), 0.0, False
        observation, info = await host.reset(Echo.tasks("train", rounds=7)[3])
        while not done:
            observation, reward, done, _, info = await host.step(expert.act(observation, info)[1])
            total += reward
        assert total == 1.0

    asyncio.run(play())
