"""From the rewards of a group's attempts, and a critic's values where there is one, to each sampled token's advantage.

Knows rewards, values and masks only: no model, loss or buffer. Invariants: an attempt counts once, however many
sequences it left; an attempt that was lost is in no mean, deviation or denominator; advantages are 0.0 where the mask
is False.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.envs.errors import UserError

from ..experience import Expected, Experience, ExperienceGroup, Floats, Mask

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
    """Every experience of the group with float32[L] advantages: its attempt's, spread over its sampled tokens; a group
    whose experiences all have theirs already (a sample strategy's own) keeps them.

    Attempts are those that left experiences: what is only counted in `group.dropped` is in no statistic. Raises
    ValueError where a reward is not there yet, is not finite, or differs between two sequences of one attempt.
    """
    if group.experiences and all(e.advantages is not None for e in group.experiences):
        return Advantages(group=group, flat=not any(np.any(e.advantages) for e in group.experiences))
    numbers = _by_attempt(group, estimator)
    judged = tuple(
        e.with_advantages(np.where(e.mask, np.float32(numbers[e.attempt]), np.float32(0.0))) for e in group.experiences
    )
    return Advantages(group=replace(group, experiences=judged), flat=not any(numbers.values()))


def gae(values_L: Floats, mask_L: Mask, reward: float, *, gamma: float, lam: float) -> tuple[Floats, Floats]:
    """(advantages float32[L], returns float32[L]) of one attempt, in units of reward; 0.0 where the mask is False.

    Generalized advantage estimation (Schulman et al., arXiv 1506.02438, equation 16; as PPO uses it, arXiv 1707.06347,
    equations 11 and 12). Time runs over the N sampled tokens alone: what the world said in between takes no time, so
    the next state of a turn's last token is that before the next turn's first. With V_N = 0 and r = reward at the last
    sampled token, 0 before:

        delta_n = r_n + gamma V_(n+1) - V_n,    A_n = delta_n + gamma lam A_(n+1),    return_n = A_n + V_n

    Nothing is bootstrapped. An episode that a limit of steps or context cut off has its reward like any other: here a
    limit is a rule of the task, not an accident of the sampling, and a value in the reward's place would teach that
    running out of steps costs nothing. (Attempts lost to a fault never come here.)

    values_L: float[L], V before each sampled token. With gamma = lam = 1 each advantage is the reward minus the value.

    >>> mask = np.array([False, True, False, True])
    >>> advantages, returns = gae(np.array([9, 0.5, 9, 0.25], np.float32), mask, 1.0, gamma=1.0, lam=0.5)
    >>> advantages.tolist(), returns.tolist()
    ([0.0, 0.125, 0.0, 0.75], [0.0, 0.625, 0.0, 1.0])
    """
    values_N = values_L[mask_L].astype(np.float64)
    deltas_N = gamma * np.append(values_N[1:], 0.0)[: len(values_N)] - values_N
    deltas_N[-1:] += reward
    advantage, backwards = 0.0, []
    for delta in deltas_N[::-1].tolist():
        advantage = delta + gamma * lam * advantage
        backwards.append(advantage)
    advantages_L, returns_L = np.zeros(len(mask_L), np.float32), np.zeros(len(mask_L), np.float32)
    advantages_L[mask_L] = advantages_N = np.array(backwards[::-1])
    returns_L[mask_L] = advantages_N + values_N
    return advantages_L, returns_L


def with_critic(
    group: ExperienceGroup, estimator: Estimator, values: Sequence[Floats], *, gamma: float, lam: float
) -> tuple[Advantages, dict[str, Expected]]:
    """Every experience of the group with the advantages that `gae` gives its attempt, and what was and is to be
    expected of it by the experience's key.

    values: float32[L] of each experience, in order. An attempt of several sequences is one stretch of time, and the
    estimator's number for it stands at the last sampled token of the last. No group is flat: what all its attempts came
    to says something to a critic. Raises as `with_advantages` does, and UserError where advantages are there already.
    """
    if any(e.advantages is not None for e in group.experiences):
        raise UserError(
            f"the group '{group.group}' has advantages of its own, and a critic would have nothing to learn from it. "
            "Choose an algorithm without a critic (algorithm.name=grpo), or leave buffer.strategy at fifo or priority."
        )
    judged: dict[str, Experience] = {}
    expected: dict[str, Expected] = {}
    for attempt, number in _by_attempt(group, estimator).items():
        parts = [(e, v) for e, v in zip(group.experiences, values, strict=True) if e.attempt == attempt]
        values_L = np.concatenate([v for _, v in parts])
        mask_L = np.concatenate([e.mask for e, _ in parts])
        advantages_L, returns_L = gae(values_L, mask_L, number, gamma=gamma, lam=lam)
        ends = np.cumsum([len(e) for e, _ in parts])[:-1]
        for (e, v), a, r in zip(parts, np.split(advantages_L, ends), np.split(returns_L, ends), strict=True):
            judged[e.key], expected[e.key] = e.with_advantages(a), Expected(values=v, returns=r)
    experiences = tuple(judged[e.key] for e in group.experiences)
    return Advantages(group=replace(group, experiences=experiences), flat=not experiences), expected


def explained(experiences: Sequence[Experience], expected: Mapping[str, Expected]) -> float:
    """Share of the returns' variance over sampled tokens that the critic knew before the step: 1 where it knew all, 0
    where it knew no more than their mean, nan where they do not vary."""
    if not experiences:
        return math.nan
    returns_N = np.concatenate([expected[e.key].returns[e.mask] for e in experiences])
    values_N = np.concatenate([expected[e.key].values[e.mask] for e in experiences])
    return 1.0 - float((returns_N - values_N).var()) / float(returns_N.var()) if np.ptp(returns_N) else math.nan


def whitened(groups: Sequence[Sequence[Experience]]) -> list[list[Experience]]:
    """The same, the advantages of all sampled tokens together with mean 0 and (sample) deviation 1."""
    every = [e for group in groups for e in group]
    if not every:
        return []
    raw_N = np.concatenate([e.advantages[e.mask] for e in every if e.advantages is not None]).astype(np.float64)
    white_N = standardized(raw_N)
    done: list[list[Experience]] = []
    start = 0
    for group in groups:
        done.append([])
        for e in group:
            advantages_L, end = np.zeros(len(e), np.float32), start + int(e.mask.sum())
            advantages_L[e.mask], start = white_N[start:end], end
            done[-1].append(e.with_advantages(advantages_L))
    return done


def _by_attempt(group: ExperienceGroup, estimator: Estimator) -> dict[int, float]:
    """The estimator's number for each attempt that left experiences."""
    rewards: dict[int, float] = {}
    for e in group.experiences:
        if e.reward is None or not np.isfinite(e.reward):
            raise ValueError(f"{e.key}: reward {e.reward} cannot be trained on; wait for it, or drop the attempt")
        if rewards.setdefault(e.attempt, e.reward) != e.reward:
            raise ValueError(
                f"{e.key}: attempt {e.attempt} of {group.group} has rewards {rewards[e.attempt]} and {e.reward}; "
                "all sequences of one attempt carry the attempt's reward"
            )
    numbers = estimator(np.array(list(rewards.values()), np.float64))
    return dict(zip(rewards, numbers.tolist(), strict=True))
