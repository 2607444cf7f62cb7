"""Verdicts: right for the pairs of our own, for the known faults of math-verify, and bounded for hostile answers."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.math.grade import Kind, grade

PAIRS = [
    json.loads(line) for line in (Path(__file__).parents[3] / "datasets/math/pairs.jsonl").read_text().splitlines()
]
"""A true answer, other spellings of it, and answers that are close but wrong."""


@pytest.mark.parametrize("row", PAIRS, ids=[row["gold"] for row in PAIRS])
def test_pairs(row: dict[str, str]) -> None:
    gold = row["gold"]
    assert [a for a in row["same"] if grade(a, gold).kind is not Kind.CORRECT] == []
    assert [a for a in row["different"] if grade(a, gold).kind not in (Kind.WRONG, Kind.UNPARSED)] == []


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        # math-verify 0.9.0 says equal
        (r"$\frac{1}{2004!}$", r"$\frac{1}{2006!}$", 0.0),
        (r"$1-\frac{1}{\mathrm{e}}$", r"$1+\frac{1}{\mathrm{e}}$", 0.0),
        ("$4$", r"$4\sqrt(2)$", 0.0),
        ("3*x-1*y+13=0", "3x + 4y + 14=0", 0.0),
        (r"$\frac{2^{2005}+1}{3\cdot 2^{2006}}$", r"$\frac{1}{3\cdot 2^{2006}}$", 0.0),
        # math-verify 0.9.0 says different
        (r"$\sqrt{1/n}$", r"$\frac{1}{\sqrt n}$", 1.0),
        (r"$\frac{\pi}{2}$", "pi/2", 1.0),
        ("$e^{16}-1$", "-1 + exp(16)", 1.0),
        ("$[0,1)$", r"$0 \le x < 1$", 1.0),
    ],
)
def test_known_false_verdicts(gold: str, answer: str, score: float) -> None:
    assert grade(answer, gold).score == score


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["$9^{9^{9^{9}}}$", "$(x+1)^{5000}$", r"$\int_0^1 e^{x^{x^x}}dx$"])
def test_hostile_answers_end_and_the_grader_stays_usable(answer: str) -> None:
    assert grade(answer, "$7$").kind in (Kind.WRONG, Kind.UNPARSED, Kind.GRADER_TIMEOUT)
    assert grade(r"\frac{14}{2}+x-x", "$7$").kind is Kind.CORRECT


def test_from_many_threads() -> None:
    """Case C1, and many at once."""
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(
            threads.map(lambda i: grade(rf"\boxed{{\frac{{{i}}}{{{3 * i}}}+x}}", r"\frac13 + x"), range(1, 40))
        )
        plain = list(threads.map(lambda _: grade(r"\boxed{\frac13}", "1/3"), range(8)))
    assert {v.kind for v in verdicts + plain} == {Kind.CORRECT}


def test_without_tags_and_with_unclosed_thinking() -> None:
    """Case C2."""
    assert grade("ASC 606-10-25-14", "ASC 606-10-25-14").kind is Kind.CORRECT
    assert grade("ASC 606-10-25-15", "ASC 606-10-25-14").score == 0.0
    assert grade("<think>abc", "abc").kind is Kind.UNPARSED


@pytest.mark.parametrize("answer", ["", "  ", "I do not know", "9 5", "....", "<think>95", "x" * 5000])
def test_no_number_where_one_was_asked_is_unparsed(answer: str) -> None:
    assert grade(answer, "95").kind is Kind.UNPARSED


def test_repeating_the_question_or_listing_all_answers_earns_nothing() -> None:
    everything = " ".join(map(str, range(200)))
    for answer in ("What is 37 + 58?", everything, everything.replace(" ", ", "), "95 96", "95 or 96", "1 2 3 95"):
        assert grade(answer, "95").score == 0.0


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet=r"\{}()[]^_+-*/=<>!|,.$%& 0123456789xyeipfracsqrt")))
def test_never_an_exception(answer: str) -> None:
    assert grade(answer, "95").kind in Kind
    assert grade(answer, r"\frac{x}{2}").kind in Kind


def test_a_row_of_math500_is_right_against_itself() -> None:
    folder = os.environ.get("HARNESS_TEST_DATA")
    if folder is None:
        pytest.skip("needs HARNESS_TEST_DATA, the folder that holds math/math500.jsonl")
    lines = (Path(folder) / "math" / "math500.jsonl").read_text().splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    assert len(answers) == 500
    for answer in answers:
        for reply in (answer, f"${answer}$", rf"So it is $\boxed{{{answer}}}$, as was to be shown."):
            assert grade(reply, answer).kind is Kind.CORRECT, (reply, answer)
