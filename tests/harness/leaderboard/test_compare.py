"""Which is better: verdicts in words, refusals, and what lost attempts do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest

from harness.agents.types import Outcome, Trajectory
from harness.envs.base import Task
from harness.envs.errors import UserError
from harness.leaderboard.compare import Comparison, as_json, compare
from harness.leaderboard.entry import Entry, EntryWriter
from harness.leaderboard.plan import Outlook, outlook
from harness.leaderboard.record import Record

Wins = Sequence[Sequence[float | None]]
"""Rewards by task and attempt; None is a lost one."""


def entry(folder: Path, model: str, wins: Wins, **changes: object) -> Entry:
    record = Record(
        model=model,
        model_digest=None,
        engine="scripted",
        env="echo",
        world_version="1",
        split="valid_unseen",
        task_ids=[str(i) for i in range(len(wins))],
        repeats=len(wins[0]),
        success_at=1.0,
        max_steps=20,
        sampling={"temperature": 1.0},
    )
    record = replace(record, **changes)  # type: ignore[arg-type]
    with EntryWriter(folder, record) as writer:
        for i, attempts in zip(record.task_ids, wins, strict=True):
            for number, reward in enumerate(attempts):
                writer.add(
                    Trajectory(
                        task=Task(env="echo", split="valid_unseen", id=i),
                        attempt=number,
                        opening="",
                        turns=(),
                        reward=reward or 0.0,
                        outcome=Outcome.TIMEOUT if reward is None else Outcome.DONE,
                    )
                )
        return writer.finish()


def singles(both: int, first: int, second: int, neither: int) -> tuple[Wins, Wins]:
    pairs = [(1.0, 1.0)] * both + [(1.0, 0.0)] * first + [(0.0, 1.0)] * second + [(0.0, 0.0)] * neither
    return [[a] for a, _ in pairs], [[b] for _, b in pairs]


def pair(tmp_path: Path, a: Wins, b: Wins, **changes: object) -> Comparison:
    return compare([entry(tmp_path / "a", "A", a), entry(tmp_path / "b", "B", b, **changes)])


def test_c18_26_and_29_of_50_are_not_separated(tmp_path: Path) -> None:
    contrast = pair(tmp_path, *singles(15, 11, 14, 10)).contrasts[0]
    assert contrast.difference == pytest.approx(0.06)
    assert contrast.p == pytest.approx(binomtest(11, 25).pvalue)
    assert not contrast.separated
    said = contrast.verdict()
    assert said.startswith("not separated: B against A +6.0 points [")
    assert "p = 0.69" in said
    assert contrast.missing is not None
    assert f"{contrast.missing} more tasks would be needed" in said
    assert contrast.missing > 500


def test_c18_95_and_130_of_500_are(tmp_path: Path) -> None:
    contrast = pair(tmp_path, *singles(50, 45, 80, 325)).contrasts[0]
    assert contrast.separated
    assert contrast.exact
    assert contrast.single
    assert contrast.verdict().startswith("B is better than A by 7.0 points [2.")
    assert contrast.verdict().endswith("p = 0.002")
    low, high = contrast.interval
    assert 0 < low < 0.07 < high
    assert len(contrast.differing) == 125


def test_the_better_one_is_named_whichever_stands_first(tmp_path: Path) -> None:
    b, a = singles(50, 45, 80, 325)
    contrast = pair(tmp_path, a, b).contrasts[0]
    assert contrast.difference == pytest.approx(-0.07)
    assert contrast.verdict().startswith("A is better than B by 7.0 points [2.")


def test_the_same_answers_show_no_difference(tmp_path: Path) -> None:
    contrast = pair(tmp_path, *singles(20, 0, 0, 30)).contrasts[0]
    assert contrast.p == 1.0
    assert "show no difference" in contrast.verdict()
    low, high = contrast.interval
    assert low < -0.05 < 0.05 < high  # fifty tasks do not prove equality


def test_what_more_would_tell_is_said_in_tasks_and_in_attempts(tmp_path: Path) -> None:
    b: Wins = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    noisy = pair(tmp_path / "noisy", [[1.0, 0.0]] * 30, b * 6).contrasts[0]
    assert not noisy.separated
    assert noisy.missing is not None
    assert noisy.attempts is not None
    assert noisy.attempts > 2
    assert f"{noisy.missing} more tasks would be needed, or {noisy.attempts} attempts at each" in noisy.verdict()

    sure = [[1.0, 1.0]] * 6 + [[0.0, 0.0]] * 4  # every task goes one way, so that its next attempt says nothing new
    other = [[0.0, 0.0]] * 5 + [[1.0, 1.0]] * 3 + [[0.0, 0.0]] * 2
    fixed = pair(tmp_path / "fixed", sure, other).contrasts[0]
    assert fixed.attempts is None
    assert "(more attempts at these would not do)" in fixed.verdict()
    assert "attempts" not in pair(tmp_path / "single", *singles(15, 11, 14, 10)).contrasts[0].verdict()


def test_with_several_pairs_more_is_needed(tmp_path: Path) -> None:
    a, b = singles(15, 11, 14, 10)
    entries = [entry(tmp_path / n, n, wins) for n, wins in (("A", a), ("B", b), ("C", a))]
    two, three = compare(entries[:2]).contrasts[0], compare(entries).contrasts[0]
    assert two.missing is not None
    assert three.missing is not None
    assert three.missing > two.missing


def test_repeats_are_paired_by_task_not_by_attempt(tmp_path: Path) -> None:
    a = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]] * 15
    b = [[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]] * 15
    contrast = pair(tmp_path, a, b).contrasts[0]
    assert not contrast.single
    assert contrast.exact
    assert contrast.tasks == 30
    assert contrast.difference == pytest.approx(0.25)
    assert contrast.p == pytest.approx(2**-29)
    assert contrast.differing["0"] == (0.25, 0.5)


def test_lost_attempts_count_for_neither_and_widen_the_bounds(tmp_path: Path) -> None:
    a: Wins = [[1.0], [1.0], [None], [0.0], [0.0]]
    b: Wins = [[1.0], [None], [1.0], [0.0], [1.0]]
    contrast = pair(tmp_path, a, b).contrasts[0]
    assert (contrast.tasks, contrast.left_out) == (3, 2)
    assert contrast.difference == pytest.approx(1 / 3)
    assert contrast.bounds == pytest.approx((3 / 5 - 3 / 5, 4 / 5 - 2 / 5))


def test_several_are_corrected(tmp_path: Path) -> None:
    a, b = singles(50, 20, 40, 90)
    entries = [entry(tmp_path / n, n, wins) for n, wins in (("A", a), ("B", b), ("C", a))]
    comparison = compare(entries)
    ps = {(c.first, c.second): (c.p, c.corrected) for c in comparison.contrasts}
    assert len(ps) == 3
    p, corrected = ps["A", "B"]
    assert p == pytest.approx(binomtest(20, 60).pvalue)
    assert corrected == pytest.approx(3 * p)
    assert "(Holm)" in comparison.contrasts[0].verdict()
    assert ps["A", "C"] == (1.0, 1.0)


def test_reward_may_be_what_is_compared(tmp_path: Path) -> None:
    a, b = [[i / 37] for i in range(30)], [[i / 37 + 0.05 + 0.001 * i] for i in range(30)]
    contrast = compare([entry(tmp_path / "a", "A", a), entry(tmp_path / "b", "B", b)], "reward").contrasts[0]
    assert contrast.separated
    assert "of reward" in contrast.verdict()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"split": "train"}, "split is 'valid_unseen' and 'train'"),
        ({"world_version": "2"}, "world_version"),
        ({"options": {"rounds": 3}}, "options"),
        ({"success_at": 0.5}, "success_at"),
    ],
)
def test_unlike_entries_are_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    a, b = singles(1, 1, 1, 1)
    with pytest.raises(UserError, match=says):
        pair(tmp_path, a, b, **changes)


def test_other_refusals(tmp_path: Path) -> None:
    a, b = singles(1, 1, 1, 1)
    one = entry(tmp_path / "one", "A", a)
    with pytest.raises(UserError, match="two entries"):
        compare([one])
    other = entry(tmp_path / "other", "B", b, task_ids=["7", "8", "9", "10"])
    with pytest.raises(UserError, match="no task in common"):
        compare([one, other])
    (tmp_path / "other" / "scores.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        compare([one, other])


def test_only_common_tasks_count_and_settings_that_differ_are_named(tmp_path: Path) -> None:
    a, b = singles(10, 5, 5, 10)
    changes = {"task_ids": [str(i + 10) for i in range(30)], "sampling": {"temperature": 0.0}}
    comparison = pair(tmp_path, a, b, **changes)
    assert comparison.common == tuple(map(str, range(10, 30)))
    assert comparison.unlike == {"sampling.temperature": (1.0, 0.0)}
    assert comparison.contrasts[0].tasks == 20


def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    a, b = singles(3, 1, 2, 1)
    comparison = compare([entry(tmp_path / "x", "A", a), entry(tmp_path / "y", "A", b)])
    assert [s.name for s in comparison.sides] == ["A (x)", "A (y)"]
    assert json.loads(json.dumps(as_json(comparison), allow_nan=False))["contrasts"][0]["tasks"] == 7


def test_a_plan_and_the_verdict_use_one_formula() -> None:
    plan = Outlook(success=0.5, share=0.0, likeness=0.0)
    assert plan.square(0.1, 1) == pytest.approx(0.5 + 0.01)
    needed = plan.tasks(0.1, 1)
    assert plan.difference(needed, 1) == pytest.approx(0.1, rel=0.01)
    assert plan.tasks(0.1, 4) < needed / 3  # without a share of the tasks, attempts are as good as tasks
    assert Outlook(share=1.0).tasks(0.1, 4) == Outlook(share=1.0).tasks(0.1, 1)
    assert plan.difference(3, 1) is None


def test_a_pilot_says_what_it_can() -> None:
    assert outlook([[1.0], [0.0], [1.0], [1.0]]) == Outlook(success=0.75)
    hard_and_easy = [[1.0, 1.0], [0.0, 0.0]] * 10
    seen = outlook(hard_and_easy, hard_and_easy)
    assert seen.share == pytest.approx(1.0)
    assert seen.likeness == pytest.approx(1.0)
