"""Intervals, tests and sample sizes for success rates and other figures of attempts at tasks.

Pure functions on numbers; knows nothing of entries. All treat the tasks as a sample of tasks like them: attempts at one
task are one cluster, never independent draws. Coverage of every interval is simulated by `benchmarks/coverage.py`.
Invariant: the same numbers give the same figures, in any process (resampling is seeded).

Arrays are aligned by task: `_T` one number a task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.95
POWER = 0.8
"""Chance with which a difference is to be found, wherever a number of tasks is asked for."""
RESAMPLES = 2000

Interval = tuple[float, float]


def wilson(successes: float, n: float, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a proportion (1927), without continuity correction.

    successes: 0 to n. Neither need be whole: an effective sample size may stand in. Returns (low, high) within [0, 1];
    (0, 1) where n is 0. Raises ValueError where successes do not lie in 0 to n.

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


def effective_size(wins_T: Sequence[float], tries_T: Sequence[float]) -> float:
    """How many independent attempts these are worth (Kish 1965): p (1 - p) over the variance of the pooled share p.

    It lies between the number of tasks (attempts at a task all end alike) and that of tries (nothing binds them). With
    one try a task, and where all or none succeeded, it is the number of tasks.
    """
    wins, tries = _floats(wins_T), _floats(tries_T)
    kept = tries > 0
    wins, tries = wins[kept], tries[kept]
    tasks, total = len(tries), float(tries.sum())
    if total == tasks:
        return total
    p = float(wins.sum()) / total
    if not 0 < p < 1 or tasks < 2:
        return float(tasks)
    variance = _ratio_variance(wins, tries, p)
    return min(total, max(tasks, p * (1 - p) / variance)) if variance > 0 else total


def clustered(wins_T: Sequence[float], tries_T: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Wilson's interval of all wins over all tries, with `effective_size` in place of the number of tries."""
    size, tries = effective_size(wins_T, tries_T), sum(tries_T)
    return wilson(sum(wins_T) / tries * size, size, confidence) if tries else (0.0, 1.0)


