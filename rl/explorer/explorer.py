"""Plays batches of groups and puts their experiences into the buffer.

Knows how to play and where to put; not who trains, nor when it may start (the loop says so). Invariants: a group that
was put is never played again; every attempt is accounted for, as experiences or as a count under its outcome.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.agents.models.base import Sampling
from harness.agents.models.registry import make_model
from harness.agents.play import turn_seed
from harness.agents.registry import make
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Trajectory
from harness.envs.host import HostPool
from harness.envs.registry import world_class

from ..buffer.sql import SqlBuffer
from ..config import Plan
from ..masking import group_of
from .curriculum import tasks_for

if TYPE_CHECKING:
    import torch


class Explorer:
    """One of `plan.explorer.workers`, each with an engine of its own: of every batch it plays its share of groups."""

    def __init__(self, plan: Plan, folder: Path, buffer_url: str, index: int) -> None:
        """`folder` holds the model to begin with, until `update` brings other weights."""
        self._plan, self._index = plan, index
        self._agent = replace(plan.agent, max_steps=plan.explorer.max_steps or plan.agent.max_steps)
        self._model = make_model(plan.model, folder)
        self._buffer = SqlBuffer(buffer_url)
        world = world_class(plan.env.name)
        self._success = world.world.success
        self._tasks = world.tasks(plan.env.split, **plan.env.options)
        self._hosts = HostPool(
            plan.env.name,
            size=os.cpu_count() or 1,
            step_seconds=plan.limits.step_seconds,
            faults=plan.env.faults,
        )

    def pid(self) -> int:
        """Of the process it lives in."""
        return os.getpid()

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """From here on, sample with these weights."""
        await self._model.update(weights.items(), version)

    async def explore(self, step: int) -> dict[str, float]:
        """Play this worker's share of batch `step`, less the groups that were put before a crash.

        Returns sums over the attempts that were played (see `figures`). Raises UserError where nothing can be played.
        """
        plan, size = self._plan, self._plan.explorer.group_size
        stored = self._buffer.groups_of(step)
        owner: dict[tuple[str, int], str] = {}
        jobs: list[Job] = []
        times: Counter[str] = Counter()
        for slot, task in enumerate(tasks_for(self._tasks, step, plan.explorer.groups, plan.run.seed)):
            first = times[task.key] * size  # a task that comes twice in a batch has two groups, each with its attempts
            times[task.key] += 1
            name = f"{step}/{slot}"
            if slot % plan.explorer.workers != self._index or name in stored:
                continue
            for attempt in range(first, first + size):
                owner[task.key, attempt] = name
                jobs.append(Job(task=task, attempt=attempt))
        sums: Counter[str] = Counter()
        groups: defaultdict[str, list[Trajectory]] = defaultdict(list)
        if not jobs:
            return {}
        playing = rollouts(
            jobs,
            hosts=self._hosts,
            agent=lambda: make(self._agent, self._hosts.spec),
            model=self._model,
            limits=plan.limits,
            sampling=self._sampling(step),
            in_flight=plan.model.slots,
        )
        async with aclosing(playing) as finished:
            async for trajectory in finished:
                sums.update(_sums(trajectory, self._success))
                name = owner[trajectory.task.key, trajectory.attempt]
                groups[name].append(trajectory)
                if len(groups[name]) == size:
                    self._buffer.put(step, [group_of(name, groups.pop(name), plan.algorithm.refusal_penalty)])
        return dict(sums)

    def _sampling(self, step: int) -> Sampling:
        sampling = self._plan.sampling
        return Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=turn_seed(self._plan.run.seed, "batch", step, 0),
        )


def _sums(trajectory: Trajectory, success: float) -> dict[str, float]:
    sums = {name: float(value) for name, value in trajectory.metrics.items()}
    sums["episodes"] = 1.0
    sums[f"outcome/{trajectory.outcome}"] = 1.0
    if trajectory.scored:
        sums["scored"] = 1.0
        sums["reward"] = trajectory.reward
        sums["success"] = float(trajectory.reward >= success)
    return sums


def figures(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of all workers' sums in one batch: reward and success as means over scored attempts, steps and the three kinds
    of seconds as means over all attempts, the rest (outcomes, retries, tokens, invalid answers) as counts."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part)
    if not sums:
        return {}
    means = {"reward": sums["scored"], "success": sums["scored"], "progress": sums["scored"]}
    means |= dict.fromkeys(("steps", "seconds_model", "seconds_world", "seconds_other"), sums["episodes"])
    return {name: total / means.get(name, 1.0) if means.get(name, 1.0) else 0.0 for name, total in sums.items()}
