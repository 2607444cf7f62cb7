"""Advantages against exact figures, an independent computation, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rl.algorithm.advantage import (
    centred,
    leave_one_out,
    no_baseline,
    standardized,
    with_advantages,
)
from harness.rl.experience import Experience, ExperienceGroup

ESTIMATORS = [centred, standardized, leave_one_out, no_baseline]
BASELINES = [centred, standardized, leave_one_out]


def experience(attempt: int, reward: float | None, *, sequence: int = 0, length: int = 4) -> Experience:
    mask = np.arange(length) % 2 == 1
    return Experience(
        key=f"g#{attempt}.{sequence}",
        task_key="echo/train/0",
        group="g",
        attempt=attempt,
        versions=(0, 0),
        reward=reward,
        tokens=np.arange(length, dtype=np.int32),
        mask=mask,
        logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
    )


def group(*rewards: float | None, dropped: dict[str, int] | None = None) -> ExperienceGroup:
    """A lost attempt is a None among the rewards: it leaves no experience."""
    found = tuple(experience(i, r) for i, r in enumerate(rewards) if r is not None)
    return ExperienceGroup(group="g", task_key="echo/train/0", experiences=found, dropped=dropped or {})


def advantage_of(e: Experience) -> float:
    assert e.advantages is not None
    assert e.advantages.dtype == np.float32
    assert not e.advantages[~e.mask].any()
    (value,) = set(e.advantages[e.mask].tolist())
    return float(value)


def by_attempt(found: ExperienceGroup) -> dict[int, float]:
    return {e.attempt: advantage_of(e) for e in found.experiences}


def test_lost_attempts_are_in_no_mean_deviation_or_denominator() -> None:
    """Case C11."""
    a = by_attempt(with_advantages(group(1.0, 0.0, None, 1.0, dropped={"timeout": 1}), centred).group)
    b = by_attempt(with_advantages(group(0.0, 0.0, 1.0, 1.0), centred).group)
    assert a == pytest.approx({0: 1 / 3, 1: -2 / 3, 3: 1 / 3})
    assert b == pytest.approx({0: -0.5, 1: -0.5, 2: 0.5, 3: 0.5})


@pytest.mark.parametrize("estimator", BASELINES)
def test_group_of_two_equal_and_one_lost_is_zero_and_flat(estimator: object) -> None:
    found = with_advantages(group(1.0, 1.0, None, dropped={"timeout": 1}), estimator)  # type: ignore[arg-type]
    assert by_attempt(found.group) == {0: 0.0, 1: 0.0}
    assert found.flat
    assert found.group.dropped == {"timeout": 1}


def test_standardized_figures_with_and_without_a_lost_attempt() -> None:
    # Deviation of 1, 0, 1 is sqrt(1/3) over the sample; of 1, 0, 0, 1 (lost counted as 0) it would be another.
    assert standardized(np.array([1.0, 0.0, 1.0])) == pytest.approx([3**-0.5, -2 * 3**-0.5, 3**-0.5], rel=1e-5)
    assert standardized(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx([-(0.75**0.5)] * 2 + [0.75**0.5] * 2, rel=1e-5)


def test_leave_one_out_figures() -> None:
    assert leave_one_out(np.array([1.0, 0.0, 1.0])) == pytest.approx([0.5, -1.0, 0.5])


def test_no_baseline_is_the_reward_and_flat_only_where_all_are_zero() -> None:
    assert by_attempt(with_advantages(group(1.0, 0.0), no_baseline).group) == {0: 1.0, 1: 0.0}
    assert not with_advantages(group(1.0, 1.0), no_baseline).flat
    assert with_advantages(group(0.0, 0.0), no_baseline).flat


def test_an_attempt_of_several_sequences_counts_once() -> None:
    several = ExperienceGroup(
        group="g",
        task_key="echo/train/0",
        experiences=(
            experience(0, 1.0, sequence=0),
            experience(0, 1.0, sequence=1, length=9),
            experience(0, 1.0, sequence=2),
            experience(1, 0.0),
        ),
    )
    found = with_advantages(several, centred).group
    assert [advantage_of(e) for e in found.experiences] == [0.5, 0.5, 0.5, -0.5]


def test_rewards_that_cannot_be_trained_on_are_refused() -> None:
    for bad in (None, float("nan"), float("inf")):
        held = ExperienceGroup(group="g", task_key="t", experiences=(experience(0, 1.0), experience(1, bad)))
        with pytest.raises(ValueError, match=r"g#1\.0"):
            with_advantages(held, centred)
    torn = ExperienceGroup(group="g", task_key="t", experiences=(experience(0, 1.0), experience(0, 0.5, sequence=1)))
    with pytest.raises(ValueError, match=r"rewards 1\.0 and 0\.5"):
        with_advantages(torn, centred)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_empty_group_and_a_group_of_one(estimator: object) -> None:
    empty = with_advantages(group(), estimator)  # type: ignore[arg-type]
    assert empty.flat
    assert empty.group.experiences == ()
    one = by_attempt(with_advantages(group(0.7), estimator).group)  # type: ignore[arg-type]
    assert one == {0: pytest.approx(0.7 if estimator is no_baseline else 0.0)}


rewards = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=1, max_size=9)


@given(rewards)
def test_against_an_independent_computation(values: list[float]) -> None:
    n = len(values)
    mean = sum(values) / n
    variance = sum((v - mean) ** 2 for v in values) / (n - 1) if n > 1 else 0.0
    r = np.array(values)
    assert centred(r) == pytest.approx([v - mean for v in values], abs=1e-9)
    assert standardized(r) == pytest.approx([(v - mean) / (variance**0.5 + 1e-6) for v in values], abs=1e-6)
    others = [v - (sum(values) - v) / (n - 1) if n > 1 else 0.0 for v in values]
    assert leave_one_out(r) == pytest.approx(others, abs=1e-8)


@given(rewards, st.floats(-5, 5))
def test_baselines_sum_to_zero_and_ignore_a_shift(values: list[float], shift: float) -> None:
    r = np.array(values)
    for estimator in (centred, leave_one_out):
        assert estimator(r).sum() == pytest.approx(0.0, abs=1e-8)
        assert estimator(r + shift) == pytest.approx(estimator(r), abs=1e-8)


@given(st.floats(-10, 10), st.integers(1, 9))
def test_equal_rewards_give_exact_zeros(value: float, n: int) -> None:
    for estimator in BASELINES:
        assert not estimator(np.full(n, value)).any()
