"""ALFWorld for benchmarks/modes.py: answers come late when told to, and each episode's reward is drawn.

Drawn rewards make groups that differ, so that an untrained model gives the trainer as much work as a good one. Latency
is drawn from a log-normal distribution by task and visit, so that every mode waits for the same answers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from harness.envs.alfworld.world import ALFWorld
from harness.envs.base import Task
from harness.envs.tasks import LazyTasks


class LateAlfworld(ALFWorld):
    """`median` seconds a step (0: at once), `late` seconds or more in one step of a hundred."""

    world = replace(ALFWorld.world, id="late-alfworld", isolation="thread")
    visits: ClassVar[Counter[str]] = Counter()

    @classmethod
    def tasks(cls, split: str, *, median: float = 0.0, late: float = 0.0, **options: Any) -> Sequence[Task]:
        tasks = super().tasks(split, **options)

        def make(i: int) -> Task:
            return replace(tasks[i], env=cls.world.id, data={**tasks[i].data, "median": median, "late": late})

        return LazyTasks(len(tasks), make)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        task: Task = (options or {})["task"]
        self.visits[task.key] += 1
        self.draws = Random(f"{task.key}/{self.visits[task.key]}")
        self.reward = float(self.draws.random() < 0.5)
        self.median, self.late = float(task.data["median"]), float(task.data["late"])
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.median:
            # 2.326 deviations above the median lies one draw in a hundred
            time.sleep(self.median * (self.late / self.median) ** (self.draws.gauss() / 2.326))
        observation, _, _, truncated, info = super().step(action)
        reward, self.reward = self.reward, 0.0
        return observation, reward, False, truncated, info
