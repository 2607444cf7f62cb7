"""Many episodes side by side (cases C15, C20, C21)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import ModelError, Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Outcome, Trajectory
from harness.envs.base import Task
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.envs.host import HostPool

DYING = """
import os, pathlib, time
from harness.envs.base import TextEnv, WorldSpec

class Dying(TextEnv):
    world = WorldSpec(id="dying", description="its process dies when told to", max_steps=3, isolation="process")

    def reset(self, *, seed=None, options=None):
        self.data = options["task"].data
        return "Hello.", {}

    def step(self, action):
        flag = pathlib.Path(self.data["flag"])
        if self.data["does"] == "die" or (self.data["does"] == "die once" and not flag.exists()):
            flag.touch()
            os._exit(3)
        if self.data["does"] == "hang":
            time.sleep(3600)
        if self.data["does"] == "raise":
            raise ValueError("a bug")
        return "Done.", 1.0, True, False, {}
"""

TASKS = Echo.tasks("train")
CONFIG = AgentConfig(prompt="plain")
NO_RETRY = LimitsConfig(call_retries=0, episode_retries=0, failures_in_row=1000)


def jobs(n: int) -> list[Job]:
    return [Job(task=TASKS[i // 4], attempt=i % 4) for i in range(n)]


def run(work: Iterable[Job], model: Any, *, in_flight: int = 4, limits: LimitsConfig = NO_RETRY) -> list[Trajectory]:
    async def go() -> list[Trajectory]:
        hosts = HostPool("echo", size=in_flight)
        stream = rollouts(
            work,
            hosts=hosts,
            agent=partial(make, CONFIG, hosts.spec),
            model=model,
            limits=limits,
            sampling=Sampling(seed=0),
            in_flight=in_flight,
        )
        try:
            return [trajectory async for trajectory in stream]
        finally:
            await hosts.close()

    return asyncio.run(go())


def key(t: Trajectory) -> tuple[str, int]:
    return t.task.key, t.attempt


class Counting(ScriptedModel):
    """An expert that says how many calls and episodes were open at a time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls = self.most = 0
        self.sessions: set[str] = set()

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Any:
        self.calls += 1
        self.sessions.add(session)
        self.most = max(self.most, len(self.sessions))
        return await super().complete(prompt, sampling, session=session)

    def release(self, session: str) -> None:
        self.sessions.discard(session)
        super().release(session)


def expert(**options: Any) -> Counting:
    model: Any = Counting.expert(Echo, [TASKS[i] for i in range(20)], **options)
    return model  # type: ignore[no-any-return]


def test_each_job_gives_one_trajectory_and_no_more_than_allowed_are_open() -> None:
    model = expert(seconds=0.001)
    played = run(jobs(30), model, in_flight=5)
    assert Counter(map(key, played)) == Counter((j.task.key, j.attempt) for j in jobs(30))
    assert {t.outcome for t in played} == {Outcome.DONE}
    assert {t.reward for t in played} == {1.0}
    assert 1 < model.most <= 5
    assert not model.sessions


def test_jobs_are_read_as_they_are_needed_and_closing_stops_all() -> None:
    read: list[int] = []

    def endless() -> Iterator[Job]:
        for i in count():
            read.append(i)
            yield Job(task=TASKS[i % 20], attempt=i)

    model = expert(seconds=0.001)

    async def go() -> int:
        hosts = HostPool("echo", size=3)
        stream = rollouts(
            endless(),
            hosts=hosts,
            agent=partial(make, CONFIG, hosts.spec),
            model=model,
            limits=NO_RETRY,
            sampling=Sampling(),
            in_flight=3,
        )
        async with aclosing(stream):
            async for _ in stream:
                if len(read) > 10:
                    break
        return len([t for t in asyncio.all_tasks() if t is not asyncio.current_task()])

    assert asyncio.run(go()) == 0
    assert len(read) < 20
    assert not model.sessions  # what was in flight has been released too


def test_seeds_do_not_depend_on_what_is_played_beside() -> None:
    def drawn(in_flight: int) -> dict[tuple[str, int], list[str]]:
        model = ScriptedModel(lambda prompt, sampling, session: f"Action: say {sampling.seed}")
        return {key(t): [turn.action for turn in t.turns] for t in run(jobs(12), model, in_flight=in_flight)}

    assert drawn(1) == drawn(7)


