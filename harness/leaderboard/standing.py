"""Who stands where on a board.

Knows entries, their comparisons and their figures; draws nothing. Invariant: two entries have ranks that do not overlap
only where a paired test, corrected for the number of pairs, tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from harness.envs.registry import world_class

from .board import Board
from .compare import Contrast, compare
from .entry import Entry
from .record import Record
from .score import Scores


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One entry of a board."""

    name: str
    entry: Entry
    record: Record
    scores: Scores
    rank: tuple[int, int] | None
    """Best and worst rank that the tests leave open; None for what was graded by an older grader."""
    accepted: Mapping[str, Any]
    """The line of the board's history."""

    @property
    def ranks(self) -> str:
        """`2`, or `2-4`, or `-`."""
        if self.rank is None:
            return "-"
        best, worst = self.rank
        return str(best) if best == worst else f"{best}-{worst}"

    @property
    def seconds(self) -> float | None:
        """Wall time of playing, over all sittings; None where it was not noted."""
        noted = [s["seconds"] for s in self.entry.sessions() if isinstance(s.get("seconds"), (int, float))]
        return sum(noted) if noted else None

    @property
    def hardware(self) -> str:
        """Where it was played, in a few words."""
        for sitting in self.entry.sessions():
            facts = sitting.get("hardware")
            if isinstance(facts, dict):
                parts = [facts.get("gpu") or facts.get("cpu"), facts.get("cores") and f"{facts['cores']} cores"]
                return ", ".join(str(p) for p in parts if p)
        return ""


def standing(board: Board) -> list[Row]:
    """The rows of a board, best first; what an older grader graded comes last, unranked. Raises UserError."""
    world = world_class(board.card.env).world
    entries, lines = board.entries(), board.accepted()
    now = (world.version, world.grader_version)
    current = {n: e for n, e in entries.items() if (e.record.world_version, e.record.grader_version) == now}
    ranks = _ranks(list(current.values()))
    ranked = dict(zip(current, ranks, strict=True))
    rows = [
        Row(
            name=name,
            entry=entry,
            record=entry.record,
            scores=entry.scores(),
            rank=ranked.get(name),
            accepted=lines[name],
        )
        for name, entry in entries.items()
    ]
    return sorted(rows, key=_merit)


def _merit(row: Row) -> tuple[bool, int, int, float, str]:
    best, worst = row.rank or (0, 0)
    success = row.scores.success
    return row.rank is None, best, worst, -success.value if success.n else 1.0, row.name


def _ranks(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Best and worst rank of each: as many are surely better, as many surely worse."""
    if len(entries) < 2:
        return [(1, 1)] * len(entries)
    better = [[False] * len(entries) for _ in entries]
    for (i, j), contrast in zip(combinations(range(len(entries)), 2), compare(entries).contrasts, strict=True):
        if _apart(contrast):
            winner, loser = (j, i) if contrast.difference > 0 else (i, j)
            better[winner][loser] = True
    above = [sum(better[other][i] for other in range(len(entries))) for i in range(len(entries))]
    below = [sum(better[i]) for i in range(len(entries))]
    return [(1 + above[i], len(entries) - below[i]) for i in range(len(entries))]


def _apart(contrast: Contrast) -> bool:
    """Told apart by the test, and whatever the lost attempts would have been."""
    bounds = contrast.bounds
    return contrast.separated and (bounds is None or bounds[0] > 0 or bounds[1] < 0)
