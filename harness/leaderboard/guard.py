"""No run trains on what it, or a board, is scored on.

Knows a configuration and the boards there are. Invariant: a training split of which every task can be looked at shares
no task with what is scored, by id or by content; of one without end, a part is looked at (ENDS and DRAWN tasks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from harness.envs.base import Task
from harness.envs.errors import UserError
from harness.envs.registry import world_class

from ..config import RunConfig
from .board import all_boards, expected_tasks
from .overlap import clashes

WHOLE: Final = 100_000
"""Splits up to this length are looked through from end to end."""
ENDS, DRAWN = 2000, 2000
"""Of a longer one: so many from its beginning, and so many drawn."""


def refuse_contamination(config: RunConfig) -> None:
    """Raises UserError where the run would train on a task that it, or a board of the same world, scores."""
    scored = list(_scored(config))
    for where, tasks in _trained(config):
        clash = next(clashes(_looked_at(tasks), (task for _, task in scored)), None)
        if clash is not None:
            task, same = clash
            who = next(name for name, other in scored if other.key == same.key)
            raise UserError(
                f"{where}: would train on {task.key}, which is {who}"
                + (f" ({same.key})" if same.key != task.key else "")
                + ". A score on it would say nothing; choose another split, or other options."
            )


def _scored(config: RunConfig) -> Iterator[tuple[str, Task]]:
    env = config.env
    held_out = world_class(env.name).tasks(env.eval_split, **env.options)
    for task in expected_tasks(env.name, env.eval_split, env.options, min(config.eval.n, len(held_out))):
        yield f"scored by this run (env.eval_split={env.eval_split})", task
    for board in all_boards():
        if board.card.env == env.name:
            with suppress(UserError):  # its data is not on this machine, so nobody trains on it here
                for task in board.tasks:
                    yield f"a task of the board '{board.name}'", task


def _trained(config: RunConfig) -> Iterator[tuple[str, Sequence[Task]]]:
    env, world = config.env, world_class(config.env.name)
    yield f"env.split={env.split}", world.tasks(env.split, **env.options)
    if config.warmup.episodes and config.warmup.options:
        options: dict[str, Any] = {**env.options, **config.warmup.options}
        yield "warmup.options", world.tasks(env.split, **options)


def _looked_at(tasks: Sequence[Task]) -> Iterator[Task]:
    if len(tasks) <= WHOLE:
        yield from (tasks[i] for i in range(len(tasks)))
        return
    yield from (tasks[i] for i in range(ENDS))
    draw = Random(0)
    yield from (tasks[draw.randrange(len(tasks))] for _ in range(DRAWN))
