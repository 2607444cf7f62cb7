"""Many episodes side by side, for evaluation and for training alike.

Knows jobs and how to play them; not what trajectories are for. Invariant: each job gives exactly one trajectory, unless
the same failure comes so often in a row that everything stops, with one UserError that names it.

| who           | does                                          | waits for                           |
|---------------|-----------------------------------------------|-------------------------------------|
| `in_flight`   | take the next job, lease a host, play, put    | a host; room in the queue, which is |
| workers       | the trajectory in the queue                   | as long as there are workers        |
| the caller    | takes trajectories as they finish             | the queue                           |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.envs.errors import UserError

from .chat import History
from .config import LimitsConfig
from .play import pause, play
from .types import Outcome, Trajectory

if TYPE_CHECKING:
    from harness.envs.base import Task
    from harness.envs.host import HostPool

    from .base import Agent
    from .models.base import Model, Sampling

AGAIN = frozenset({Outcome.ENV_ERROR, Outcome.MODEL_ERROR, Outcome.GRADER_ERROR, Outcome.TIMEOUT})
"""Outcomes after which the episode is played again, `limits.episode_retries` times at most."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt at one task."""

    task: Task
    attempt: int = 0


class Episodes:
    """Plays jobs, any number side by side: one trajectory a job, with further tries where something broke."""

    def __init__(
        self,
        *,
        hosts: HostPool,
        agent: Callable[[], Agent],
        model: Model,
        limits: LimitsConfig,
        history: History = "keep",
    ) -> None:
        self._hosts, self._agent, self._model, self._limits, self._history = hosts, agent, model, limits, history
        self._row = _Row(limits.failures_in_row, model.name, hosts.spec.id)

    async def play(self, job: Job, sampling: Sampling) -> Trajectory:
        """`sampling.seed` is the run's (see `play`). The metric `episode_retries` says how often the episode was
        played again; its seeds are the same each time, since it was not the draw that failed. Cancelling the asyncio
        task gives a CANCELLED trajectory, or CancelledError while a host is awaited. Raises UserError after
        `limits.failures_in_row` identical failures one after another.
        """
        for again in range(self._limits.episode_retries + 1):
            async with self._hosts.lease() as host:
                trajectory = await play(
                    job.task,
                    host=host,
                    agent=self._agent(),
                    model=self._model,
                    limits=self._limits,
                    sampling=sampling,
                    attempt=job.attempt,
                    history=self._history,
                )
            if trajectory.outcome not in AGAIN or again == self._limits.episode_retries:
                break
            await asyncio.sleep(pause(again))
        trajectory = replace(trajectory, metrics={**trajectory.metrics, "episode_retries": again})
        self._row.see(trajectory)
        return trajectory


async def rollouts(
    jobs: Iterable[Job],
    *,
    hosts: HostPool,
    agent: Callable[[], Agent],
    model: Model,
    limits: LimitsConfig,
    sampling: Sampling,
    in_flight: int,
    history: History = "keep",
) -> AsyncGenerator[Trajectory, None]:
    """Trajectories in the order in which they finish. `jobs` is read as it is needed, so it may be without end.

    Each is played as `Episodes.play` says, and what that raises is raised. Closing the iterator (`aclosing`, where the
    loop may be left early) cancels what is in flight.
    """
    if in_flight < 1:
        raise UserError(f"at least one episode must be in flight, got {in_flight}.")
    waiting: Iterator[Job] = iter(jobs)
    done: asyncio.Queue[Trajectory | BaseException | None] = asyncio.Queue(maxsize=in_flight)
    episodes = Episodes(hosts=hosts, agent=agent, model=model, limits=limits, history=history)

    async def work() -> None:
        try:
            for job in waiting:
                trajectory = await episodes.play(job, sampling)
                if trajectory.outcome is Outcome.CANCELLED:
                    return  # only closing the iterator cancels, and then nobody reads on
                await done.put(trajectory)
        except Exception as error:  # carried over to the caller, who reads the queue
            await done.put(error)
        else:
            await done.put(None)

    workers = [asyncio.create_task(work()) for _ in range(in_flight)]
    try:
        running = in_flight
        while running:
            item = await done.get()
            if isinstance(item, Trajectory):
                yield item
            elif item is None:
                running -= 1
            else:
                raise item
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class _Row:
    """Counts identical failures one after another; numbers in a message do not make it another one."""

    def __init__(self, most: int, model: str, world: str) -> None:
        self._most, self._model, self._world = most, model, world
        self._kind = ""
        self._length = 0

    def see(self, trajectory: Trajectory) -> None:
        """Raises UserError when the row is full."""
        if trajectory.scored or trajectory.outcome is Outcome.CANCELLED:
            self._length = 0
            return
        kind = _NUMBER.sub("#", f"{trajectory.outcome} {trajectory.error}")
        self._length = self._length + 1 if kind == self._kind else 1
        self._kind = kind
        if self._length >= self._most:
            raise UserError(
                f"{self._length} episodes one after another ended in {trajectory.outcome}: {trajectory.error} "
                f"(model '{self._model}', world '{self._world}', last task {trajectory.task.key}). "
                "Mend the cause and start again; limits.failures_in_row sets how many are borne."
            )
