"""Figures from trajectories: success with its interval, reward, steps, tokens, per task type.

Pure functions. Invariant: an attempt that was lost (see `agents.types.SCORED`) is in no mean and no denominator; it is
counted beside the score, and widens `bounds`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean

from harness.agents.types import Outcome, Trajectory


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (1927), without continuity correction.

    successes: 0 to n. Returns (low, high) within [0, 1]; (0, 1) where n is 0.

    >>> [round(x, 3) for x in wilson(26, 50)]
    [0.385, 0.652]
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} cannot be")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class Proportion:
    """Successes among scored attempts."""

    successes: int
    n: int

    @property
    def value(self) -> float:
        """Share of successes; nan where nothing was scored."""
        return self.successes / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval."""
        return wilson(self.successes, self.n)

    def __str__(self) -> str:
        if not self.n:
            return "no score"
        low, high = self.interval
        return f"{100 * self.value:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What an entry says. Means are over scored attempts."""

    success: Proportion
    lost: dict[str, int] = field(default_factory=dict)
    """Attempts that earned no score: outcome -> count."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """All attempts by outcome."""
    mean_reward: float | None = None
    steps: float | None = None
    """Mean number of turns."""
    prompt_tokens: float | None = None
    """Mean number of tokens an episode sent beside the sampled ones, each counted once."""
    sampled_tokens: float | None = None
    """Mean number of tokens an episode sampled."""
    by_type: dict[str, Proportion] = field(default_factory=dict)
    """Success by the task type that the world names."""

    @property
    def n(self) -> int:
        """Attempts, scored or lost."""
        return self.success.n + sum(self.lost.values())

    @property
    def bounds(self) -> tuple[float, float]:
        """Share of successes if every lost attempt had failed, or had succeeded; (0, 1) where nothing was played."""
        if not self.n:
            return 0.0, 1.0
        return self.success.successes / self.n, (self.success.successes + sum(self.lost.values())) / self.n


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one attempt counts for."""

    task: str
    """The task's id."""
    attempt: int
    kind: str
    """Task type, or empty."""
    outcome: Outcome
    scored: bool
    success: bool
    reward: float
    steps: int
    prompt_tokens: int
    sampled_tokens: int


def result_of(trajectory: Trajectory, success_at: float) -> Result:
    """What an attempt counts for; one whose reward reaches `success_at` (the world's own mark) is a success."""
    turns = trajectory.turns
    return Result(
        task=trajectory.task.id,
        attempt=trajectory.attempt,
        kind=trajectory.task_type,
        outcome=trajectory.outcome,
        scored=trajectory.scored,
        success=succeeded(trajectory, success_at),
        reward=trajectory.reward,
        steps=len(turns),
        prompt_tokens=sum(len(t.prompt_tokens) for t in turns),
        sampled_tokens=sum(len(t.completion.tokens) for t in turns),
    )


def score(results: Iterable[Result]) -> Scores:
    """Score attempts."""
    played = list(results)
    scored = [r for r in played if r.scored]
    by_type: dict[str, list[Result]] = defaultdict(list)
    for r in scored:
        if r.kind:
            by_type[r.kind].append(r)
    return Scores(
        success=_proportion(scored),
        lost=_counts(r for r in played if not r.scored),
        outcomes=_counts(played),
        mean_reward=_mean([r.reward for r in scored]),
        steps=_mean([r.steps for r in scored]),
        prompt_tokens=_mean([r.prompt_tokens for r in scored]),
        sampled_tokens=_mean([r.sampled_tokens for r in scored]),
        by_type={kind: _proportion(rs) for kind, rs in sorted(by_type.items())},
    )


def _proportion(scored: Sequence[Result]) -> Proportion:
    return Proportion(successes=sum(r.success for r in scored), n=len(scored))


def succeeded(trajectory: Trajectory, success_at: float) -> bool:
    """Scored, and the reward reaches the mark (within rounding of summed floats)."""
    return trajectory.scored and trajectory.reward >= success_at - 1e-9


def _counts(results: Iterable[Result]) -> dict[str, int]:
    return dict(sorted(Counter(str(r.outcome) for r in results).items()))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def as_json(scores: Scores) -> Mapping[str, object]:
    """The scores with what follows from them written out, for people and programs that read only the file."""

    def proportion(p: Proportion) -> dict[str, object]:
        low, high = p.interval
        value = p.value if p.n else None
        return {"successes": p.successes, "n": p.n, "value": value, "low": low, "high": high}

    return {
        "success": proportion(scores.success),
        "bounds": list(scores.bounds),
        "n": scores.n,
        "lost": scores.lost,
        "outcomes": scores.outcomes,
        "mean_reward": scores.mean_reward,
        "steps": scores.steps,
        "prompt_tokens": scores.prompt_tokens,
        "sampled_tokens": scores.sampled_tokens,
        "by_type": {kind: proportion(p) for kind, p in scores.by_type.items()},
    }
