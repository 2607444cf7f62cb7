"""The tasks of reasoning-gym as worlds: names, splits, levels, verdicts to be trusted, nothing run as code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.envs.check import check
from harness.envs.errors import GraderError, UnknownName, UserError
from harness.envs.reasoning_gym.names import EXCLUDED, LEVELS, NO_ANSWER
from harness.envs.reasoning_gym.world import answer_of
from harness.envs.registry import world_class

pytest.importorskip("reasoning_gym", reason="needs the extra [reasoning-gym]")

NOTHING = ("", " ", "nonsense", "0", "[]", '{"a":', "None", "<answer>", "yes no true false A B C D E")


def world(name: str):  # type: ignore[no-untyped-def]
    return world_class(f"reasoning_gym/{name}")


def test_names_import_nothing_and_mistakes_say_what_to_do() -> None:
    seen = "import sys, harness.envs.registry as r; r.names(); r.world_class('reasoning_gym/ab').tasks('train')[0]"
    subprocess.run([sys.executable, "-c", f"{seen}; assert 'reasoning_gym' not in sys.modules"], check=True)
    with pytest.raises(UnknownName, match="Did you mean 'countdown'"):
        world("coutdown")
    with pytest.raises(UserError, match="composite is no world here: a mixture"):
        world("composite")
    with pytest.raises(UserError, match="level of reasoning_gym/countdown must lie between 0 and 4, got 5"):
        world("countdown").tasks("train", level=5)
    with pytest.raises(UserError, match="would be ignored: it has no curriculum"):
        world("acre").tasks("train", level=0)
    with pytest.raises(UserError, match="option partial"):
        world("acre").tasks("train", partial="yes")


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("  4 \n", "4"),
        ("<think>5?</think>\n4", "4"),
        ("<think>4", ""),
        ("so <answer>\n1 2\n3 4\n</answer> as it is", "1 2\n3 4"),
        ("The answer is in the question", "The answer is in the question"),
        ("Answer: 4", "4"),
        ("```\n1 2\n3 4\n```", "1 2\n3 4"),
    ],
)
def test_what_is_graded(action: str, answer: str) -> None:
    assert answer_of(action) == answer


@pytest.mark.slow
def test_the_table_is_the_installed_package() -> None:
    listed = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            "from reasoning_gym.factory import DATASETS, CURRICULA\nfor n in DATASETS: print(n, n in CURRICULA)",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    there = dict(line.split() for line in listed if line)
    assert set(there) == set(LEVELS) | set(EXCLUDED)
    assert {n for n in LEVELS if LEVELS[n]} <= {n for n, has in there.items() if has == "True"}


def play(name: str, split: str = "train", index: int = 0, **options):  # type: ignore[no-untyped-def]
    game = world(name)()
    observation, info = game.reset(options={"task": world(name).tasks(split, **options)[index]})
    return game, observation, info


@pytest.mark.slow
def test_graders_faults_are_not_the_agents_gain_or_loss(tmp_path: Path) -> None:
    """Full marks for anything, full marks for a first digit, an exception at junk, and answers run as code."""
    game, _, _ = play("game_of_life_halting")
    assert [game.step(a)[1] for a in ("nonsense", "yes", "0")] == [0.0, 0.0, 0.0]
    game, observation, info = play("coin_flip")
    value = game.expert().act(observation, info)[1]
    assert [game.step(a)[1] for a in ("0", value[:3], value, f"{value}0")] == [0.0, 0.0, 1.0, 1.0]
    game, _, _ = play("prime_factorization")
    assert game.step("nonsense")[4]["verdict"] == "unparsed"
    made = tmp_path / "made"
    for name in ("countdown", "n_queens", "simple_integration", "string_insertion"):
        game, _, _ = play(name)
        assert game.step(f"open({str(made)!r}, 'w')")[4]["verdict"] == "unparsed"
    assert not made.exists()
    game, _, _ = play("countdown")
    with pytest.raises(GraderError, match="could not grade"):
        game.step("9**9**9**9")
    assert game.step("1")[1] == 0.0


@pytest.mark.slow
def test_partial_marks_are_paid_when_asked_for_and_never_for_nonsense() -> None:
    game, observation, info = play("spell_backward", partial=True)
    right = game.expert().act(observation, info)[1]
    assert game.step(right)[1] == 1.0
    near = game.step(right[:-1])[1]
    assert 0.0 < near < 1.0
    assert play("spell_backward")[0].step(right[:-1])[1] == 0.0
    game, _, _ = play("sentence_reordering", partial=True)
    assert [game.step(a)[1] for a in NOTHING] == [0.0] * len(NOTHING)


@pytest.mark.slow
def test_a_level_changes_the_questions_and_a_split_has_its_own() -> None:
    easy, hard = (play("chain_sum", level=level)[1] for level in (0, 10))
    assert len(easy) < len(hard)
    splits = [{play("basic_arithmetic", split, i)[1] for i in range(20)} for split in ("train", "valid_unseen")]
    assert not splits[0] & splits[1]
    assert play("basic_arithmetic")[1] == play("basic_arithmetic")[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain_sum", "knights_knaves"])
def test_the_check_of_worlds_has_nothing_to_mend(name: str) -> None:
    only = ("contract", "tasks", "seeds", "reward", "tricks", "oracle", "reach")
    report = check(f"reasoning_gym/{name}", only=only, seconds=5.0)
    assert report.passed, [f.what for f in report.findings if f.level == "failed"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_task_is_made_and_graded() -> None:
    """Stored answers get full marks in both splits, nonsense gets none, and no grader breaks at it."""
    wrong = []
    for name in LEVELS:
        questions = set()
        for split in ("train", "valid_unseen"):
            game, observation, info = play(name, split)
            questions.add(observation)
            expert = game.expert()
            assert (expert is None) == (name in NO_ANSWER)
            if expert is not None and game.step(expert.act(observation, info)[1])[1] != 1.0:
                wrong.append(f"{name}: the stored answer is not right")
        if len(questions) != 2:
            wrong.append(f"{name}: one question in two splits")
        stored = expert.act(observation, info)[1] if expert is not None else None
        for answer in NOTHING:
            try:
                reward = game.step(answer)[1]
            except GraderError as error:
                wrong.append(f"{name}: {error}")
                continue
            if reward and answer != stored:
                wrong.append(f"{name}: {answer!r} earns {reward}, stored is {stored!r}")
    assert wrong == []
