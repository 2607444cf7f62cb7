"""Plain numbers: what they are, and when two are the same."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.math.numbers import number, same_number, split_unit, squeezed


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12))
def test_every_spelling_of_an_integer_is_that_integer(value: int) -> None:
    for text in (f"{value}", f"{value:,}", f"{value}.0", f"{value}/1", rf"\frac{{{value}}}{{1}}"):
        found = number(text)
        assert found is not None
        assert found.value == value


@settings(deadline=None)
@given(st.integers(-1000, 1000), st.integers(1, 1000))
def test_a_fraction_is_that_fraction(top: int, bottom: int) -> None:
    found = number(rf"\frac{{{top}}}{{{bottom}}}")
    assert found is not None
    assert found.value == Fraction(top, bottom)


@pytest.mark.parametrize(
    "text", ["", "x", "1,2", "1,0000", "1 2", "1/0", "--1", "1.2.3", "1e9999", "9" * 500, "1 /", "."]
)
def test_what_is_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        (r"\frac{1}{3}", "0.333333", True),
        (r"\frac{1}{3}", "0.33", False),
        ("0.0000001", "0.0000002", False),  # equal when rounded to six places, and yet not
        ("2.5", "2 1/2", True),
        (r"137 \frac{1}{2}", "137.5", True),
        (r"1.5 \times 10^{3}", "1500", True),
        ("7", "7.000001", False),
    ],
)
def test_same(gold: str, answer: str, same: bool) -> None:
    g, a = number(gold), number(answer)
    assert g is not None
    assert a is not None
    assert same_number(g, a) is same


@pytest.mark.parametrize(
    ("text", "bare", "unit"),
    [
        ("18 dollars", "18", "dollar"),
        (r"15\text{ cm}^2", "15", "cm^2"),
        ("15 square centimeters", "15", "cm^2"),
        ("864 square inches", "864", "in^2"),
        ("5%", "5", "%"),
        ("5 hours", "5", "h"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}7", ""),
        ("2m", "2", "m"),
        ("x", "x", ""),
        ("sin", "sin", ""),
    ],
)
def test_unit(text: str, bare: str, unit: str) -> None:
    assert split_unit(text) == (bare, unit)


def test_digits_apart_are_not_one_number() -> None:
    assert squeezed("1 8") != squeezed("18")
    assert squeezed("x + 1 8") == "x+1 8"
