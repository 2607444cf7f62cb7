"""Worlds that are broken on purpose, one fault each; `harness env check` must name it.

Each is `Sound` but for one thing: a world that asks for a colour's opposite, single step, with an expert.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from harness.envs.base import AnyText, Task, TextEnv, WorldSpec
from harness.envs.spelling import plain
from harness.envs.tasks import LazyTasks

OPPOSITES = {"red": "green", "blue": "orange", "yellow": "purple", "black": "white", "light": "dark", "hot": "cold"}


class Sound(TextEnv):
    """Nothing is wrong with it."""

    world = WorldSpec(
        id="sound", description="opposites", max_steps=3, instructions="Say it.", isolation="none", cloneable=True
    )
    action_space = AnyText(list(OPPOSITES.values()))

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
        lane = cls.world.splits.index(split)
        return LazyTasks(1000, lambda i: Task(env=cls.world.id, split=split, id=str(i), seed=2 * i + lane))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        rng = Random(seed)
        self.asked = rng.choice(list(OPPOSITES))
        self.number = rng.randrange(10_000)
        self.turn = 0
        return f"{self.number}: what is the opposite of {self.asked}?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        right = self.right(action)
        return "Yes." if right else "No.", float(right), right or self.turn == 3, False, {}

    def right(self, action: str) -> bool:
        return plain(action) == OPPOSITES[self.asked]

    def expert(self) -> Any:
        return self

    def act(self, observation: str, info: Any) -> tuple[str, str]:
        return "", OPPOSITES[self.asked]


class DrawsAnew(Sound):
    """Observations that the seed does not decide."""

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(**given)
        return f"{random.random()} {observation}", info


class HashSeed(Sound):
    """The order of a set of texts reaches the observation: the same in one process, another in the next."""

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(**given)
        return f"{observation} One of: {', '.join(set(OPPOSITES.values()))}", info


class OneTask(Sound):
    """All tasks are one."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return super().reset(seed=0, options=options)


class Remembers(Sound):
    """What was said in one episode is held against the next."""

    def __init__(self) -> None:
        self.said = 0

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.said += 1
        observation, *rest = super().step(action)
        return (f"{observation} You have spoken {self.said} times.", *rest)  # type: ignore[return-value]


class Grows(Sound):
    """Keeps every episode."""

    kept: ClassVar[list[bytearray]] = []

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        self.kept.append(bytearray(100_000))
        return super().reset(**given)


class Opens(Sound):
    """Opens a file at each reset."""

    kept: ClassVar[list[Any]] = []

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        self.kept.append(Path(__file__).open())  # noqa: SIM115 - the fault
        return super().reset(**given)


class Spawns(Sound):
    """Leaves a process behind with each world."""

    def __init__(self) -> None:
        self.child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


class Shares(Sound):
    """Keeps the episode in the module."""

    state: ClassVar[dict[str, Any]] = {}

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(**given)
        self.state["asked"] = self.asked
        return observation, info

    def right(self, action: str) -> bool:
        return plain(action) == OPPOSITES[self.state["asked"]]


class Races(Sound):
    """Safe in turn, not in threads: the answer lies in the class while it is compared."""

    lent: ClassVar[str] = ""

    def right(self, action: str) -> bool:
        type(self).lent = OPPOSITES[self.asked]
        time.sleep(0.001)
        return plain(action) == self.lent


class HalfCloned(Sound):
    """The copy shares the episode's state."""

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        self.turns = [0]
        return super().reset(**given)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns[0] += 1
        observation, *rest = super().step(action)
        return (f"{self.turns[0]} {observation}", *rest)  # type: ignore[return-value]

    def clone(self) -> Any:
        other = type(self)()
        vars(other).update(vars(self))
        return other


class RaisesOnJson(Sound):
    """Parses what it should refuse."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action.startswith("{"):
            json.loads(action)
        return super().step(action)


class HangsOnLength(Sound):
    """Long numbers keep it for ever."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        while len(action) > 50_000 and action.startswith("9"):
            time.sleep(0.1)
        return super().step(action)


class Exits(Sound):
    """Ends the process on control characters."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if "\x1b" in action:
            os._exit(3)
        return super().step(action)


class Overpays(Sound):
    """More than it declares."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return (observation, 2 * reward, *rest)  # type: ignore[return-value]


class NotANumber(Sound):
    """nan where the answer is wrong."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return (observation, reward or float("nan"), *rest)  # type: ignore[return-value]


class ReadsReward(Sound):
    """Takes the agent's word for it (case C16)."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            reward = min(1.0, max(0.0, float(action)))
        except ValueError:
            return super().step(action)
        return "Noted.", 0.0 if reward != reward else reward, True, False, {}


class PaysForNothing(Sound):
    """An empty answer counts: it is in every answer."""

    def right(self, action: str) -> bool:
        return plain(action) in OPPOSITES[self.asked]


class TakesAnyOf(Sound):
    """The right answer somewhere in a list of all counts."""

    def right(self, action: str) -> bool:
        return OPPOSITES[self.asked] in plain(action).split()


class Mistaken(Sound):
    """Its expert is wrong about one colour."""

    def act(self, observation: str, info: Any) -> tuple[str, str]:
        return "", "yellow" if self.asked == "black" else OPPOSITES[self.asked]


class Pedantic(Sound):
    """Compares letter by letter, spaces and all."""

    def right(self, action: str) -> bool:
        return action == OPPOSITES[self.asked]


class Evaluates(Sound):
    """Hands the action to the interpreter."""

    def right(self, action: str) -> bool:
        try:
            return bool(eval(action, {}) == OPPOSITES[self.asked])
        except Exception:
            return super().right(action)


class Reads(Sound):
    """Shows any file that is asked for."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action.startswith("cat ") and Path(action[4:]).is_file():
            return Path(action[4:]).read_text(), 0.0, False, False, {}
        return super().step(action)


class GivesAway(Sound):
    """The answer rides in info."""

    world = WorldSpec(id="sound", description="opposites", max_steps=1, isolation="none")

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        observation, _ = super().reset(**given)
        return observation, {"gold": OPPOSITES[self.asked]}


class SameTasks(Sound):
    """Held-out tasks are the training tasks."""

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
        return LazyTasks(100, lambda i: Task(env="sound", split=split, id=str(i), seed=i))


class WrongShape(Sound):
    """Gymnasium's old four values."""

    def step(self, action: str) -> Any:
        return super().step(action)[:4]


class OddInfo(Sound):
    """Progress in words, tools without a schema, and a value that no process boundary lets through."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        *rest, _ = super().step(action)
        return (*rest, {"progress": "half", "tools": [{"name": "x"}], "lock": threading.Lock()})  # type: ignore[return-value]


class LocksItself(Sound):
    """Declares worker processes, and one process keeps the others out."""

    world = WorldSpec(id="sound", description="opposites", max_steps=3, isolation="process")

    def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(**given)
        own = Path(os.environ["BROKEN_FOLDER"], "lock")
        try:
            taken = own.read_text() not in ("", str(os.getpid()))
        except FileNotFoundError:
            taken = False
        own.write_text(str(os.getpid()))
        time.sleep(0.05)
        return observation + (" (busy)" if taken or own.read_text() != str(os.getpid()) else ""), info
