"""Which groups are trained on first: a number for each, made of utilities.

Knows no store: stores keep the number and hand out the highest first, the oldest arrival among equals. Invariant: the
number is a pure function of utilities, uses and weights, so that taking a step back restores it exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..config import USES, BufferConfig
from ..experience import ExperienceGroup


def weights_of(config: BufferConfig) -> dict[str, float]:
    """{utility: weight} of the chosen strategy; empty where arrival alone decides."""
    if config.strategy == "priority":
        return dict(config.weights)
    return {} if config.reuse == 1 else {USES: -1.0}  # pass after pass


def utilities_of(group: ExperienceGroup) -> dict[str, float]:
    """What is known of a group whose rewards are all there: mean and spread of the rewards over attempts, oldest
    policy version, mean tokens."""
    if not group.experiences:
        return {}
    rewards = list({e.attempt: e.reward for e in group.experiences if e.reward is not None}.values())
    return {
        "reward_mean": float(np.mean(rewards)) if rewards else 0.0,
        "reward_std": float(np.std(rewards)) if rewards else 0.0,
        "version": float(min(e.versions[0] for e in group.experiences)),
        "length": float(np.mean([len(e) for e in group.experiences])),
    }


def priority(utilities: Mapping[str, float], uses: int, weights: Mapping[str, float]) -> float:
    """Weighted sum; a utility that the group lacks counts as 0.

    >>> priority({"reward_std": 0.5}, 2, {"reward_std": 1.0, "uses": -0.25})
    0.0
    """
    return sum(weight * (uses if name == USES else utilities.get(name, 0.0)) for name, weight in weights.items())
