"""Figures: intervals against scipy, lost attempts in no denominator."""

from __future__ import annotations

import json
import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.types import SCORED, Completion, Outcome, Trajectory, Turn
from harness.envs.base import Task
from harness.leaderboard.score import Proportion, Scores, as_json, result_of, score

FRESH = count()


def attempt(
    reward: float, outcome: Outcome = Outcome.DONE, kind: str = "", turns: int = 1, task: str = "", number: int = 0
) -> Trajectory:
    """At a task of its own, unless one is named."""
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
    return Trajectory(
        task=Task(env="e", id=task or str(next(FRESH)), split="s"),
        attempt=number,
        opening="o",
        task_type=kind,
        turns=(turn,) * turns,
        reward=reward,
        outcome=outcome,
    )


def scored(played: list[Trajectory], success_at: float = 1.0) -> Scores:
    return score(result_of(t, success_at) for t in played)


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


REPEATED = [
    attempt(won, task=task, kind=kind, number=i)
    for task, kind, wins in (
        ("a", "heat", (1, 1, 1, 0)),
        ("b", "heat", (0, 0, 0, 0)),
        ("c", "cool", (1, 0, 0, 0)),
        ("d", "cool", (1, 1, 1, 1)),
    )
    for i, won in enumerate(wins)
]


def test_repeats_are_clusters() -> None:
    scores = scored(REPEATED)
    success = scores.success
    assert (success.successes, success.n) == (8, 16)
    assert success.effective == pytest.approx(4.8)  # tasks differ so much that four attempts say hardly more than one
    low, high = success.interval
    assert high - low > 0.6
    assert scores.average is not None
    assert scores.average.value == 0.5
    assert scores.split is not None
    assert scores.split.within == pytest.approx((0.75 + 0 + 0.75 + 0) / 12)
    assert 0.5 < scores.split.share < 1


def test_pass_at_k_and_all_of_k() -> None:
    scores = scored(REPEATED)
    assert {k: f.value for k, f in scores.pass_any.items()} == {2: (1 + 0 + 0.5 + 1) / 4, 4: 0.75}
    assert {k: f.value for k, f in scores.pass_all.items()} == {2: (0.5 + 0 + 0 + 1) / 4, 4: 0.25}


def test_lost_attempts_leave_a_task_out_of_large_k_only() -> None:
    played = [*REPEATED[:3], attempt(1, Outcome.TIMEOUT, task="a", number=3), *REPEATED[4:]]
    scores = scored(played)
    assert scores.lost == {"timeout": 1}
    assert {k: f.n for k, f in scores.pass_any.items()} == {2: 4, 4: 3}
    assert scores.pass_any[4].value == pytest.approx(2 / 3)


def test_macro_is_the_mean_over_types_whatever_their_size() -> None:
    scores = scored([*(attempt(1, kind="heat") for _ in range(9)), attempt(0, kind="cool")])
    assert scores.success.value == 0.9
    assert scores.macro is not None
    assert scores.macro.value == 0.5
    low, high = scores.macro.interval
    assert 0 <= low < 0.5 < high <= 1


def test_single_attempts_say_nothing_of_repeats() -> None:
    scores = scored([attempt(1), attempt(0)])
    assert (scores.average, scores.split, scores.pass_any, scores.pass_all) == (None, None, {}, {})
    assert scores.success.effective is None


def test_written_figures_are_plain_and_finite() -> None:
    for played in (REPEATED, [attempt(1)], [], [attempt(0.25, turns=3), attempt(0.5)]):
        text = json.dumps(as_json(scored(played)), allow_nan=False)
        assert json.loads(text)["n"] == len(played)


def test_text() -> None:
    assert str(Proportion(successes=26, n=50)) == "52.0% [38.5, 65.2]"
