"""Which task a group plays.

Knows nothing of episodes. Invariant: a pure function of the seed and the group's number, so a resumed run plays the
tasks that it would have played.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from harness.envs.base import Task

SHUFFLED = 100_000
"""Task lists up to this length are played in shuffled passes; longer ones are drawn from at random."""


def task_at(tasks: Sequence[Task], position: int, seed: int) -> Task:
    """The task of number `position`, counted from 0: each pass over a short list plays every task once, in an order of
    its own."""
    return tasks[_index(len(tasks), position, seed)]


def _index(length: int, position: int, seed: int) -> int:
    if length > SHUFFLED:
        return random.Random(f"{seed}/{position}").randrange(length)
    one_pass, place = divmod(position, length)
    return _order(length, one_pass, seed)[place]


@lru_cache(maxsize=4)
def _order(length: int, one_pass: int, seed: int) -> list[int]:
    order = list(range(length))
    random.Random(f"{seed}/pass {one_pass}").shuffle(order)
    return order
