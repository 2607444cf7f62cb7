"""What is not ours to copy leaves no trace in a board, and is checked all the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from harness.boards import submit_command, verify_command
from harness.envs.errors import UserError
from harness.envs.math.world import Math
from harness.leaderboard.board import Board
from harness.leaderboard.entry import Entry, copy
from harness.leaderboard.replay import Fault
from harness.leaderboard.seal import sealed
from harness.leaderboard.verify import verify

from .conftest import Rows, forge, play, rows_of, scripted

SECRET = "kangaroo"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """Data of a third party."""
    file = tmp_path / "theirs.jsonl"
    rows = ({"question": f"{SECRET} {i} and {i}: how many?", "answer": 1000 + i} for i in range(6))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def board(tmp_path: Path, problems: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setenv("HARNESS_BOARDS", str(tmp_path / "boards"))
    folder = tmp_path / "boards" / "theirs"
    folder.mkdir(parents=True)
    card = f"title: Theirs\nenv: math\nsplit: test\noptions: {{source: {problems}}}\nmax_steps: 1\n"
    (folder / "board.yaml").write_text(card)
    return Board(folder)


def played(folder: Path, problems: Path, tokenizer: PreTrainedTokenizerBase | None) -> Entry:
    settings = ("env.name=math", "env.eval_split=test", f"env.options={{source: {problems}}}", "eval.n=6")
    return play(folder, scripted(tokenizer), *settings)


@pytest.mark.parametrize("with_ids", [False, True])
def test_a_board_keeps_digests_that_are_checked(
    tmp_path: Path, problems: Path, board: Board, tokenizer: PreTrainedTokenizerBase, with_ids: bool
) -> None:
    entry = played(tmp_path / "e", problems, tokenizer if with_ids else None)
    console = Console(quiet=True)
    assert submit_command(entry.path, None, "a", None, 8, console)
    there = board.entries()["a"]
    assert SECRET in gzip.decompress((entry.path / "trajectories.jsonl.gz").read_bytes()).decode()
    for path in board.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
            assert SECRET not in text, path
            assert '"100' not in text, path  # the answers
    for row in rows_of(there.path):
        assert not any(turn["prompt_tokens"] != [0] * len(turn["prompt_tokens"]) for turn in row["turns"])
    assert there.scores() == entry.scores()
    assert verify_command(there.path, None, None, 8, console)
    again = copy(there, tmp_path / "copied", Math.borrowed)  # whoever has no data can pass it on
    assert list(again.trajectories()) == list(there.trajectories()) == [sealed(t) for t in there.trajectories()]
    problems.unlink()
    with pytest.raises(UserError, match=r"theirs\.jsonl' does not exist"):
        verify_command(there.path, None, None, 8, console)


def other_problem(rows: Rows) -> None:
    rows[0]["task"]["data"] = rows[1]["task"]["data"]


def other_opening(rows: Rows) -> None:
    rows[0]["opening"] = rows[1]["opening"]


def other_words(rows: Rows) -> None:
    rows[0]["opening"] = "What is 1 + 1?"


def other_prompt(rows: Rows) -> None:
    rows[0]["turns"][0]["observation"] = rows[1]["turns"][0]["observation"]


def shorter(rows: Rows) -> None:
    rows[0]["turns"][0]["prompt_tokens"].pop()
    rows[0]["metrics"]["tokens_in"] -= 1


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (other_problem, Fault.TASK),
        (other_opening, Fault.OBSERVATION),
        (other_words, Fault.OBSERVATION),
        (other_prompt, Fault.OBSERVATION),
        (shorter, Fault.TOKENS),
    ],
)
def test_a_forged_digest_is_caught(
    tmp_path: Path, problems: Path, tokenizer: PreTrainedTokenizerBase, edit: Callable[[Rows], None], fault: Fault
) -> None:
    entry = copy(played(tmp_path / "e", problems, tokenizer), tmp_path / "sealed", Math.borrowed)
    forge(entry.path, edit)
    assert fault in {finding.fault for finding in verify(entry.path).findings}


def test_an_entry_of_other_data_is_not_verified(tmp_path: Path, problems: Path) -> None:
    entry = copy(played(tmp_path / "e", problems, None), tmp_path / "sealed", Math.borrowed)
    problems.write_text(problems.read_text().replace(SECRET, "wallaby"))
    assert {f.fault for f in verify(entry.path).findings} == {Fault.TASK}


def test_which_texts_are_not_ours(problems: Path) -> None:
    assert Math.borrowed(Math.tasks("test", source=str(problems))[0])
    assert not any(Math.borrowed(Math.tasks("train", source=source)[0]) for source in ("arithmetic", "countdown"))
