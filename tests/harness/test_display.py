"""Progress: whole lines in logs, a live line in terminals."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.display import BLOCKS, Display, duration, sparkline

from .conftest import text_of


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=80), st.integers(1, 40))
def test_sparkline_is_blocks_of_at_most_the_width(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= {*BLOCKS, " "}


def test_sparkline_rises_with_its_values() -> None:
    assert sparkline(list(range(8))) == BLOCKS
    assert sparkline([1.0, math.nan, 2.0]) == "▁ █"
    assert sparkline([3.0] * 5) == BLOCKS[0] * 5
    assert sparkline([0.5], low=0, high=1) in BLOCKS[3:5]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0s"), (59.4, "59s"), (60, "1m00s"), (75, "1m15s"), (3599, "59m59s"), (7320, "2h02m")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_logs_get_a_line_when_a_phase_begins_and_when_it_ends(console: Console) -> None:
    with Display(console, every=1000) as show:
        show.phase("one", 3)
        for i in range(4):
            show.update(i, {"loss": f"[{i}]"})
        show.phase("two", 5, done=2)
        show.update(3)
    begun, one, next_begun, two = text_of(console).splitlines()
    assert (begun, next_begun) == ("one: 0/3", "two: 2/5")
    assert one.startswith("one: 3/3, loss [3], ")
    assert two.startswith("two: 3/5, ")


def test_long_phases_speak_now_and_then(console: Console) -> None:
    with Display(console, every=0) as show:
        show.phase("one", 3)
        for i in (1, 2, 3):
            show.update(i)
    assert [line.partition(",")[0] for line in text_of(console).splitlines()] == [f"one: {i}/3" for i in range(4)]


def test_remaining_counts_only_this_sitting(console: Console) -> None:
    with Display(console) as show:
        show.phase("one", 100, done=90)
        assert show.remaining is None
        show.update(95)
        left = show.remaining
        assert left is not None
        assert left >= 0


def test_live_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with Display(console) as show:
        show.phase("one", 2)
        show.update(1, {"success": "50% [10, 90]"})
        show.line("a line that stays [x]")
    text = text_of(console)
    assert "one" in text
    assert "a line that stays" in text
