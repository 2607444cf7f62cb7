"""How often each interval of `harness.leaderboard.stats` holds the truth, by simulation: 95 times in 100, it says.

    python benchmarks/coverage.py [--quick] [--only NAME]

Each row draws tasks and attempts from a known distribution, many times, and counts the intervals that hold the true
figure. The chance of a proportion's interval goes up and down with the proportion, so those rows draw a new truth each
time. The last lines say how far the row that is furthest off lies from 95%, and how that compares with the interval
that is usually printed (the normal one, attempts taken as independent), in the same run and on the same draws.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np

from harness.leaderboard import stats

Case = tuple[float, stats.Interval, stats.Interval]
"""The truth, our interval of it, and the usual one."""
Rng = np.random.Generator


def usual(values: np.ndarray) -> stats.Interval:
    """Mean and 1.96 standard errors, as if all values were independent."""
    spread = 1.959964 * values.std(ddof=1) / math.sqrt(values.size)
    return values.mean() - spread, values.mean() + spread


def skills(rng: Rng, tasks: int, mean: float, share: float) -> np.ndarray:
    """Chance of success on each task: beta, with this share of an attempt's variance between tasks."""
    size = 1 / share - 1
    return rng.beta(mean * size, (1 - mean) * size, size=tasks)


def attempts(rng: Rng, skill: np.ndarray, repeats: int) -> np.ndarray:
    return (rng.random((len(skill), repeats)) < skill[:, None]).astype(float)


def proportion(rng: Rng, n: int) -> Case:
    p = rng.uniform(0.02, 0.98)
    won = rng.random(n) < p
    return p, stats.wilson(int(won.sum()), n), usual(won.astype(float))


def clustered(rng: Rng, tasks: int, repeats: int, share: float) -> Case:
    p = rng.uniform(0.1, 0.9)
    played = attempts(rng, skills(rng, tasks, p, share), repeats)
    ours = stats.clustered(played.sum(1).tolist(), [repeats] * tasks)
    return p, ours, usual(played.ravel())


def mean(rng: Rng, tasks: int, repeats: int) -> Case:
    """Steps: skewed, and alike within a task."""
    scale = rng.gamma(4.0, 0.25, size=(tasks, 1))
    played = rng.gamma(2.0, 5.0, size=(tasks, repeats)) * scale
    return 10.0, stats.ratio_interval(played.sum(1).tolist(), [repeats] * tasks), usual(played.ravel())


def lost(rng: Rng, tasks: int, repeats: int) -> Case:
    """A mean over attempts of which one in five is lost, so that tasks have unlike numbers of them."""
    scale = rng.gamma(4.0, 0.25, size=(tasks, 1))
    played = rng.gamma(2.0, 5.0, size=(tasks, repeats)) * scale
    kept = rng.random((tasks, repeats)) < 0.8
    return 10.0, stats.ratio_interval((played * kept).sum(1).tolist(), kept.sum(1).tolist()), usual(played[kept])


def macro(rng: Rng, tasks: int) -> Case:
    p = rng.uniform(0.05, 0.95, size=6)
    sizes = rng.multinomial(tasks - 30, [1 / 6] * 6) + 5
    wins = [rng.binomial(n, q) for n, q in zip(sizes, p, strict=True)]
    parts = [(w / n, stats.wilson(w, n)) for w, n in zip(wins, sizes, strict=True)]
    shares = [w / n for w, n in zip(wins, sizes, strict=True)]
    error = 1.959964 * math.sqrt(sum(s * (1 - s) / n for s, n in zip(shares, sizes, strict=True))) / 6
    centre = sum(shares) / 6
    return float(p.mean()), stats.combined(parts)[1], (centre - error, centre + error)


def pass_k(rng: Rng, tasks: int, repeats: int, k: int) -> Case:
    mean = rng.uniform(0.05, 0.7)
    skill = skills(rng, tasks, mean, 0.4)
    size = 1 / 0.4 - 1
    miss = math.prod(((1 - mean) * size + i) / (size + i) for i in range(k))
    wins = attempts(rng, skill, repeats).sum(1).astype(int)
    values = np.array([stats.pass_any(repeats, int(w), k) for w in wins])
    plugged = 1 - (1 - wins / repeats) ** k  # what is often printed: biased
    return 1 - miss, stats.share_interval(values.tolist()), usual(plugged)


