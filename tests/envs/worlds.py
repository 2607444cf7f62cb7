"""Worlds that go wrong when told to: `hang`, `raise`, `exit`, `kill`, `print`, `grader`, or `reward X`.

`Bad` runs in worker processes, `BadThread` in threads, `BadPlace` in place.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from harness.envs.base import Task, TextEnv, WorldSpec
from harness.envs.errors import GraderError, UserError
from harness.envs.tasks import LazyTasks


class Bad(TextEnv):
    world = WorldSpec(id="bad", description="goes wrong", max_steps=50, isolation="process")
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.episodes = 0

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
        return LazyTasks(100, lambda i: Task(env="bad", split=split, id=str(i), seed=i, data={"at_reset": ""}))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.episodes += 1
        task = (options or {})["task"]
        if task.data["at_reset"]:
            self._do(task.data["at_reset"])
        return f"task {task.id}", {"pid": os.getpid(), "episodes": self.episodes}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"did {action}", self._do(action), action == "end", False, {"kinds": {"b", "a"}}

    def _do(self, action: str) -> Any:
        match action.split():
            case ["hang"]:
                time.sleep(600)
            case ["raise"]:
                raise ValueError("a bug\nin two lines")
            case ["exit"]:
                os._exit(3)
            case ["leave"]:
                raise SystemExit(4)
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["print"]:
                print("noise on stdout")
            case ["grader"]:
                raise GraderError("cannot tell")
            case ["user"]:
                raise UserError("mend this")
            case ["reward", "none"]:
                return None
            case ["reward", number]:
                return float(number)
        return 0.0


class BadThread(Bad):
    world = WorldSpec(id="bad", description="goes wrong", max_steps=50, isolation="thread")


class BadPlace(Bad):
    world = WorldSpec(id="bad", description="goes wrong", max_steps=50, isolation="none")


class Unmade(TextEnv):
    world = WorldSpec(id="unmade", description="cannot be made", max_steps=1)

    def __init__(self) -> None:
        raise RuntimeError("no such display")
