"""Lists of tasks that are made when they are looked at.

Knows no world: a world gives a function from index to task. Invariant: the same index gives the same task for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from .base import Task, TextEnv
from .errors import UnknownName, UserError

ENDLESS = 2**31 - 1
"""Length of a split whose tasks are generated without end; an index still fits everywhere."""


class LazyTasks(Sequence[Task]):
    """`length` tasks, each made by `make(index)` when asked for.

    >>> tasks = LazyTasks(3, lambda i: Task(env="echo", split="train", id=str(i), seed=i))
    >>> [task.seed for task in tasks[1:]]
    [1, 2]
    """

    def __init__(self, length: int, make: Callable[[int], Task]) -> None:
        self._indices = range(length)
        self._make = make

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> LazyTasks: ...
    def __getitem__(self, index: int | slice) -> Task | LazyTasks:
        if isinstance(index, slice):
            part = LazyTasks(0, self._make)
            part._indices = self._indices[index]
            return part
        return self._make(self._indices[index])


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file. Raises UserError, with the line, on what is not one JSON object a line."""
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{path}, line {number}: not JSON: {error.msg}.") from error
            if not isinstance(row, dict):
                raise UserError(f"{path}, line {number}: expected one JSON object a line, got {type(row).__name__}.")
            rows.append(row)
    return rows


def tasks_of(world: type[TextEnv], split: str, options: Mapping[str, Any] | None = None) -> Sequence[Task]:
    """The tasks of a split, asked for on behalf of a person. Raises UserError on a split or option that is not there,
    whether or not the world looks at that itself."""
    check_choice(world.world.id, split, world.world.splits)
    try:
        return world.tasks(split, **(options or {}))
    except TypeError as error:
        raise UserError(f"the world '{world.world.id}' does not take these options: {error}.") from None


def check_choice(
    world: str, split: str, splits: Sequence[str], options: Iterable[str] = (), known: Iterable[str] = ()
) -> None:
    """Raises UnknownName for a split that a world does not have, or for the first option that it does not know."""
    if split not in splits:
        raise UnknownName(f"split of {world}", split, splits)
    for name in options:
        if name not in set(known):
            raise UnknownName(f"option of {world}", name, known)
