"""From the rewards of a group's attempts to an advantage for each sampled token.

Knows rewards and masks only: no model, loss or buffer. Invariants: an attempt counts once, however many sequences it
left; an attempt that was lost is in no mean, deviation or denominator; advantages are 0.0 where the mask is False.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..experience import ExperienceGroup

Rewards = NDArray[np.float64]
Estimator = Callable[[Rewards], Rewards]
"""rewards_G of the attempts that count -> advantages_G."""

STD_EPSILON = 1e-6
"""Added to the deviation, as verl and Trinity-RFT do."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advantages:
    """A group with its advantages, and whether there is anything in it to learn."""

    group: ExperienceGroup
    """The same group, each experience with `advantages` set."""
    flat: bool
    """Every advantage is 0.0: the policy gradient of this group is zero, a trainer may leave it out."""


def centred(rewards_G: Rewards) -> Rewards:
    """float64[G]: reward minus the group's mean, in units of reward; exactly 0.0 where all rewards are equal.

    The advantage of Dr. GRPO (arXiv 2503.20783): GRPO's without its division by the deviation.

    >>> centred(np.array([1.0, 0.0, 1.0])).round(3).tolist()
    [0.333, -0.667, 0.333]
    """
    if len(rewards_G) == 0 or np.ptp(rewards_G) == 0.0:
        return np.zeros(len(rewards_G))
    return rewards_G - float(rewards_G.mean())


def standardized(rewards_G: Rewards) -> Rewards:
    """float64[G]: centred reward over (standard deviation + 1e-6), without unit (GRPO, arXiv 2402.03300).

    The deviation is the sample's (divided by G - 1), as in verl, Trinity-RFT and TRL; a group of one gives 0.0.
    """
    centred_G = centred(rewards_G)
    if not centred_G.any():
        return centred_G
    return centred_G / (float(rewards_G.std(ddof=1)) + STD_EPSILON)


def leave_one_out(rewards_G: Rewards) -> Rewards:
    """float64[G]: reward minus the mean of the *other* attempts (RLOO, arXiv 2402.14740), in units of reward.

    Equal to the centred reward times G / (G - 1). A group of one has no other, so its advantage is 0.0.
    """
    G = len(rewards_G)
    return centred(rewards_G) * (G / (G - 1)) if G > 1 else np.zeros(G)


def no_baseline(rewards_G: Rewards) -> Rewards:
    """float64[G]: the reward itself (REINFORCE, Williams 1992)."""
    return rewards_G.copy()


def with_advantages(group: ExperienceGroup, estimator: Estimator) -> Advantages:
    """Every experience of the group with float32[L] advantages: its attempt's, spread over its sampled tokens.

    Attempts are those that left experiences: what is only counted in `group.dropped` is in no statistic. Raises
    ValueError where a reward is not there yet, is not finite, or differs between two sequences of one attempt.
    """
    rewards: dict[int, float] = {}
    for e in group.experiences:
        if e.reward is None or not np.isfinite(e.reward):
            raise ValueError(f"{e.key}: reward {e.reward} cannot be trained on; wait for it, or drop the attempt")
        if rewards.setdefault(e.attempt, e.reward) != e.reward:
            raise ValueError(
                f"{e.key}: attempt {e.attempt} of {group.group} has rewards {rewards[e.attempt]} and {e.reward}; "
                "all sequences of one attempt carry the attempt's reward"
            )
    values = dict(zip(rewards, estimator(np.array(list(rewards.values()), np.float64)), strict=True))
    judged = tuple(
        e.with_advantages(np.where(e.mask, np.float32(values[e.attempt]), np.float32(0.0))) for e in group.experiences
    )
    return Advantages(group=replace(group, experiences=judged), flat=not any(values.values()))
