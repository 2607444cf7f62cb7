"""Figures: intervals against scipy, lost attempts in no denominator."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from harness.agents.types import SCORED, Completion, Outcome, Trajectory, Turn
from harness.envs.base import Task
from harness.leaderboard.score import Proportion, Scores, as_json, result_of, score, wilson


def attempt(reward: float, outcome: Outcome = Outcome.DONE, kind: str | None = None, turns: int = 1) -> Trajectory:
    turn = Turn(
        prompt_tokens=(1, 2, 3),
        restart=False,
        completion=Completion(tokens=(4, 5), logprobs=(-1.0, -1.0), text="a", finish="stop"),
        thought="",
        action="a",
        problem=None,
        observation="o",
        reward=reward,
    )
    task = Task(env="e", id="1", split="s")
    return Trajectory(
        task=task,
        attempt=0,
        opening="o",
        task_type=kind or "",
        turns=(turn,) * turns,
        reward=reward,
        outcome=outcome,
    )


def scored(played: list[Trajectory], success_at: float = 1.0) -> Scores:
    return score(result_of(t, success_at) for t in played)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (26, 50, 0.385, 0.652),
        (29, 50, 0.442, 0.706),
        (0, 50, 0, 0.071),
        (95, 500, 0.158, 0.227),
        (130, 500, 0.223, 0.300),
    ],
)
def test_c18_intervals(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-4)


@given(
    st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95, 0.99])
)
def test_wilson_equals_scipy(successes_n: tuple[int, int], confidence: float) -> None:
    successes, n = successes_n
    truth = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx((truth.low, truth.high), abs=1e-12)


def test_wilson_at_the_edges() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    with pytest.raises(ValueError, match="cannot be"):
        wilson(3, 2)


@given(st.lists(st.tuples(st.sampled_from(list(Outcome)), st.booleans()), max_size=30))
def test_lost_attempts_are_in_no_mean_and_all_are_counted(played: list[tuple[Outcome, bool]]) -> None:
    scores = scored([attempt(float(won), outcome) for outcome, won in played])
    kept = [won for outcome, won in played if outcome in SCORED]
    assert (scores.success.successes, scores.success.n) == (sum(kept), len(kept))
    assert scores.n == sum(scores.outcomes.values()) == len(played)
    assert scores.mean_reward == (pytest.approx(sum(kept) / len(kept)) if kept else None)
    low, high = scores.bounds
    if played:
        assert low == sum(kept) / len(played)
        assert high == pytest.approx(low + (len(played) - len(kept)) / len(played))
    if len(kept) == len(played) > 0:
        assert low == high == scores.success.value


def test_success_is_the_worlds_own_mark() -> None:
    played = [attempt(0.1 + 0.2), attempt(0.29)]
    assert scored(played, 0.3).success == Proportion(successes=1, n=2)


def test_per_type_steps_and_tokens() -> None:
    scores = scored([attempt(1, kind="heat", turns=3), attempt(0, kind="heat"), attempt(1, kind="cool", turns=2)])
    assert scores.by_type == {"cool": Proportion(successes=1, n=1), "heat": Proportion(successes=1, n=2)}
    assert scores.steps == 2
    assert scores.prompt_tokens == 6
    assert scores.sampled_tokens == 4


def test_nothing_scored() -> None:
    scores = scored([attempt(0, Outcome.TIMEOUT)])
    assert math.isnan(scores.success.value)
    assert str(scores.success) == "no score"
    figures = as_json(scores)
    assert figures["success"] == {"successes": 0, "n": 0, "value": None, "low": 0.0, "high": 1.0}
    assert figures["bounds"] == [0.0, 1.0]
    assert figures["lost"] == {"timeout": 1}


def test_text() -> None:
    assert str(Proportion(successes=26, n=50)) == "52.0% [38.5, 65.2]"
