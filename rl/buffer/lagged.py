"""Rewards that come after their experience: which are missing, when a group has enough of them, what becomes of it.

Pure functions on groups and plain mappings; knows no store. Invariant: all sequences of an attempt have one reward; an
attempt whose reward never came is dropped and counted, and becomes no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..experience import Experience, ExperienceGroup
from .base import REWARD_EXPIRED

Rewards = Mapping[str, tuple[int, float | None]]
"""{experience key: (attempt, reward or None)}, of every experience of a group."""


def rewards_of(group: ExperienceGroup) -> dict[str, tuple[int, float | None]]:
    """Every experience's attempt and reward where one of them is missing; empty where all are known.

    Raises ValueError where one of the group's keys comes twice: a reward could not be told where to go.
    """
    if all(e.reward is not None for e in group.experiences):
        return {}
    found = {e.key: (e.attempt, e.reward) for e in group.experiences}
    if len(found) != len(group.experiences):
        raise ValueError(f"group '{group.group}' waits for rewards by key, and two of its experiences share one")
    return found


def missing(rewards: Rewards) -> int:
    """Attempts without a reward."""
    return len({attempt for attempt, reward in rewards.values() if reward is None})


def enough(rewards: Rewards, share: float) -> bool:
    """At least `share` (0 to 1) of the attempts have their reward."""
    attempts = len({attempt for attempt, _ in rewards.values()})
    return attempts - missing(rewards) >= math.ceil(share * attempts - 1e-9)


def unrewarded(group: ExperienceGroup, rewards: Rewards) -> list[Experience]:
    """Those whose reward is still to come."""
    return [e for e in group.experiences if e.key in rewards and rewards[e.key][1] is None]


def settled(group: ExperienceGroup, rewards: Rewards) -> ExperienceGroup:
    """The group as it is trained on: rewards in place, attempts without one dropped and counted."""
    if not rewards:
        return group
    kept = tuple(replace(e, reward=r) for e in group.experiences if (r := rewards[e.key][1]) is not None)
    dropped = Counter(group.dropped)
    if lost := missing(rewards):
        dropped[REWARD_EXPIRED] += lost
    return replace(group, experiences=kept, dropped=dict(dropped))


def finite(value: float) -> float:
    """`value` itself. Raises ValueError for what cannot be a reward."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"a reward is a finite number, not {value!r}")
    return float(value)