def test_a_lost_episode_is_played_again() -> None:
    calls: Counter[str] = Counter()

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        task = session.partition("#")[0]
        calls[task] += 1
        if calls[task] == 2:
            raise ModelError("hiccup")
        return "Action: say x"

    limits = LimitsConfig(call_retries=0, episode_retries=1)
    played = run([Job(task=TASKS[i]) for i in range(3)], ScriptedModel(script), limits=limits)
    assert [(t.outcome, len(t.turns), t.metrics["episode_retries"]) for t in played] == [(Outcome.DONE, 2, 1)] * 3
    calls.clear()
    lost = run([Job(task=TASKS[0])], ScriptedModel(script), limits=NO_RETRY)
    assert [(t.outcome, t.metrics["episode_retries"]) for t in lost] == [(Outcome.MODEL_ERROR, 0)]


def test_c15_the_same_failure_over_and_over_stops_everything_and_is_named() -> None:
    numbers = count()

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        raise ModelError(f"cannot reach http://10.0.0.1:8000 (call {next(numbers)})")

    limits = LimitsConfig(call_retries=0, episode_retries=0, failures_in_row=5)
    with pytest.raises(UserError, match=r"5 episodes one after another ended in model_error: cannot reach http://10"):
        run(jobs(100), ScriptedModel(script), limits=limits)
    assert next(numbers) < 20


def test_failures_between_successes_stop_nothing() -> None:
    numbers = count()

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        if next(numbers) % 3:
            return "Action: say x"
        raise ModelError("hiccup")

    limits = LimitsConfig(call_retries=0, episode_retries=0, failures_in_row=3)
    played = run(jobs(30), ScriptedModel(script), in_flight=1, limits=limits)
    assert Counter(t.outcome for t in played) == {Outcome.DONE: 15, Outcome.MODEL_ERROR: 15}


def test_a_users_mistake_ends_the_rollouts() -> None:
    def agent() -> Any:
        raise UserError("no such prompt")

    async def go() -> None:
        stream = rollouts(
            jobs(5),
            hosts=HostPool("echo", size=2),
            agent=agent,
            model=ScriptedModel(["x"]),
            limits=NO_RETRY,
            sampling=Sampling(),
            in_flight=2,
        )
        with pytest.raises(UserError, match="no such prompt"):
            await anext(stream)

    asyncio.run(go())


def test_nothing_in_flight_is_refused() -> None:
    with pytest.raises(UserError, match="at least one"):
        run(jobs(1), ScriptedModel(["x"]), in_flight=0)


def test_no_jobs_no_trajectories() -> None:
    assert run([], ScriptedModel(["x"])) == []


@pytest.mark.slow
def test_c20_c21_a_world_that_dies_hangs_or_raises_concerns_its_own_episode_alone(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    does = ["", "hang", "raise", "die", "die once", ""]
    work = [
        Job(task=Task(env="dying", split="train", id=str(i), data={"does": what, "flag": str(tmp_path / f"died{i}")}))
        for i, what in enumerate(does)
    ]

    async def go() -> list[Trajectory]:
        hosts = HostPool(str(tmp_path / "dying.py"), size=2, step_seconds=2.0)
        stream = rollouts(
            work,
            hosts=hosts,
            agent=partial(make, CONFIG, hosts.spec),
            model=ScriptedModel(lambda prompt, sampling, session: "Action: go"),
            limits=LimitsConfig(episode_retries=1),
            sampling=Sampling(),
            in_flight=3,
        )
        try:
            return [trajectory async for trajectory in stream]
        finally:
            await hosts.close()

    ends = {does[int(t.task.id)]: (t.outcome, t.metrics["episode_retries"]) for t in asyncio.run(go())}
    assert ends == {
        "": (Outcome.DONE, 0),
        "hang": (Outcome.TIMEOUT, 1),
        "raise": (Outcome.ENV_ERROR, 1),
        "die": (Outcome.ENV_ERROR, 1),
        "die once": (Outcome.DONE, 1),
    }
