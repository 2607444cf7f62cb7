"""How much must be played to tell two models apart: tasks and repeats, before anything is spent.

Pure functions on numbers. The model: task i is solved with chance p_i, drawn around the success rate; the two models'
chances go together from task to task as far as `likeness` says. Invariant: the same formula as behind the verdicts of
`compare`, a paired test at 95% that finds the difference four times in five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import stats

REPEATS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What is assumed of two models, or was seen of them."""

    success: float = 0.5
    """Of both, about; 0.5 is the costliest."""
    share: float = 0.5
    """Share of an attempt's variance that lies between tasks, 0 to 1 (see `stats.Split`)."""
    likeness: float = 0.5
    """Correlation of the two models' chances over tasks, 0 to 1: do they find the same tasks hard?"""

    def square(self, difference: float, repeats: int) -> float:
        """Mean squared difference of a task's two mean successes over `repeats` attempts."""
        spread = self.success * (1 - self.success)
        between = 2 * self.share * spread * (1 - self.likeness)
        within = 2 * (1 - self.share) * spread / repeats
        return between + within + difference**2

    def tasks(self, difference: float, repeats: int) -> int:
        """Tasks that show this difference."""
        return stats.tasks_needed(difference, self.square(difference, repeats))

    def difference(self, tasks: int, repeats: int) -> float | None:
        """The smallest difference that so many tasks show, or None where none does."""
        low, high = 1e-4, 1.0
        if self.tasks(high, repeats) > tasks:
            return None
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.tasks(middle, repeats) <= tasks else (middle, high)
        return high


def outlook(groups: Sequence[Sequence[float]], other: Sequence[Sequence[float]] | None = None) -> Outlook:
    """From a pilot: successes by task of one model, or of two at the same tasks in the same order.

    What the pilot cannot tell keeps its default: the share where no task was repeated, the likeness without a second
    model or without a share.
    """
    values = [v for group in (*groups, *(other or ())) for v in group]
    default = Outlook()
    success = sum(values) / len(values)
    splits = [s for g in (groups, other) if g and (s := stats.variance_split(g)) is not None]
    between = [s.between for s in splits]
    total = sum(s.between + s.within for s in splits)
    share = sum(between) / total if total > 0 else default.share
    likeness = default.likeness
    if other and len(splits) == 2 and min(between) > 0:
        a = [sum(g) / len(g) for g in groups]
        b = [sum(g) / len(g) for g in other]
        mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
        together = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (len(a) - 1)
        likeness = min(1.0, max(0.0, together / (between[0] * between[1]) ** 0.5))
    return Outlook(success=min(0.99, max(0.01, success)), share=share, likeness=likeness)
