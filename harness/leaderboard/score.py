"""Figures from attempts: success, reward, steps, tokens, pass@k and pass^k, each with its interval, per task type too.

Pure functions. Invariant: an attempt that was lost (see `agents.types.SCORED`) is in no mean and no denominator; it is
counted beside the score, and widens `bounds`. Intervals take tasks as the sample: attempts at one task are a cluster.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from harness.agents.types import Outcome, Trajectory

from . import stats
from .stats import Interval, Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Proportion:
    """Successes among scored attempts."""

    successes: int
    n: int
    effective: float | None = None
    """Independent attempts that these are worth, where tasks repeat; None: all of them."""

    @property
    def value(self) -> float:
        """Share of successes; nan where nothing was scored."""
        return self.successes / self.n if self.n else math.nan

    @property
    def interval(self) -> Interval:
        """95% interval: Wilson's, with the effective size where tasks repeat."""
        if self.effective is None or not self.n:
            return stats.wilson(self.successes, self.n)
        return stats.wilson(self.value * self.effective, self.effective)

    def __str__(self) -> str:
        if not self.n:
            return "no score"
        low, high = self.interval
        return f"{100 * self.value:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A number with its 95% interval."""

    value: float
    interval: Interval
    """(nan, nan) where too little was played to tell."""
    n: int
    """Tasks it is taken over; of a macro average the groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What an entry says. Means are over scored attempts."""

    success: Proportion
    """Micro average: every scored attempt counts alike."""
    lost: dict[str, int] = field(default_factory=dict)
    """Attempts that earned no score: outcome -> count."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """All attempts by outcome."""
    reward: Figure | None = None
    turns: Figure | None = None
    """Answers an episode took."""
    prompt: Figure | None = None
    """Tokens an episode sent beside the sampled ones, each counted once; for a text endpoint, as often as it read them
    (which is what is paid for)."""
    sampled: Figure | None = None
    """Tokens an episode sampled."""
    by_type: dict[str, Proportion] = field(default_factory=dict)
    """Success by the task type that the world names."""
    macro: Figure | None = None
    """Success as the mean over task types; None where there are not several."""
    average: Figure | None = None
    """avg@n: the mean over tasks of each one's own success; None where no task repeats."""
    pass_any: dict[int, Figure] = field(default_factory=dict)
    """pass@k: at least one of k attempts succeeds; over the tasks with k scored attempts. Empty where none repeats."""
    pass_all: dict[int, Figure] = field(default_factory=dict)
    """pass^k: all of k attempts succeed."""
    split: Split | None = None
    """Variance of success between and within tasks; None where no task repeats."""

    @property
    def n(self) -> int:
        """Attempts, scored or lost."""
        return self.success.n + sum(self.lost.values())

    @property
    def bounds(self) -> Interval:
        """Share of successes if every lost attempt had failed, or had succeeded; (0, 1) where nothing was played."""
        if not self.n:
            return 0.0, 1.0
        return self.success.successes / self.n, (self.success.successes + sum(self.lost.values())) / self.n

    @property
    def mean_reward(self) -> float | None:
        return None if self.reward is None else self.reward.value

    @property
    def steps(self) -> float | None:
        return None if self.turns is None else self.turns.value

    @property
    def prompt_tokens(self) -> float | None:
        return None if self.prompt is None else self.prompt.value

    @property
    def sampled_tokens(self) -> float | None:
        return None if self.sampled is None else self.sampled.value


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
        prompt_tokens=sum(len(t.prompt_tokens) or (t.completion.usage or (0, 0))[0] for t in turns),
        sampled_tokens=sum(len(t.completion.tokens) or (t.completion.usage or (0, 0))[1] for t in turns),
    )


def score(results: Iterable[Result]) -> Scores:
    """Score attempts."""
    played = list(results)
    scored = [r for r in played if r.scored]
    tasks = _grouped(scored, lambda r: r.task)
    kinds = _grouped((r for r in scored if r.kind), lambda r: r.kind)
    by_type = {kind: proportion(rs) for kind, rs in sorted(kinds.items())}
    repeated = any(len(rs) > 1 for rs in tasks.values())
    return Scores(
        success=proportion(scored),
        lost=_counts(r for r in played if not r.scored),
        outcomes=_counts(played),
        reward=_mean(tasks, lambda r: r.reward),
        turns=_mean(tasks, lambda r: r.steps),
        prompt=_mean(tasks, lambda r: r.prompt_tokens),
        sampled=_mean(tasks, lambda r: r.sampled_tokens),
        by_type=by_type,
        macro=_macro(by_type.values()) if len(by_type) > 1 else None,
        average=_over_tasks([fmean(r.success for r in rs) for rs in tasks.values()]) if repeated else None,
        pass_any=_passes(tasks, stats.pass_any) if repeated else {},
        pass_all=_passes(tasks, stats.pass_all) if repeated else {},
        split=stats.variance_split([[float(r.success) for r in rs] for rs in tasks.values()]),
    )


