"""Progress for people: one live line in a terminal, a plain line now and then where there is none.

Knows nothing of what it shows: phases, counts, and figures as text. Invariant: nothing but whole lines is written
where the output is no terminal, so that logs stay readable.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 30, low: float | None = None, high: float | None = None) -> str:
    """The values as a row of blocks, averaged down to `width`; nan is a gap.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    if not values:
        return ""
    cells = [_mean(values[len(values) * i // width : len(values) * (i + 1) // width]) for i in range(width)]
    cells = list(values) if len(values) <= width else cells
    finite = [v for v in cells if math.isfinite(v)]
    if not finite:
        return " " * len(cells)
    bottom = min(finite) if low is None else low
    top = max(finite) if high is None else high
    span = (top - bottom) or 1.0

    def block(v: float) -> str:
        return BLOCKS[min(7, max(0, round((v - bottom) / span * 7)))] if math.isfinite(v) else " "

    return "".join(block(v) for v in cells)


def _mean(values: Sequence[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan


def duration(seconds: float) -> str:
    """A length of time, short.

    >>> duration(75), duration(3 * 3600 + 120)
    ('1m15s', '3h02m')
    """
    s = max(0, round(seconds))
    if s < 60:
        return f"{s}s"
    return f"{s // 60}m{s % 60:02d}s" if s < 3600 else f"{s // 3600}h{s % 3600 // 60:02d}m"


class Display:
    """Shows one phase at a time. Use as a context manager.

    >>> with Display(Console(width=100, force_terminal=False)) as show:
    ...     show.phase("play", 2)
    ...     show.update(2, {"success": "50%"})
    play: 0/2
    play: 2/2, success 50%, 0s
    """

    def __init__(self, console: Console | None = None, *, every: float = 15.0) -> None:
        """every: least seconds between two plain lines of a phase."""
        self.console = console or Console()
        self._every = every
        self._live: Live | None = None
        self._spinner = Spinner("dots", style="cyan")  # one for all redraws: it keeps the time of its turning
        self._title, self._total, self._done = "", 0, 0
        self._figures: dict[str, str] = {}
        self._began = self._printed = time.monotonic()
        self._first = 0
        self._said = True

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._close_phase()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, title: str, total: int, done: int = 0) -> None:
        """Begin the next thing: `total` pieces of work, `done` of them from an earlier sitting."""
        if title != self._title:  # the same one again only learns its total
            self._close_phase()
            if self._live is None:
                self.console.print(f"{title}: {done}/{total}", highlight=False, soft_wrap=True, markup=False)
        self._title, self._total, self._done, self._first = title, total, done, done
        self._figures = {}
        self._began = self._printed = time.monotonic()
        self._said = False

    def update(self, done: int, figures: Mapping[str, str] | None = None) -> None:
        """`done` pieces are finished; the figures stand beside the bar, in their order."""
        self._done = done
        self._figures = dict(figures or {})
        self._said = False
        if self._live is None and time.monotonic() - self._printed >= self._every and done < self._total:
            self._print()

    def line(self, text: str | Text) -> None:
        """A line that stays."""
        self.console.print(text, highlight=False)

    @property
    def remaining(self) -> float | None:
        """Seconds left at the pace so far, or None while nothing is known."""
        done = self._done - self._first
        if done <= 0 or self._total <= 0:
            return None
        return (time.monotonic() - self._began) / done * (self._total - self._done)

    def __rich__(self) -> Group | Text:
        if not self._title:
            return Text("")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            self._spinner,
            Text(self._title, style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=28, complete_style="cyan"),
            Text(f"{self._done}/{self._total}"),
            Text(self._times(), style="dim"),
        )
        figures = Text("  ")
        for name, text in self._figures.items():
            figures.append(f"{name} ", style="dim").append(text).append("   ")
        return Group(bar, figures)

    def _times(self) -> str:
        spent = duration(time.monotonic() - self._began)
        left = self.remaining
        return spent if left is None or self._done >= self._total else f"{spent}, {duration(left)} left"

    def _close_phase(self) -> None:
        if self._title and not self._said:
            self._print()
        self._title = ""

    def _print(self) -> None:
        figures = "".join(f", {name} {text}" for name, text in self._figures.items())
        text = f"{self._title}: {self._done}/{self._total}{figures}, {self._times()}"
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)
        self._printed = time.monotonic()
        self._said = True
