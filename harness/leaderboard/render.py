"""Boards as Markdown, from finished entries.

Invariant: one table holds only entries that played the same tasks of the same world version under the same step
limit; others stand in tables of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .entry import Entry, Record
from .score import Scores


@dataclass(frozen=True, slots=True)
class Row:
    """One entry with its figures."""

    record: Record
    scores: Scores


def tables(entries: Iterable[Entry]) -> list[tuple[str, list[Row]]]:
    """Comparable entries together, under a title; best first."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for entry in entries:
        r = entry.record
        options = json.dumps(r.options, sort_keys=True)
        key = (r.env, r.split, r.world_version, options, r.max_steps, tuple(r.task_ids))
        groups[key].append(Row(r, entry.scores()))
    named = [(_title(rows[0].record), sorted(rows, key=_merit)) for rows in groups.values()]
    return sorted(named, key=lambda t: t[0])


def markdown(entries: Iterable[Entry]) -> str:
    """The whole board."""
    parts = ["# Board", ""]
    for title, rows in tables(entries):
        parts += [f"## {title}", "", *_table(rows), ""]
    if len(parts) == 2:
        parts += ["No finished entry yet.", ""]
    parts += [
        "Success with its 95% Wilson interval, over attempts that earned a score; attempts lost to a fault of world,",
        "model or grader are counted apart, and `bounds` says where success would lie had they all failed or all",
        "succeeded. Ranks follow the point estimate: overlapping intervals are not separated.",
        "",
    ]
    return "\n".join(parts)


def _title(r: Record) -> str:
    options = "".join(f", {k}={v}" for k, v in sorted(r.options.items()))
    return f"{r.env} {r.split}, {len(r.task_ids)} tasks, {r.max_steps} steps{options} (world version {r.world_version})"


def _merit(row: Row) -> tuple[float, str]:
    s = row.scores.success
    return (-s.value if s.n else 1.0, row.record.model)


def _table(rows: Sequence[Row]) -> list[str]:
    head = ["Rank", "Model", "Success", "95% interval", "n", "Lost", "Bounds", "Mean reward", "Steps", "T", "Seed"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --: |" + " :-- |" + " --: |" * (len(head) - 2)]
    for rank, row in enumerate(rows, start=1):
        r, s = row.record, row.scores
        low, high = s.success.interval
        lost = sum(s.lost.values())
        cells = [
            str(rank),
            r.model.replace("|", "\\|"),
            f"{100 * s.success.value:.1f}%" if s.success.n else "-",
            f"{100 * low:.1f} to {100 * high:.1f}",
            str(s.success.n),
            str(lost),
            f"{100 * s.bounds[0]:.1f} to {100 * s.bounds[1]:.1f}" if lost else "",
            "-" if s.mean_reward is None else f"{s.mean_reward:.3f}",
            "-" if s.steps is None else f"{s.steps:.1f}",
            f"{r.sampling['temperature']:g}" if "temperature" in r.sampling else "",
            str(r.seed),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