def proportion(scored: Iterable[Result]) -> Proportion:
    """Success among scored attempts; those at the same task are a cluster."""
    wins: Counter[str] = Counter()
    tries: Counter[str] = Counter()
    for r in scored:
        tries[r.task] += 1
        wins[r.task] += r.success
    return pooled(wins, tries)


def pooled(wins: Mapping[str, int], tries: Mapping[str, int]) -> Proportion:
    """Successes of all attempts, from those of each task."""
    n = sum(tries.values())
    size = stats.effective_size([wins[t] for t in tries], list(tries.values())) if len(tries) < n else None
    return Proportion(successes=sum(wins.values()), n=n, effective=size)


Tasks = Mapping[str, Sequence[Result]]


def _grouped(results: Iterable[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        groups[key(r)].append(r)
    return groups


def _mean(tasks: Tasks, value: Callable[[Result], float]) -> Figure | None:
    """Mean over all attempts."""
    if not tasks:
        return None
    sums, counts = [sum(map(value, rs)) for rs in tasks.values()], [len(rs) for rs in tasks.values()]
    return Figure(value=sum(sums) / sum(counts), interval=stats.ratio_interval(sums, counts), n=len(sums))


def _over_tasks(values: Sequence[float]) -> Figure:
    return Figure(value=fmean(values), interval=stats.share_interval(values), n=len(values))


def _macro(parts: Iterable[Proportion]) -> Figure:
    known = [(p.value, p.interval) for p in parts]
    value, interval = stats.combined(known)
    return Figure(value=value, interval=interval, n=len(known))


def _passes(tasks: Tasks, chance: Callable[[int, int, int], float]) -> dict[int, Figure]:
    """For k = 2, 4, 8, ... and the largest number of scored attempts that a task has."""
    most = max(map(len, tasks.values()))
    ks = sorted({most, *(2**i for i in range(1, most.bit_length()) if 2**i <= most)})
    counts = [(len(rs), sum(r.success for r in rs)) for rs in tasks.values()]
    return {k: _over_tasks([chance(n, wins, k) for n, wins in counts if n >= k]) for k in ks}


def succeeded(trajectory: Trajectory, success_at: float) -> bool:
    """Scored, and the reward reaches the mark (within rounding of summed floats)."""
    return trajectory.scored and trajectory.reward >= success_at - 1e-9


def _counts(results: Iterable[Result]) -> dict[str, int]:
    return dict(sorted(Counter(str(r.outcome) for r in results).items()))


def as_json(scores: Scores) -> Mapping[str, object]:
    """The scores with what follows from them written out, for people and programs that read only the file."""
    figures = {"reward": scores.reward, "steps": scores.turns, "prompt_tokens": scores.prompt}
    figures |= {"sampled_tokens": scores.sampled, "macro": scores.macro, "average": scores.average}
    split = scores.split
    return {
        "success": _proportion_json(scores.success),
        "bounds": list(scores.bounds),
        "n": scores.n,
        "lost": scores.lost,
        "outcomes": scores.outcomes,
        **{name: f and _figure_json(f) for name, f in figures.items()},
        "by_type": {kind: _proportion_json(p) for kind, p in scores.by_type.items()},
        "pass@": {str(k): _figure_json(f) for k, f in scores.pass_any.items()},
        "pass^": {str(k): _figure_json(f) for k, f in scores.pass_all.items()},
        "variance": split and {"between": split.between, "within": split.within, "share": _known(split.share)},
    }


def _proportion_json(p: Proportion) -> dict[str, object]:
    low, high = p.interval
    found: dict[str, object] = {"successes": p.successes, "n": p.n, "value": _known(p.value), "low": low, "high": high}
    return found if p.effective is None else found | {"effective": p.effective}


def _figure_json(f: Figure) -> dict[str, object]:
    low, high = f.interval
    return {"value": f.value, "low": _known(low), "high": _known(high), "n": f.n}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
