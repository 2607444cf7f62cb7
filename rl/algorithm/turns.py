"""Credit for single turns: what followed one, against what followed the other turns that began in the same state.

Knows token sequences, masks and rewards only. A turn is a run of sampled tokens; its state is what the agent was shown
last, the tokens between the run before and this one. Invariant: turns are compared within one group alone, and one that
began like no other gets 0.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..experience import Experience, ExperienceGroup, Floats, Mask

Turns = NDArray[np.int64]


def turns_of(mask_L: Mask) -> Turns:
    """int64[T, 2]: first position of each turn, and the one after its last.

    >>> turns_of(np.array([False, True, True, False, True])).tolist()
    [[1, 3], [4, 5]]
    """
    edges = np.flatnonzero(np.diff(mask_L, prepend=False, append=False))
    return edges.reshape(-1, 2)


def turn_advantages(group: ExperienceGroup, discount: float) -> list[Floats]:
    """float32[L] for each experience of the group, in units of reward, 0.0 where its mask is False.

    The step-relative advantage of GiGPO (arXiv 2505.10978, equations 6 to 8, without division by the deviation): a turn
    with k turns after it in its attempt is worth discount^k times the attempt's reward, less the mean over all turns
    of the group that began in the same state. With a discount below 1 the shorter of two ways to a reward is better.
    Raises ValueError where a reward is not there yet.
    """
    worth: defaultdict[bytes, list[float]] = defaultdict(list)
    found: list[list[tuple[int, int, bytes, float]]] = [[] for _ in group.experiences]
    left: defaultdict[int, int] = defaultdict(int)  # turns of the attempt that come later
    for index in reversed(range(len(group.experiences))):
        e = group.experiences[index]
        if e.reward is None:
            raise ValueError(f"{e.key}: has no reward yet")
        for start, end, state in reversed(list(_states(e))):
            value = e.reward * discount ** left[e.attempt]
            left[e.attempt] += 1
            worth[state].append(value)
            found[index].append((start, end, state, value))
    means = {state: float(np.mean(values)) for state, values in worth.items()}
    advantages = []
    for e, turns in zip(group.experiences, found, strict=True):
        advantages_L = np.zeros(len(e), np.float32)
        for start, end, state, value in turns:
            advantages_L[start:end] = value - means[state]
        advantages.append(advantages_L)
    return advantages


def _states(e: Experience) -> Iterator[tuple[int, int, bytes]]:
    before = 0
    for start, end in turns_of(e.mask).tolist():
        yield start, end, e.tokens[before:start].tobytes()
        before = end
