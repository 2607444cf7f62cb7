"""What is trained on: masked token sequences, groups of them, demonstrations, and preferences.

Invariant, checked at birth: all arrays of an experience share one length; `mask` is True exactly on tokens the policy
sampled; `logprobs` is 0.0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


def _aligned(tokens: Tokens, mask: Mask, *floats: Floats | None) -> None:
    if tokens.ndim != 1 or mask.shape != tokens.shape or any(f is not None and f.shape != tokens.shape for f in floats):
        shapes = [a.shape for a in (tokens, mask, *floats) if a is not None]
        raise ValueError(f"tokens, mask and floats must be vectors of one length, got shapes {shapes}")
    if mask.dtype != np.bool_:
        raise ValueError(f"mask must be bool, got {mask.dtype}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experience:
    """One token sequence of one attempt, ready to be trained on once its reward is known.

    >>> e = Experience(key="alfworld/train/17#s3.0", task_key="alfworld/train/17", group="s3/alfworld/train/17",
    ...     attempt=0, versions=(3, 3), reward=1.0, tokens=np.array([1, 7, 5, 2], np.int32),
    ...     mask=np.array([False, False, True, True]), logprobs=np.array([0, 0, -0.1, -0.2], np.float32))
    >>> e.tokens[e.mask].tolist()
    [5, 2]
    """

    key: str
    """Unique in a run; putting the same key twice stores it once."""
    task_key: str
    """`Task.key` of the task that was played."""
    group: str
    """Name of the group of attempts it is compared with."""
    attempt: int
    """Number of the attempt within its group."""
    versions: tuple[int, int]
    """Oldest and newest policy version that sampled in it."""
    reward: float | None
    """Reward of the whole attempt, or None while it is not known yet."""
    tokens: Tokens
    """int32[L]: prompt, answers and observations in the order of the stream."""
    mask: Mask
    """bool[L]: True on tokens that the policy sampled."""
    logprobs: Floats
    """float32[L]: log-probability under the sampling policy; 0.0 where mask is False."""
    advantages: Floats | None = None
    """float32[L], or None before the algorithm has judged it; 0.0 where mask is False."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers about the attempt: steps, seconds, drift."""
    lineage: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from: outcome, task type, the key it was derived from."""

    def __post_init__(self) -> None:
        _aligned(self.tokens, self.mask, self.logprobs, self.advantages)
        if self.logprobs[~self.mask].any():
            raise ValueError(f"{self.key}: logprobs must be 0.0 where mask is False")

    def __len__(self) -> int:
        return len(self.tokens)

    def with_advantages(self, advantages: Floats) -> Experience:
        return replace(self, advantages=advantages)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What a critic made of one sequence before the step, and what it is to make of it."""

    values: Floats
    """float32[L]: reward expected before each sampled token; 0.0 elsewhere."""
    returns: Floats
    """float32[L]: what it is taught to expect there; 0.0 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExperienceGroup:
    """All that came of one group of attempts at one task."""

    group: str
    """Unique in a run: step and task."""
    task_key: str
    experiences: tuple[Experience, ...]
    """Those that can be trained on; may be empty."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Attempts that left nothing to train on: outcome -> count."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """A demonstration for SFT: tokens, and which of them are to be imitated."""

    tokens: Tokens
    """int32[L]"""
    mask: Mask
    """bool[L]: True on tokens that carry loss."""

    def __post_init__(self) -> None:
        _aligned(self.tokens, self.mask)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A preference for DPO: of two sequences, the one that is to gain on the other.

    >>> def answer(*tokens: int) -> Example:
    ...     return Example(tokens=np.array([1, 7, *tokens], np.int32), mask=np.array([0, 0] + [1] * len(tokens), bool))
    >>> len(Pair(chosen=answer(5, 2), rejected=answer(6, 6, 2)))
    5
    """

    chosen: Example
    rejected: Example

    def __post_init__(self) -> None:
        for name, example in (("chosen", self.chosen), ("rejected", self.rejected)):
            if not example.mask[1:].any():
                raise ValueError(f"the {name} sequence of a pair has no token that carries loss")

    def __len__(self) -> int:
        """Tokens of the longer one."""
        return max(len(self.chosen), len(self.rejected))
