"""Generated questions, their working, and splits that share nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.math.arithmetic import LEVELS, SPLITS, problem, work_out

LEVEL = st.sampled_from(sorted(LEVELS))


@settings(deadline=None)
@given(split=st.sampled_from(SPLITS), level=LEVEL, index=st.integers(0, 2**31))
def test_the_working_is_true_line_by_line_and_leads_to_the_answer(split: str, level: int, index: int) -> None:
    made = problem(split, level, index)
    asked = re.fullmatch(r"What is ([\d +*-]+)\?", made.question)
    assert asked is not None
    assert eval(asked[1]) == made.answer
    working, answer = work_out(made.question)
    assert answer == made.answer >= 0
    for step in re.split(r", so |, |\. ", working):
        left, right = step.split(" = ")
        assert eval(left) == int(right)
    assert len(made.question + working) < 200


@settings(deadline=None)
@given(level=LEVEL, indices=st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_no_question_is_in_two_splits_even_turned_round(level: int, indices: list[int]) -> None:
    asked = {split: {problem(split, level, i).question for i in indices} for split in SPLITS}
    turned = {re.sub(r"(\d+) ([+*]) (\d+)", r"\3 \2 \1", q, count=1) for q in asked["train"]}
    assert not (asked["train"] | turned) & (asked["valid_unseen"] | asked["test"])
    assert not asked["valid_unseen"] & asked["test"]


@pytest.mark.parametrize(
    ("question", "working"),
    [
        ("What is 37 + 58?", "7 + 8 = 15, 3 + 5 + 1 = 9"),
        ("What is 5 + 37?", "5 + 7 = 12, 0 + 3 + 1 = 4"),
        ("What is 52 - 17?", "12 - 7 = 5, 5 - 1 - 1 = 3"),
        ("What is 100 - 1?", "10 - 1 = 9, 10 - 0 - 1 = 9, 1 - 0 - 1 = 0"),
        ("What is 37 * 6?", "7 * 6 = 42, 3 * 6 + 4 = 22"),
        ("What is 3 * 6 + 15?", "3 * 6 = 18, so 3 * 6 = 18. 8 + 5 = 13, 1 + 1 + 1 = 3"),
    ],
)
def test_working(question: str, working: str) -> None:
    assert work_out(question)[0] == working


def test_problems_stay_the_same() -> None:
    """These keys are in people's results: a change here needs a new version of the world."""
    assert [problem("valid_unseen", 3, i).question for i in range(2)] == ["What is 465 + 255?", "What is 577 - 94?"]