def share_interval(values_T: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Wilson's interval of the mean of values within 0 to 1, with the sample size that their variance leaves.

    The effective size is m (1 - m) over the variance of the mean, at least the number of values; that where they are
    all the same. (0, 1) for none.
    """
    values = _floats(values_T)
    n, mean = len(values), float(values.mean()) if len(values) else 0.0
    variance = float(values.var(ddof=1)) / n if n > 1 else 0.0
    size = max(float(n), mean * (1 - mean) / variance) if variance > 0 else float(n)
    return wilson(min(mean, 1.0) * size, size, confidence)


def ratio_interval(sums_T: Sequence[float], counts_T: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Interval of sum over count, by the studentized bootstrap over tasks (Efron 1979; Hall 1988).

    One count a task gives the interval of a mean. Tasks whose values are all 0 or 1 are a proportion and go to
    `clustered`, so that a row of equal ones does not pretend to certainty; any other constant has an interval of no
    width. No bound lies outside of the tasks' own values. Returns (nan, nan) for fewer than two tasks.
    """
    sums, counts = _floats(sums_T), _floats(counts_T)
    kept = counts > 0
    sums, counts = sums[kept], counts[kept]
    n = len(sums)
    if n and np.isin(sums / counts, (0.0, 1.0)).all():
        return clustered(sums.tolist(), counts.tolist(), confidence)
    if n < 2:
        return math.nan, math.nan
    centre = float(sums.sum() / counts.sum())
    error = math.sqrt(_ratio_variance(sums, counts, centre))
    if error == 0:
        return centre, centre
    rng = np.random.default_rng(0)
    ts: list[Floats] = []
    for _ in range(0, RESAMPLES, chunk := max(1, min(RESAMPLES, 200_000 // n))):
        picks = rng.integers(n, size=(min(chunk, RESAMPLES - len(ts) * chunk), n))
        s, c = sums[picks], counts[picks]
        means = s.sum(1) / c.sum(1)
        residuals = s - means[:, None] * c
        errors = np.sqrt((residuals**2).sum(1) / c.mean(1) ** 2 / (n * (n - 1)))
        ts.append((means - centre) / np.maximum(errors, error * 1e-3))
    low_t, high_t = np.quantile(np.concatenate(ts), [(1 + confidence) / 2, (1 - confidence) / 2])
    own = sums / counts
    low, high = centre - float(low_t) * error, centre - float(high_t) * error
    return max(low, float(own.min())), min(high, float(own.max()))


def combined(parts: Sequence[tuple[float, Interval]]) -> tuple[float, Interval]:
    """Unweighted mean of independent figures, each with its interval (MOVER: Zou and Donner 2008).

    Parts whose figure is nan are left out; (nan, (nan, nan)) where none is left.
    """
    known = [(value, interval) for value, interval in parts if not math.isnan(value)]
    if not known:
        return math.nan, (math.nan, math.nan)
    mean = sum(value for value, _ in known) / len(known)
    below = math.sqrt(sum((value - low) ** 2 for value, (low, _) in known)) / len(known)
    above = math.sqrt(sum((high - value) ** 2 for value, (_, high) in known)) / len(known)
    return mean, (mean - below, mean + above)


def pass_any(n: int, wins: int, k: int) -> float:
    """pass@k: the chance that at least one of k attempts, drawn from n with `wins` good ones, is good. Unbiased.

    Chen et al. 2021 (arXiv:2107.03374). 1 <= k <= n.
    """
    return 1.0 - math.comb(n - wins, k) / math.comb(n, k)


def pass_all(n: int, wins: int, k: int) -> float:
    """pass^k: the chance that all of k attempts, drawn from n with `wins` good ones, are good. Unbiased.

    Yao et al. 2024 (arXiv:2406.12045). 1 <= k <= n.
    """
    return math.comb(wins, k) / math.comb(n, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where the variance of one attempt's value comes from."""

    between: float
    """Variance of the tasks' own means: some tasks are harder."""
    within: float
    """Mean variance of attempts at one task: the same task ends differently."""

    @property
    def share(self) -> float:
        """Share of the variance that lies between tasks (intraclass correlation), 0 to 1; nan where nothing varies."""
        total = self.between + self.within
        return self.between / total if total > 0 else math.nan


def variance_split(groups: Sequence[Sequence[float]]) -> Split | None:
    """Between and within tasks, by the analysis of variance with unequal group sizes (Searle 1971); not below 0.

    None where fewer than two tasks, or no task with two attempts, can tell.
    """
    sizes = _floats([len(g) for g in groups if len(g)])
    tasks, total = len(sizes), float(sizes.sum())
    if tasks < 2 or total <= tasks:
        return None
    means = _floats([sum(g) / len(g) for g in groups if len(g)])
    grand = float((means * sizes).sum() / total)
    inside = sum(
        float(((_floats(g) - m) ** 2).sum()) for g, m in zip((g for g in groups if len(g)), means, strict=True)
    )
    within = inside / (total - tasks)
    outside = float((sizes * (means - grand) ** 2).sum()) / (tasks - 1)
    typical = (total - float((sizes**2).sum()) / total) / (tasks - 1)
    return Split(between=max(0.0, (outside - within) / typical), within=within)


def tango(gained: int, lost: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Score interval of a difference of paired proportions, (gained - lost) / n (Tango 1998).

    gained, lost: pairs in which only the second, or only the first, succeeded; n: all pairs, at least 1.
    """
    from scipy.optimize import brentq

    z = NormalDist().inv_cdf((1 + confidence) / 2)
    seen = (gained - lost) / n

    def excess(delta: float) -> float:
        """The score statistic at a true difference `delta`, less what is allowed."""
        b = -gained - lost + (2 * n - gained + lost) * delta
        q = (math.sqrt(max(0.0, b * b + 8 * n * lost * delta * (1 - delta))) - b) / (4 * n)
        variance = n * (2 * q + delta * (1 - delta))
        gap = abs(gained - lost - n * delta)
        return gap - z * math.sqrt(max(0.0, variance))

    def bound(end: float) -> float:
        inner, outer = seen + end * 1e-9, end * (1 - 1e-12)  # nothing is certain at `seen` itself where all pairs agree
        if abs(inner) >= abs(outer) or excess(outer) <= 0:
            return end
        return float(brentq(excess, inner, outer, xtol=1e-10))

    return bound(-1.0), bound(1.0)


def mean_difference(differences_T: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Student's interval of the mean of paired differences, one a task; (nan, nan) for fewer than two tasks."""
    from scipy.stats import t

    d = _floats(differences_T)
    if len(d) < 2:
        return math.nan, math.nan
    spread = float(t.ppf((1 + confidence) / 2, len(d) - 1)) * float(d.std(ddof=1)) / math.sqrt(len(d))
    return float(d.mean()) - spread, float(d.mean()) + spread


MOST_REPEATS = 10_000
"""Attempts at a task that nobody makes."""
FINEST = 10_000
"""Differences that are whole multiples of 1/FINEST or coarser are tested exactly."""
FLIPS = 100_000


def sign_flip(differences_T: Sequence[float]) -> tuple[float, bool]:
    """Two-sided p-value of the paired permutation test: what if each task's two results were swapped by a coin?

    Differences with a common denominator (those of success rates) are counted out exactly, by convolution; McNemar's
    exact test is the case of one attempt a task. Others are drawn, FLIPS times. Returns (p, exact).
    """
    d = _floats(differences_T)
    d = d[d != 0]
    if not len(d):
        return 1.0, True
    unit = _denominator(d)
    if unit is not None:
        steps = np.rint(np.abs(d) * unit).astype(np.int64)
        chances = np.ones(1)
        for step in np.sort(steps).tolist():
            longer = np.zeros(len(chances) + 2 * step)
            longer[: len(chances)] += chances / 2
            longer[2 * step :] += chances / 2
            chances = longer
        reach = len(chances) // 2
        seen = abs(int(np.rint(d * unit).sum()))
        return min(1.0, float(chances[reach + seen :].sum() * 2)) if seen else 1.0, True
    rng = np.random.default_rng(0)
    seen_sum = abs(float(d.sum()))
    hits, chunk = 0, max(1, 4_000_000 // len(d))
    for begin in range(0, FLIPS, chunk):
        signs = rng.integers(0, 2, size=(min(chunk, FLIPS - begin), len(d)), dtype=np.int8) * 2.0 - 1.0
        hits += int((np.abs(signs @ d) >= seen_sum * (1 - 1e-12)).sum())
    return (hits + 1) / (FLIPS + 1), False


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979), in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = worst
    return corrected


def tasks_needed(difference: float, square: float, power: float = POWER, confidence: float = CONFIDENCE) -> int:
    """Tasks at which a paired test finds a true mean difference with this power (Miettinen 1968; Connor 1987).

    square: mean of the squared differences a task, at least difference squared (for single attempts: the share of
    tasks in which just one of the two succeeds). Raises ValueError where the difference is 0.
    """
    if difference == 0:
        raise ValueError("no number of tasks shows a difference of 0")
    square = max(square, difference**2)
    normal = NormalDist()
    z, zp = normal.inv_cdf((1 + confidence) / 2), normal.inv_cdf(power)
    return math.ceil(((z * math.sqrt(square) + zp * math.sqrt(square - difference**2)) / difference) ** 2)


def repeats_needed(difference: float, tasks: int, between: float, within: float, confidence: float) -> int | None:
    """Attempts at each of so many tasks at which the same test finds a true mean difference; None where none do.

    between, within: parts of the variance of a single attempt's difference (see `variance_split`).
    """
    low, high = 0, MOST_REPEATS
    while high - low > 1:
        middle = (low + high) // 2
        square = between + within / middle + difference**2
        low, high = (
            (low, middle) if tasks_needed(difference, square, confidence=confidence) <= tasks else (middle, high)
        )
    return high if high < MOST_REPEATS else None


def _ratio_variance(sums: Floats, counts: Floats, ratio: float) -> float:
    """Variance of sum over count by linearization, tasks as clusters."""
    n = len(sums)
    return float(((sums - ratio * counts) ** 2).sum() / counts.mean() ** 2 / (n * (n - 1)))


def _denominator(d: Floats) -> int | None:
    """The smallest number of at most FINEST that makes all of them whole, or None; also where sums would grow large."""
    for unit in range(1, FINEST + 1):
        scaled = d * unit
        if np.abs(scaled - np.rint(scaled)).max() < 1e-9 * unit:
            return unit if float(np.abs(scaled).sum()) * len(d) < 2e9 else None
    return None


def _floats(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)
