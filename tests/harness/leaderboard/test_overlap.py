"""Overlap is found, near and exact; and no run trains on what is scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.boards import overlap_command
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.leaderboard.board import Board
from harness.leaderboard.guard import refuse_contamination
from harness.leaderboard.overlap import clashes, overlap, prompt, shingles
from harness.load import load

from ..conftest import text_of

WORLD = """
from harness.envs.base import Task, TextEnv, WorldSpec

LINES = {
    "train": ["the quick brown fox jumps over the lazy dog near the river bank at noon",
              "a wholly different sentence about ships and harbours in the far north of the country",
              "seven green bottles stood upon the wall of the old mill by the sea"],
    "test": ["The quick brown fox  jumps over the lazy dog near the river bank at dawn",
             "seven green bottles stood upon the wall of the old mill by the sea",
             "nothing like the others is written in this line of the file, nothing at all"],
}
SEEDS = {"train": (1, 2, 3), "test": (4, 3, 6)}

class Lines(TextEnv):
    world = WorldSpec(id="lines", description="lines", max_steps=1, isolation="none", splits=("train", "test"))

    @classmethod
    def tasks(cls, split):
        rows = zip(LINES[split], SEEDS[split])
        return [Task(env="lines", split=split, id=str(i), seed=s, data={"line": t}) for i, (t, s) in enumerate(rows)]

    def reset(self, *, seed=None, options=None):
        return options["task"].data["line"], {}

    def step(self, action):
        return "", 1.0, True, False, {}
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "lines.py"
    path.write_text(WORLD)
    return path


def test_near_and_exact_pairs_are_told_side_by_side(world: Path, board: Board, console: Console) -> None:
    assert not overlap_command(str(world), "train", "test", [], 100, 0.6, console)
    text = text_of(console)
    assert "same id: 0 pairs" in text
    assert "same content: 1 pairs, 1 scored tasks" in text
    assert "near prompt: 1 pairs, 1 scored tasks" in text
    assert "at dawn" in text
    assert "at noon" in text


def test_nothing_in_common(console: Console) -> None:
    assert overlap_command("math", "train", "valid_unseen", ["level=4"], 20, 0.99, console)
    assert "same prompt: 0 pairs" in text_of(console)


def test_a_split_against_itself() -> None:
    tasks = [Echo.tasks("train")[i] for i in range(5)]
    found = overlap(tasks, tasks, "echo")
    assert sum(pair.kind == "same id" for pair in found) == 5


def test_a_board_by_name(board: Board, console: Console) -> None:
    assert not overlap_command("echo", "valid_unseen", "echo", ["rounds=2"], 12, 0.9, console)
    assert "12 of the board 'echo'" in text_of(console)
    with pytest.raises(UserError, match="above 0 and at most 1"):
        overlap_command("echo", "train", "echo", [], 12, 1.5, console)


@given(st.text(alphabet="ab ", max_size=40), st.text(alphabet="ab ", max_size=40))
def test_the_index_is_jaccards(first: str, second: str) -> None:
    """Against the definition, pair by pair."""
    import numpy as np

    from harness.leaderboard.overlap import _jaccard

    a, b = shingles(first), shingles(second)
    postings = {word: np.array([0], np.int64) for word in b}
    assert _jaccard(a, postings, np.array([len(b)]))[0] == pytest.approx(len(a & b) / len(a | b))


def test_prompts_are_first_observations() -> None:
    task = Echo.tasks("train")[0]
    assert prompt(Echo(), task).startswith("The word is ")


def test_clashes_by_id_and_by_content() -> None:
    train, held = Echo.tasks("train"), Echo.tasks("valid_unseen")
    assert list(clashes([train[0], train[1]], [held[0], held[1]])) == []
    assert [a.key for a, _ in clashes([train[0], held[1]], [held[1]])] == [held[1].key]


def test_a_run_does_not_train_on_what_it_scores(world: Path, board: Board) -> None:
    refused = load("default", [f"env.name={world}", "env.eval_split=test", "warmup.stages=[]"])
    with pytest.raises(UserError, match=r"env\.split=train: would train on lines/train/2.*lines/test/1"):
        refuse_contamination(refused)


def test_a_run_does_not_train_on_a_board(board: Board) -> None:
    fine = ["env.name=echo", "warmup.stages=[]", "env.options.rounds=2"]
    refuse_contamination(load("default", fine))
    with pytest.raises(UserError, match=r"valid_unseen/0, which is a task of the board 'echo'"):
        refuse_contamination(load("default", [*fine, "env.split=valid_unseen", "env.eval_split=train"]))
