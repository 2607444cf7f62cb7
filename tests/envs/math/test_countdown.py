"""Countdown: problems that can be solved, and a verifier that takes nothing else for a solution."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.errors import UserError
from harness.envs.math.countdown import LEVELS, Problem, asked, problem, solve, verify
from harness.envs.math.world import Math

GIVEN = Problem((44, 19, 35), 98)


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("split", Math.world.splits)
def test_the_expert_gets_full_marks(level: int, split: str) -> None:
    world = Math()
    for task in Math.tasks(split, source="countdown", level=level)[:5]:
        observation, info = world.reset(options={"task": task})
        expert = world.expert()
        assert expert is not None
        assert world.step(expert.act(observation, info)[1])[:2] == ("Correct.", 1.0)


def test_no_problem_is_in_two_splits_and_an_index_is_for_ever() -> None:
    assert problem("train", 1, 0) == problem("train", 1, 0)
    seen = [
        {(tuple(sorted(p.numbers)), p.target) for p in (problem(s, 1, i) for i in range(300))}
        for s in ("train", "test")
    ]
    assert not seen[0] & seen[1]
    assert all(asked(problem("train", level, 3).question) == problem("train", level, 3) for level in LEVELS)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("44 + 19 + 35", "correct"),
        ("(19+35) + 44 = 98", "correct"),
        (r"$44 + 19 + 35$", "correct"),
        ("35 − -44 + 19", "unparsed"),  # no signs of numbers
        ("98", "wrong"),
        ("44 + 19 + 35 + 0", "wrong"),
        ("44 + 54", "wrong"),
        ("44 + 19 + 35 = 99", "unparsed"),
        ("44 + 19 + 35 = 44 + 54", "unparsed"),
        ("44 // 19 + 35", "unparsed"),
        ("44 ** 19 + 35", "unparsed"),
        ("4419 + 35", "wrong"),
        ("44 / (19 - 19) + 35", "wrong"),
        ("__import__('os')", "unparsed"),
        ("(" * 250, "unparsed"),
        ("", "unparsed"),
    ],
)
def test_verdicts(answer: str, kind: str) -> None:
    assert verify(answer, GIVEN) == kind


def test_fractions_are_exact() -> None:
    assert verify("8 / (3 - 8 / 3)", Problem((8, 3, 8, 3), 24)) == "correct"
    assert verify(r"\frac{8}{3 - \frac{8}{3}}", Problem((8, 3, 8, 3), 24)) == "correct"
    assert solve(Problem((8, 3, 8, 3), 24)) is not None
    assert solve(Problem((1, 1), 98)) is None


@settings(deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/()=. ×÷[]\\{}frac")))
def test_never_an_exception(answer: str) -> None:
    assert verify(answer, GIVEN) in ("correct", "wrong", "unparsed")


def test_levels_are_its_own() -> None:
    with pytest.raises(UserError, match="option level of math must be one of: 1"):
        Math.tasks("train", source="countdown", level=5)
