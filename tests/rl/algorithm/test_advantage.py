"""Advantages against exact figures, an independent computation, and properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.errors import UserError
from harness.rl.algorithm.advantage import (
    centred,
    explained,
    gae,
    leave_one_out,
    no_baseline,
    standardized,
    whitened,
    with_advantages,
    with_critic,
)
from harness.rl.experience import Expected, Experience, ExperienceGroup

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


def test_gae_by_hand() -> None:
    """Two turns with an observation between them, gamma 0.9 and lambda 0.5."""
    mask = np.array([False, True, True, False, False, True])
    values = np.array([7.0, 0.2, 0.4, 7.0, 7.0, 0.6], np.float32)
    advantages, returns = gae(values, mask, 1.0, gamma=0.9, lam=0.5)
    last = 1.0 - 0.6
    middle = 0.9 * 0.6 - 0.4 + 0.45 * last
    first = 0.9 * 0.4 - 0.2 + 0.45 * middle
    assert advantages == pytest.approx([0, first, middle, 0, 0, last])
    assert returns == pytest.approx([0, first + 0.2, middle + 0.4, 0, 0, 1.0])


masks = st.lists(st.booleans(), min_size=1, max_size=12).map(lambda bits: np.array(bits))
shares = st.floats(0, 1)


@given(masks, st.floats(-2, 2), shares, shares, st.randoms(use_true_random=False))
def test_gae_is_the_sum_of_its_definition(
    mask: np.ndarray, reward: float, gamma: float, lam: float, draw: object
) -> None:
    """Equation 16 of arXiv 1506.02438, each advantage as its own sum over the deltas that follow."""
    values = np.array([draw.uniform(-1, 1) for _ in mask], np.float32)  # type: ignore[attr-defined]
    advantages, returns = gae(values, mask, reward, gamma=gamma, lam=lam)
    sampled = [i for i, is_sampled in enumerate(mask) if is_sampled]
    for n, i in enumerate(sampled):
        total = 0.0
        for ahead, j in enumerate(sampled[n:]):
            is_last = j == sampled[-1]
            following = 0.0 if is_last else float(values[sampled[n + ahead + 1]])
            delta = (reward if is_last else 0.0) + gamma * following - float(values[j])
            total += (gamma * lam) ** ahead * delta
        assert advantages[i] == pytest.approx(total, abs=1e-5)
        assert returns[i] == pytest.approx(total + values[i], abs=1e-5)
    assert not advantages[~mask].any()
    assert not returns[~mask].any()


@given(masks, st.floats(-2, 2))
def test_without_discounts_an_advantage_is_reward_minus_value(mask: np.ndarray, reward: float) -> None:
    values = np.linspace(-1, 1, len(mask), dtype=np.float32)
    advantages, returns = gae(values, mask, reward, gamma=1.0, lam=1.0)
    assert advantages[mask] == pytest.approx(reward - values[mask], abs=1e-6)
    assert returns[mask] == pytest.approx(np.full(mask.sum(), reward), abs=1e-6)


def test_an_attempt_of_several_sequences_is_one_stretch_of_time() -> None:
    """Its reward comes once, at the end, and a sequence's last token is followed by the next one's first."""
    parts = (experience(0, 1.0), experience(1, 0.5, length=6), experience(0, 1.0, sequence=1, length=6))
    several = ExperienceGroup(group="g", task_key="t", experiences=parts, dropped={"timeout": 1})
    values = [np.linspace(0.1, 0.9, len(e), dtype=np.float32) for e in parts]
    found, expected = with_critic(several, no_baseline, values, gamma=0.9, lam=0.8)
    assert [e.key for e in found.group.experiences] == [e.key for e in parts]
    assert found.group.dropped == several.dropped
    for attempt, members in ((0, (0, 2)), (1, (1,))):
        want, returns = gae(
            np.concatenate([values[m] for m in members]),
            np.concatenate([parts[m].mask for m in members]),
            parts[members[0]].reward or 0.0,
            gamma=0.9,
            lam=0.8,
        )
        judged = [found.group.experiences[m] for m in members]
        assert {e.attempt for e in judged} == {attempt}
        assert np.array_equal(np.concatenate([e.advantages for e in judged if e.advantages is not None]), want)
        assert np.array_equal(np.concatenate([expected[e.key].returns for e in judged]), returns)
        assert all(np.array_equal(expected[parts[m].key].values, values[m]) for m in members)


def test_a_group_that_failed_as_expected_is_not_flat_to_a_critic() -> None:
    zeros = [np.zeros(4, np.float32)] * 2
    assert not with_critic(group(0.0, 0.0), no_baseline, zeros, gamma=1.0, lam=1.0)[0].flat
    assert with_critic(group(), no_baseline, [], gamma=1.0, lam=1.0)[0].flat


def test_a_critic_refuses_advantages_that_are_there_already() -> None:
    judged = with_advantages(group(1.0, 0.0), centred).group
    with pytest.raises(UserError, match="advantages of its own"):
        with_critic(judged, no_baseline, [np.zeros(4, np.float32)] * 2, gamma=1.0, lam=1.0)


def test_what_a_critic_explains() -> None:
    one, other = experience(0, 1.0), experience(1, 0.0)
    returns = [one.mask.astype(np.float32), np.zeros(4, np.float32)]

    def share(*values: np.ndarray) -> float:
        made = {e.key: Expected(values=v, returns=r) for e, v, r in zip((one, other), values, returns, strict=True)}
        return explained([one, other], made)

    assert share(*returns) == 1.0
    assert share(one.mask * np.float32(0.5), other.mask * np.float32(0.5)) == 0.0
    assert share(one.mask * np.float32(0.5), 0 * returns[1]) == pytest.approx(0.75)
    assert np.isnan(explained([one], {one.key: Expected(values=0 * returns[0], returns=returns[0])}))
    assert np.isnan(explained([], {}))


def test_whitening_is_over_all_sampled_tokens_together() -> None:
    raw = np.array([9.0, 0.3, 9.0, 0.8, 9.0, -0.2, 9.0, 1.1], np.float32)
    long, short = experience(0, 0.0, length=6), experience(1, 0.0, length=2)
    groups = [
        [long.with_advantages(np.where(long.mask, raw[:6], 0.0).astype(np.float32))],
        [],
        [short.with_advantages(np.where(short.mask, raw[6:], 0.0).astype(np.float32))],
    ]
    done = whitened(groups)
    assert [[e.key for e in g] for g in done] == [[e.key for e in g] for g in groups]
    tokens = np.concatenate([e.advantages[e.mask] for g in done for e in g if e.advantages is not None])
    assert tokens == pytest.approx(standardized(np.array([0.3, 0.8, -0.2, 1.1])), abs=1e-6)
    assert all(e.advantages is not None and not e.advantages[~e.mask].any() for g in done for e in g)
    even = [[replace(long, advantages=long.mask.astype(np.float32))]]
    assert not np.any(whitened(even)[0][0].advantages)
    assert whitened([]) == []
