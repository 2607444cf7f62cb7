"""The world under judgement: its tasks, and episodes of it that can be played again.

Knows the contract; not what is asked of it. Invariant: a script's replay depends on the script alone, never on a
player.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..base import Info, Task, TextEnv
from ..checked import checked_reset
from ..errors import WorldError
from ..novice import Novice
from ..registry import world_class
from .report import Finding, Level

SCRIPTS = 10
"""Tasks that are played again and again."""
FEWEST = 2
"""Of them in a slow world: one by the expert, one by a novice."""
LONGEST = 60
"""Steps of one of their episodes."""
SHOWN = 160
"""Characters of a text that a finding shows."""


@dataclass(frozen=True, slots=True)
class Script:
    """Actions to play a task with."""

    index: int
    """Number of the task in the first split."""
    actions: tuple[str, ...]


class Subject:
    """One world in this process."""

    def __init__(self, name: str, options: dict[str, Any], seconds: float) -> None:
        """`seconds`: after so long a check's loops end, with what they have. Raises UserError."""
        self.name, self.options, self.seconds = name, options, seconds
        self.type: type[TextEnv] = world_class(name)
        self.spec = self.type.world
        self.figures: dict[str, float] = {}
        self._episode = math.inf  # seconds of the quickest that was played

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """Of the first split."""
        return self.type.tasks(self.spec.splits[0], **self.options)

    def some(self, n: int, plays: int = 1) -> list[Task]:
        """The first n tasks; of a slow world as few, but two, as can be played `plays` times in the time of a check."""
        assert self.scripts  # they say how slow
        affordable = self.seconds / max(1e-9, plays * self._episode)
        return [self.tasks[i] for i in range(int(min(n, len(self.tasks), max(FEWEST, affordable))))]

    @cached_property
    def scripts(self) -> list[Script]:
        """Episodes of the expert and of a novice in turn, as they were played in a world of their own."""
        written: list[Script] = []
        deadline = Deadline(self.seconds / 4)  # a slow world has fewer: they are played some hundred times
        for i in range(min(SCRIPTS, len(self.tasks))):
            if deadline.over and i >= FEWEST:
                break
            written.append(self._write(i))
        return written

    def _write(self, index: int) -> Script:
        began, world, actions, task = time.monotonic(), self.type(), list[str](), self.tasks[index]
        try:
            observation, info = reset(world, task)
            player = (None if index % 2 else world.expert()) or Novice(self.type, index)
            for _ in range(min(self.spec.max_steps, LONGEST)):
                actions.append(player.act(observation, info)[1])
                observation, _, terminated, truncated, info = step(world, actions[-1])
                if terminated or truncated:
                    break
        finally:
            world.close()
        self._episode = min(self._episode, time.monotonic() - began)
        return Script(index, tuple(actions))

    @cached_property
    def shows_form(self) -> bool:
        """Whether anything tells how an action looks: an expert, a list of admissible ones, or examples."""
        world = self.type()
        info = reset(world, self.tasks[0])[1]
        world.close()
        examples = getattr(self.type.action_space, "examples", ())
        return self.type.has_expert() or bool(info.get("admissible") or info.get("tools") or examples)

    def replay(self, world: TextEnv, script: Script) -> Iterator[str]:
        """One line for the reset and for each step: all that a player would see."""
        yield _line(*reset(world, self.tasks[script.index]))
        for action in script.actions:
            answer = step(world, action)
            yield line_of(answer)
            if answer[2] or answer[3]:
                return

    @cached_property
    def usual(self) -> list[str]:
        """What the first script plays like."""
        return self.played(self.scripts[0])

    def played(self, script: Script) -> list[str]:
        """The script in a fresh world."""
        world = self.type()
        try:
            return list(self.replay(world, script))
        finally:
            world.close()

    def where(self, method: str) -> str:
        """File and line of one of the world's methods."""
        function = getattr(self.type, method)
        try:
            file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
        except (OSError, TypeError):
            return f"{self.type.__name__}.{method}"
        return f"{file}:{line} ({self.type.__name__}.{method})"

    def deadline(self) -> Deadline:
        """Starts this check's time."""
        return Deadline(self.seconds)


class Deadline:
    """Whether the time of a check is up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        return time.monotonic() > self._until


def reset(world: TextEnv, task: Task) -> tuple[str, dict[str, Any]]:
    """Starts a task as players do. Raises WorldError where the answer is malformed."""
    return checked_reset(world.reset(seed=task.seed, options={"task": task}))


def step(world: TextEnv, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """One action, with the reward as it is. Raises WorldError where the answer is malformed."""
    answer: Any = world.step(action)
    match answer:
        case (str() as observation, reward, terminated, truncated, dict() as info) if _is_number(reward):
            return observation, float(reward), bool(terminated), bool(truncated), info
    raise WorldError(f"step must give (text, reward, terminated, truncated, info), got {show(repr(answer))}")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _line(observation: str, info: dict[str, Any], more: str = "") -> str:
    known = {key: info[key] for key in Info.__annotations__ if key in info}
    return f"{more}{observation} {json.dumps(known, sort_keys=True, default=list)}"


def line_of(answer: tuple[str, float, bool, bool, dict[str, Any]]) -> str:
    """All that a player sees of a step, as one line."""
    observation, reward, terminated, truncated, info = answer
    return _line(observation, info, f"{reward!r} {terminated} {truncated} ")


def difference(one: Sequence[str], other: Sequence[str]) -> str:
    """Where two replays part, in words; empty where they are the same."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            near = slice(max(0, at - 30), at + 60)
            return f"{'reset' if not number else f'step {number}'}: {show(a[near])} against {show(b[near])}"
    if len(one) != len(other):
        return f"{len(one) - 1} steps against {len(other) - 1}"
    return ""


def show(text: str) -> str:
    """A text as one short line."""
    line = ascii(text) if any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in text) else f"'{text}'"
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}... ({len(text)} characters)"


def finding(check: str, level: Level, what: str, where: str = "", mend: str = "") -> Finding:
    """A finding, shorter to write."""
    return Finding(check=check, level=level, what=what, where=where, mend=mend)