def paired(rng: Rng, tasks: int) -> Case:
    gained, lost_ = rng.uniform(0.03, 0.3), rng.uniform(0.03, 0.3)
    draw = rng.random(tasks)
    won, less = int((draw < gained).sum()), int(((draw >= gained) & (draw < gained + lost_)).sum())
    both = np.concatenate([np.ones(won), -np.ones(less), np.zeros(tasks - won - less)])
    return gained - lost_, stats.tango(won, less, tasks), usual(both)


def paired_repeats(rng: Rng, tasks: int, repeats: int) -> Case:
    first = skills(rng, tasks, 0.4, 0.4)
    second = np.clip(first + 0.1 * rng.random(tasks), 0, 1)
    truth = _shift()
    a, b = attempts(rng, first, repeats), attempts(rng, second, repeats)
    return truth, stats.mean_difference((b.mean(1) - a.mean(1)).tolist()), usual((b - a).ravel())


_SHIFT: list[float] = []


def _shift() -> float:
    """The true mean of what `paired_repeats` adds, by brute force."""
    if not _SHIFT:
        rng = np.random.default_rng(99)
        first = skills(rng, 4_000_000, 0.4, 0.4)
        _SHIFT.append(float((np.clip(first + 0.1 * rng.random(len(first)), 0, 1) - first).mean()))
    return _SHIFT[0]


ROWS: dict[str, Callable[[Rng], Case]] = {
    "success, 50 tasks": lambda rng: proportion(rng, 50),
    "success, 134 tasks": lambda rng: proportion(rng, 134),
    "success, 500 tasks": lambda rng: proportion(rng, 500),
    "success, 60 tasks x 4, share 0.3": lambda rng: clustered(rng, 60, 4, 0.3),
    "success, 134 tasks x 4, share 0.6": lambda rng: clustered(rng, 134, 4, 0.6),
    "success, 134 tasks x 8, share 0.1": lambda rng: clustered(rng, 134, 8, 0.1),
    "mean steps, 134 tasks": lambda rng: mean(rng, 134, 1),
    "mean steps, 60 tasks x 4": lambda rng: mean(rng, 60, 4),
    "mean steps, 134 tasks x 3, a fifth lost": lambda rng: lost(rng, 134, 3),
    "macro over 6 types, 134 tasks": lambda rng: macro(rng, 134),
    "pass@2 of 4, 134 tasks": lambda rng: pass_k(rng, 134, 4, 2),
    "pass@4 of 4, 134 tasks": lambda rng: pass_k(rng, 134, 4, 4),
    "difference, 134 tasks": lambda rng: paired(rng, 134),
    "difference, 500 tasks": lambda rng: paired(rng, 500),
    "difference, 134 tasks x 4": lambda rng: paired_repeats(rng, 134, 4),
}


def simulate(row: Callable[[Rng], Case], draws: int, seed: int = 0) -> tuple[float, float]:
    """Coverage of our interval and of the usual one."""
    rng = np.random.default_rng(seed)
    cases: Iterator[Case] = (row(rng) for _ in range(draws))
    hits = np.array([(ours[0] <= t <= ours[1], old[0] <= t <= old[1]) for t, ours, old in cases])
    return float(hits[:, 0].mean()), float(hits[:, 1].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1000 draws a row instead of 10,000")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    args = parser.parse_args()
    draws = 1000 if args.quick else 10_000
    noise = 100 * math.sqrt(0.95 * 0.05 / draws)
    print(f"{draws} draws a row: a coverage is known to about {noise:.2f} points\n")
    print(f"{'':42} {'ours':>7} {'usual':>7}")
    worst_ours = worst_usual = 0.0
    for name, row in ROWS.items():
        if args.only in name:
            ours, old = simulate(row, draws)
            worst_ours = max(worst_ours, abs(ours - stats.CONFIDENCE))
            worst_usual = max(worst_usual, abs(old - stats.CONFIDENCE))
            print(f"{name:42} {100 * ours:6.1f}% {100 * old:6.1f}%", flush=True)
    print(f"\nfurthest from 95%: ours {100 * worst_ours:.2f} points, the usual interval {100 * worst_usual:.2f}")
    print(f"RATIO coverage_within_a_point {0.01 / max(worst_ours, 1e-4):.2f}")
    print(f"RATIO miscoverage_vs_usual {worst_usual / max(worst_ours, 1e-4):.1f}")


if __name__ == "__main__":
    main()
