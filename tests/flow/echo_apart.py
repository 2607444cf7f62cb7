"""Echo in worker processes, so that there are some to kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.envs.base import Task
from harness.envs.echo import Echo
from harness.envs.tasks import LazyTasks


class EchoApart(Echo):
    world = replace(Echo.world, id="echo-apart", isolation="process")

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
        tasks = super().tasks(split, **options)
        return LazyTasks(len(tasks), lambda i: replace(tasks[i], env="echo-apart"))
