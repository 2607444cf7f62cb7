"""Which of several entries is better: paired by task, with a test, an interval and one verdict in words.

Knows entries and statistics; draws and prints nothing. Invariant: entries are only compared where they played the same
tasks of the same world under the same mark of success, and a task that one side lost to a fault counts for neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import fmean
from typing import Any, Literal

from harness.envs.errors import UserError

from . import stats
from .entry import Entry
from .record import Record
from .score import Result, result_of
from .stats import Interval

Measure = Literal["success", "reward"]

SAME = ("env", "split", "world_version", "grader_version", "options", "success_at")
"""Fields of a record without whose agreement there is nothing to compare."""
APART = ("model", "model_digest", "tokenizer_hash", "task_ids", "repeats", *SAME)
"""Fields in which compared entries may differ without a word: it is what is compared, or is said elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One entry with what it counts for."""

    name: str
    """Unlike those of the other sides."""
    entry: Entry
    record: Record
    results: tuple[Result, ...]

    def values(self, measure: Measure) -> dict[str, list[float]]:
        """Scored attempts by task, in the order of the tasks; tasks without one are left out."""
        found: dict[str, list[float]] = {}
        for r in self.results:
            if r.scored:
                found.setdefault(r.task, []).append(float(r.success) if measure == "success" else r.reward)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Two sides, the second against the first. Differences are second less first."""

    first: str
    second: str
    measure: Measure
    tasks: int
    """Pairs: tasks that both sides have a scored attempt at."""
    single: bool
    """One scored attempt a task on both sides."""
    difference: float
    interval: Interval
    """95%, for this pair by itself."""
    p: float
    exact: bool
    """The p-value was counted out, not drawn."""
    corrected: float
    """p after Holm's correction for the number of pairs; the verdict goes by it."""
    pairs: int
    """Pairs that are compared at once."""
    square: float
    """Mean squared difference of a task, for sample sizes."""
    repeated: stats.Split | None
    """Variance of an attempt's difference between and within tasks; None where no task was repeated."""
    differing: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Tasks with unlike means: id -> (first, second)."""
    left_out: int = 0
    """Tasks that both were to play and that one side lost to faults."""
    bounds: Interval | None = None
    """The difference of success if every lost attempt had spoken against the second, or for it; None without any."""

    @property
    def separated(self) -> bool:
        return self.corrected < 1 - stats.CONFIDENCE

    @property
    def missing(self) -> int | None:
        """Further tasks by which a test would find the difference seen (with POWER); None where separated or equal."""
        if self.separated or abs(self.difference) < 1e-12:
            return None
        return max(1, stats.tasks_needed(self.difference, self.square, confidence=self._confidence) - self.tasks)

    @property
    def attempts(self) -> int | None:
        """Attempts at each of these tasks by which it would; None where no number does, or none can be told."""
        if self.missing is None or self.repeated is None:
            return None
        return stats.repeats_needed(
            self.difference, self.tasks, self.repeated.between, self.repeated.within, self._confidence
        )

    @property
    def _confidence(self) -> float:
        return 1 - (1 - stats.CONFIDENCE) / self.pairs  # what Holm's correction asks of the first of them

    def verdict(self) -> str:
        """In one sentence."""
        low, high = self.interval
        many = "" if self.corrected == self.p else " (Holm)"
        p = f"p {_p(self.corrected)}{many}"
        if self.measure == "success":
            scale, unit = 100.0, " points"
        else:
            scale, unit = 1.0, " of reward"
        digits = 1 if self.measure == "success" else 3
        if self.separated:
            better, worse = (self.second, self.first) if self.difference > 0 else (self.first, self.second)
            ends = (low, high) if self.difference > 0 else (-high, -low)
            span = f"[{scale * ends[0]:.{digits}f}, {scale * ends[1]:.{digits}f}]"
            return f"{better} is better than {worse} by {scale * abs(self.difference):.{digits}f}{unit} {span}, {p}"
        span = f"{scale * self.difference:+.{digits}f}{unit} [{scale * low:.{digits}f}, {scale * high:.{digits}f}], {p}"
        if self.missing is None:
            return f"not separated: {self.first} and {self.second} show no difference, {span}"
        needed = f"{self.missing} more tasks would be needed"
        if self.attempts is not None:
            needed += f", or {self.attempts} attempts at each of these"
        elif self.repeated is not None:
            needed += " (more attempts at these would not do)"
        return f"not separated: {self.second} against {self.first} {span}; {needed}, if the difference is what it seems"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All pairs of several sides."""

    sides: tuple[Side, ...]
    contrasts: tuple[Contrast, ...]
    common: tuple[str, ...]
    """Ids of the tasks that every side was to play."""
    unlike: Mapping[str, tuple[Any, ...]]
    """Settings in which the sides differ, beside the model: path -> value of each side."""


