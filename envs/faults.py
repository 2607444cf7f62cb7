"""A world that fails on purpose: for tests of all that must survive worlds, and for users who want to see it.

Knows the contract alone. Invariant: whether an answer is struck depends on the seed, the task, and the actions so far,
never on time or on other episodes; so a run with faults can be repeated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Literal, NoReturn

import gymnasium

from .config import Faults

Kind = Literal["slow", "hang", "error", "exit", "garbage", "lost"]
KINDS: Final[tuple[Kind, ...]] = ("slow", "hang", "error", "exit", "garbage", "lost")
EXIT_CODE: Final = 3
GARBAGE: Final = (
    "",
    "\x00\x1b[2J\x07",
    '{"observation": "you',
    "\ufffd" * 40,
    "أنت في غرفة",
    "<|im_end|>",
    "x" * 50_000,
)


class InjectedFault(Exception):
    """Raised on purpose."""


class Faulty(gymnasium.Wrapper[str, str, str, str]):
    """Strikes a share of a world's answers. An ordinary Gymnasium wrapper.

    `hang` and `exit` end whatever process they are used in: behind `open_host` that is a worker process.
    """

    def __init__(self, env: gymnasium.Env[str, str], faults: Faults) -> None:
        super().__init__(env)
        self._faults = faults
        self._past: list[str] = []
        self._lost = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        task = (options or {}).get("task")
        self._past = [str(seed) if task is None else task.key]
        self._lost = False
        kind = self._strike()
        observation, info = self.env.reset(seed=seed, options=options)
        return (self._garbage() if kind == "garbage" else observation), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._past.append(action)
        if self._lost:
            raise ConnectionResetError("connection lost, on purpose")
        kind = self._strike()
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._garbage() if kind == "garbage" else observation, float(reward), terminated, truncated, info

    def _strike(self) -> Kind | None:
        match kind := struck(self._faults, self._past):
            case "slow":
                time.sleep(self._faults.slow_seconds)
            case "hang":
                _hang()
            case "exit":
                os._exit(EXIT_CODE)
            case "error":
                raise InjectedFault("on purpose")
            case "lost":
                self._lost = True
                raise ConnectionResetError("connection lost, on purpose")
        return kind

    def _garbage(self) -> str:
        return _random(self._faults, self._past, "garbage").choice(GARBAGE)


def struck(faults: Faults, past: Sequence[str]) -> Kind | None:
    """What strikes the answer to `past`: the key of the task, and the actions so far."""
    at = _random(faults, past, "kind").random()
    for kind in KINDS:
        at -= getattr(faults, kind)
        if at < 0:
            return kind
    return None


def _random(faults: Faults, past: Sequence[str], what: str) -> Random:
    return Random(f"{faults.seed}/{what}/" + "\0".join(past))


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)
