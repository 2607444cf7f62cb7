"""Statistics against scipy where it has the function, against brute force where it has not, and their coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import xlogy
from scipy.stats import binomtest, bootstrap, permutation_test, ttest_1samp

from harness.leaderboard import stats


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
    assert stats.wilson(successes, n) == pytest.approx((low, high), abs=5e-4)


def some_of(most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(1, most).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(some_of(2000), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_equals_scipy(successes_n: tuple[int, int], confidence: float) -> None:
    successes, n = successes_n
    truth = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert stats.wilson(successes, n, confidence) == pytest.approx((truth.low, truth.high), abs=1e-12)


def test_wilson_at_the_edges() -> None:
    assert stats.wilson(0, 0) == (0.0, 1.0)
    assert stats.wilson(0, 7)[0] == 0.0
    assert stats.wilson(7, 7)[1] == 1.0
    with pytest.raises(ValueError, match="cannot be"):
        stats.wilson(3, 2)


@given(st.lists(some_of(8), min_size=1, max_size=40))
def test_clusters_are_worth_between_their_number_and_that_of_their_attempts(tasks: list[tuple[int, int]]) -> None:
    wins, tries = [w for w, _ in tasks], [n for _, n in tasks]
    size = stats.effective_size(wins, tries)
    assert len(tasks) - 1e-9 <= size <= sum(tries) + 1e-9
    low, high = stats.clustered(wins, tries)
    assert 0 <= low <= sum(wins) / sum(tries) + 1e-12
    assert sum(wins) / sum(tries) - 1e-12 <= high <= 1


def test_attempts_that_agree_are_worth_one() -> None:
    assert stats.effective_size([4, 0, 4, 0, 4], [4] * 5) == 5
    assert stats.clustered([1, 0, 1], [1, 1, 1]) == stats.wilson(2, 3)


def test_mean_interval_is_near_scipys_bootstrap() -> None:
    values = np.random.default_rng(3).gamma(2.0, 5.0, size=300)
    truth = bootstrap((values,), np.mean, rng=np.random.default_rng(0), n_resamples=4000).confidence_interval
    low, high = stats.ratio_interval(values.tolist(), [1] * 300)
    width = truth.high - truth.low
    assert low == pytest.approx(truth.low, abs=0.08 * width)
    assert high == pytest.approx(truth.high, abs=0.08 * width)
    assert stats.ratio_interval(values.tolist(), [1] * 300) == (low, high)  # seeded


def test_mean_intervals_that_need_no_draws() -> None:
    assert stats.ratio_interval([0, 0, 0], [1, 1, 1]) == stats.wilson(0, 3)
    assert stats.ratio_interval([7, 7], [1, 1]) == (7, 7)
    assert all(map(math.isnan, stats.ratio_interval([7], [1])))
    assert all(map(math.isnan, stats.ratio_interval([], [])))


@given(some_of(7), st.data())
def test_pass_at_k_equals_all_the_ways_to_draw(wins_n: tuple[int, int], data: st.DataObject) -> None:
    wins, n = wins_n
    k = data.draw(st.integers(1, n))
    draws = list(itertools.combinations([True] * wins + [False] * (n - wins), k))
    assert stats.pass_any(n, wins, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert stats.pass_all(n, wins, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_variance_split_of_known_parts() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(0, 2, size=4000)
    groups = [rng.normal(m, 3, size=2 + i % 3).tolist() for i, m in enumerate(means)]
    split = stats.variance_split(groups)
    assert split is not None
    assert split.between == pytest.approx(4, rel=0.1)
    assert split.within == pytest.approx(9, rel=0.1)
    assert split.share == pytest.approx(4 / 13, rel=0.1)
    assert stats.variance_split([[1.0], [0.0]]) is None
    assert stats.variance_split([[1.0, 0.0]]) is None


@given(st.lists(st.integers(-1, 1), max_size=60))
def test_flips_of_single_attempts_are_mcnemars_exact_test(differences: list[int]) -> None:
    gained, lost = differences.count(1), differences.count(-1)
    p, exact = stats.sign_flip(differences)
    assert exact
    assert p == pytest.approx(binomtest(gained, gained + lost).pvalue if gained + lost else 1.0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-4, 4).map(lambda i: i / 4), min_size=1, max_size=9))
def test_flips_of_repeated_attempts_equal_scipys(differences: list[float]) -> None:
    p, exact = stats.sign_flip(differences)
    kept = [d for d in differences if d]
    truth = 1.0
    if len(kept) > 1:
        result = permutation_test((kept,), np.sum, permutation_type="samples", n_resamples=10_000)
        truth = min(1.0, result.pvalue)
    assert exact
    assert p == pytest.approx(truth)


def test_flips_of_real_numbers_are_drawn() -> None:
    differences = np.random.default_rng(1).normal(0.3, 1, size=80).tolist()
    p, exact = stats.sign_flip(differences)
    assert not exact
    assert p == pytest.approx(ttest_1samp(differences, 0).pvalue, rel=0.3)
    assert stats.sign_flip([0.0, 0.0]) == (1.0, True)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))))
def test_tango(pairs: tuple[int, int, int]) -> None:
    gained, lost, n = pairs
    lost = min(lost, n - gained)
    low, high = stats.tango(gained, lost, n)
    assert -1 <= low <= (gained - lost) / n <= high <= 1
    assert stats.tango(lost, gained, n) == pytest.approx((-high, -low), abs=1e-7)


@pytest.mark.parametrize(("gained", "lost", "n"), [(0, 1, 44), (9, 4, 50), (0, 0, 50), (30, 2, 40)])
def test_tangos_bounds_are_where_the_score_statistic_is_1_96(gained: int, lost: int, n: int) -> None:
    for delta in stats.tango(gained, lost, n):
        most = (1 - delta) / 2  # q is the chance of a loss, q + delta of a gain

        def unlikely(q: float, delta: float = delta) -> float:
            return -(xlogy(gained, q + delta) + xlogy(lost, q) + xlogy(n - gained - lost, 1 - 2 * q - delta))

        q = minimize_scalar(unlikely, bounds=(max(0, -delta), most), method="bounded", options={"xatol": 1e-12}).x
        statistic = (gained - lost - n * delta) / math.sqrt(n * (2 * q + delta * (1 - delta)))
        assert abs(statistic) == pytest.approx(1.959964, rel=1e-3)


def test_mean_difference_is_students() -> None:
    d = np.random.default_rng(2).normal(0, 1, size=40)
    truth = ttest_1samp(d, 0).confidence_interval()
    assert stats.mean_difference(d.tolist()) == pytest.approx((truth.low, truth.high))


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert stats.holm([]) == []


def test_as_many_tasks_as_are_said_to_be_needed_find_the_difference() -> None:
    gained, lost = 0.16, 0.08
    n = stats.tasks_needed(gained - lost, gained + lost)
    rng = np.random.default_rng(0)
    draws = rng.multinomial(n, [gained, lost, 1 - gained - lost], size=400)
    found = np.mean([binomtest(int(b), int(b + c)).pvalue < 0.05 for b, c, _ in draws])
    assert found == pytest.approx(stats.POWER, abs=0.06)
    with pytest.raises(ValueError, match="difference of 0"):
        stats.tasks_needed(0, 0.1)


def test_combined_leaves_out_what_is_unknown() -> None:
    value, (low, high) = stats.combined([(0.5, (0.4, 0.6)), (math.nan, (0, 1)), (0.7, (0.6, 0.8))])
    assert value == pytest.approx(0.6)
    assert (low, high) == pytest.approx((0.6 - 0.1 / math.sqrt(2), 0.6 + 0.1 / math.sqrt(2)))
    assert math.isnan(stats.combined([])[0])


def test_coverage_of_each_interval() -> None:
    """A small version of `benchmarks/coverage.py`: far enough from 95% and it is not the same interval."""
    from benchmarks.coverage import ROWS, simulate

    for name, row in ROWS.items():
        draws = 200
        ours, _ = simulate(row, draws, seed=1)
        assert abs(ours - 0.95) < 4.5 * math.sqrt(0.95 * 0.05 / draws), name
