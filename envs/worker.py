"""The process that holds one isolated world: `python -m harness.envs.worker NAME FAULTS FD` (faults as JSON, or "").

Knows the parent's messages only: `["reset", task]`, `["step", action]`. Answers are `["ok", values]`, or the kind of
fault and one line: `["world" | "grader" | "user", text]`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from .child import packed, serve
from .errors import GraderError, UserError, WorldError, one_line
from .registry import world_class

if TYPE_CHECKING:
    import gymnasium


class Worker:
    """Makes its world at the first reset, so that a world which cannot be made is reported, not died of."""

    def __init__(self, name: str, faults: str = "") -> None:
        self._name, self._faults = name, faults
        self._world: gymnasium.Env[str, str] | None = None

    def answer(self, message: list[Any]) -> bytes:
        kind, value = message
        try:
            if self._world is None:
                self._world = self._make()
            if kind == "reset":
                from .base import Task

                task = Task(**value)
                return packed(["ok", self._world.reset(seed=task.seed, options={"task": task})])
            return packed(["ok", self._world.step(value)])
        except UserError as error:
            return packed(["user", str(error)])
        except GraderError as error:
            return packed(["grader", str(error)])
        except WorldError as error:
            return packed(["world", str(error)])
        except (Exception, SystemExit) as error:  # the process boundary: whatever the world raises goes over as a line
            return packed(["world", one_line(error)])

    def _make(self) -> gymnasium.Env[str, str]:
        world = world_class(self._name)()
        if not self._faults:
            return world
        from .config import Faults
        from .faults import Faulty

        return Faulty(world, Faults(**json.loads(self._faults)))


if __name__ == "__main__":
    serve(Worker(sys.argv[1], sys.argv[2]).answer, int(sys.argv[3]))
