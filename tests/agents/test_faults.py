"""Faults on purpose end in the outcomes that are theirs, and touch no other episode (cases C20, C21, C17)."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from harness.agents.config import AgentConfig, LimitsConfig
from harness.agents.models.base import Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Outcome, Trajectory
from harness.envs.base import Task
from harness.envs.config import Faults
from harness.envs.echo import Echo
from harness.envs.faults import struck
from harness.envs.host import HostPool

ENDS = {
    "hang": Outcome.TIMEOUT,
    "error": Outcome.ENV_ERROR,
    "exit": Outcome.ENV_ERROR,
    "lost": Outcome.ENV_ERROR,
}
FAULTS = Faults(hang=0.04, error=0.06, exit=0.05, lost=0.05, garbage=0.1, slow=0.05, slow_seconds=0.1, seed=5)


def fate(task: Task) -> list[str | None]:
    """What strikes the answers of an episode that the expert plays: the reset, and each step."""
    world = Echo()
    observation, info = world.reset(options={"task": task})
    past, found = [task.key], [struck(FAULTS, [task.key])]
    for _ in range(2):
        past.append(world.expert().act(observation, info)[1])
        found.append(struck(FAULTS, past))
        observation, *_, info = world.step(past[-1])
    return found


def expected(task: Task) -> Outcome:
    return next((ENDS[kind] for kind in fate(task) if kind in ENDS), Outcome.DONE)


def play(tasks: list[Task], faults: Faults, limits: LimitsConfig) -> list[Trajectory]:
    async def go() -> list[Trajectory]:
        hosts = HostPool("echo", size=4, step_seconds=3, faults=faults)
        stream = rollouts(
            [Job(task=task) for task in tasks],
            hosts=hosts,
            agent=partial(make, AgentConfig(prompt="plain"), hosts.spec),
            model=ScriptedModel.expert(Echo, tasks),
            limits=limits,
            sampling=Sampling(seed=0),
            in_flight=4,
        )
        try:
            return [trajectory async for trajectory in stream]
        finally:
            await hosts.close()

    return asyncio.run(go())


@pytest.mark.slow
def test_every_episode_ends_as_its_own_faults_say_and_the_others_win() -> None:
    # A hanging reset would be waited for as long as a process may take to start.
    tasks = [task for task in Echo.tasks("train")[:60] if fate(task)[0] != "hang"]
    wanted = {task.key: expected(task) for task in tasks}
    assert {Outcome.TIMEOUT, Outcome.ENV_ERROR, Outcome.DONE} == set(wanted.values())
    assert {kind for task in tasks for kind in fate(task)} == {*ENDS, "garbage", "slow", None}
    played = play(tasks, FAULTS, LimitsConfig(episode_retries=0, failures_in_row=1000))
    assert {t.task.key: t.outcome for t in played} == wanted
    assert all(t.reward == 1.0 for t in played if t.scored)  # garbage and waiting cost no reward
    assert all(t.error for t in played if not t.scored)
    assert Counter(wanted.values())[Outcome.DONE] > 20