def compare(entries: Sequence[Entry], measure: Measure = "success") -> Comparison:
    """Compare finished entries, each with each.

    Raises UserError where there are fewer than two, where one is not finished, or where they have not played the same.
    """
    if len(entries) < 2:
        raise UserError("a comparison takes two entries or more.")
    for entry in entries:
        if not entry.finished:
            raise UserError(f"{entry.path} is not finished; the command that began it goes on with it.")
    records = [entry.record for entry in entries]
    for name in SAME:
        found = [getattr(record, name) for record in records]
        if any(value != found[0] for value in found):
            raise UserError(f"these entries cannot be compared: {name} is {' and '.join(map(repr, _distinct(found)))}.")
    kept = set(records[0].task_ids).intersection(*(record.task_ids for record in records[1:]))
    if not kept:
        raise UserError("these entries cannot be compared: they have no task in common.")
    common = [task for task in records[0].task_ids if task in kept]
    sides = tuple(
        Side(
            name=name,
            entry=entry,
            record=record,
            results=tuple(r for t in entry.trajectories() if (r := result_of(t, record.success_at)).task in kept),
        )
        for name, entry, record in zip(_names(entries, records), entries, records, strict=True)
    )
    pairs = [_contrast(a, b, measure) for a, b in itertools.combinations(sides, 2)]
    corrected = stats.holm([pair["p"] for pair in pairs])
    contrasts = tuple(Contrast(**pair, corrected=p, pairs=len(pairs)) for pair, p in zip(pairs, corrected, strict=True))
    return Comparison(sides=sides, contrasts=contrasts, common=tuple(common), unlike=_unlike(records))


def _contrast(first: Side, second: Side, measure: Measure) -> dict[str, Any]:
    """The fields of a `Contrast` that need no other pair."""
    a, b = first.values(measure), second.values(measure)
    both = [task for task in a if task in b]
    if not both:
        raise UserError(f"{first.name} and {second.name} have no task at which both earned a score.")
    means = {task: (fmean(a[task]), fmean(b[task])) for task in both}
    differences = [y - x for x, y in means.values()]
    single = all(len(a[task]) == len(b[task]) == 1 for task in both)
    if single and measure == "success":
        interval = stats.tango(differences.count(1.0), differences.count(-1.0), len(both))
    else:
        interval = stats.mean_difference(differences)
    p, exact = stats.sign_flip(differences)
    played = {r.task for r in (*first.results, *second.results)}
    return {
        "first": first.name,
        "second": second.name,
        "measure": measure,
        "tasks": len(both),
        "single": single,
        "difference": fmean(differences),
        "interval": interval,
        "p": p,
        "exact": exact,
        "square": fmean(d * d for d in differences),
        # attempts with one number were drawn with one seed, so that they are pairs too
        "repeated": stats.variance_split([[y - x for x, y in zip(a[t], b[t], strict=False)] for t in both]),
        "differing": {task: pair for task, pair in means.items() if pair[0] != pair[1]},
        "left_out": len(played) - len(both),
        "bounds": _bounds(first, second),
    }


def _bounds(first: Side, second: Side) -> Interval | None:
    if all(r.scored for r in (*first.results, *second.results)):
        return None

    def share(side: Side, lost: bool) -> float:
        """Mean over tasks of success, where lost attempts had ended so."""
        ends: dict[str, list[bool]] = {}
        for r in side.results:
            ends.setdefault(r.task, []).append(r.success if r.scored else lost)
        return fmean(fmean(e) for e in ends.values())

    return share(second, False) - share(first, True), share(second, True) - share(first, False)


def _names(entries: Sequence[Entry], records: Sequence[Record]) -> list[str]:
    """The models' names; where two are the same, with the folder's."""
    names = [record.model for record in records]
    doubled = {name for name in names if names.count(name) > 1}
    named = [f"{n} ({e.path.resolve().name})" if n in doubled else n for n, e in zip(names, entries, strict=True)]
    if len(set(named)) == len(named):
        return named
    return [f"{n} ({e.path})" for n, e in zip(names, entries, strict=True)]


def _unlike(records: Sequence[Record]) -> dict[str, tuple[Any, ...]]:
    flat = [dict(_leaves(asdict(record))) for record in records]
    keys = [key for key in dict.fromkeys(itertools.chain(*flat)) if key.partition(".")[0] not in APART]
    found = {key: tuple(f.get(key) for f in flat) for key in keys}
    return {key: values for key, values in found.items() if any(v != values[0] for v in values)}


def _leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(path, value)]
    return [leaf for k, v in value.items() for leaf in _leaves(v, f"{path}.{k}" if path else str(k))]


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [v for i, v in enumerate(values) if v not in values[:i]]


def _p(p: float) -> str:
    if p < 1e-4:
        return "< 0.0001"
    return f"= {p:.4f}" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, for programs."""
    names = [f.name for f in fields(Contrast) if f.name != "differing"]
    return {
        "sides": [{"name": s.name, "entry": str(s.entry.path), "record": s.record.digest} for s in comparison.sides],
        "tasks": len(comparison.common),
        "unlike": dict(comparison.unlike),
        "contrasts": [
            {name: _plain(getattr(c, name)) for name in names}
            | {"verdict": c.verdict(), "separated": c.separated, "more_tasks": c.missing, "attempts": c.attempts}
            | {"differing": dict(c.differing)}
            for c in comparison.contrasts
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, stats.Split):
        return asdict(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value
