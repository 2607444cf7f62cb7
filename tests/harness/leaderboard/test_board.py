"""Boards: what gets onto one, who stands where, and that nobody rewrites it afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console
from transformers import PreTrainedTokenizerBase

from harness.agents.models.base import Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.boards import submit_command, verify_command
from harness.envs.errors import UserError
from harness.leaderboard.board import Board, all_boards, board_of
from harness.leaderboard.entry import Entry
from harness.leaderboard.page import page
from harness.leaderboard.render import markdown
from harness.leaderboard.standing import standing
from harness.leaderboard.verify import verify
from harness.players import Player

from ..conftest import text_of
from .conftest import CARD, forge, play, rows_of, scripted

SHIPPED = Path(__file__).resolve().parents[3] / "leaderboards"


def wins(first: int, name: str) -> Player:
    """A player that succeeds at the first so many tasks."""

    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        word = prompt.messages[-1].content.rstrip(".").split()[-1]
        number = int(session.rpartition("#")[0].rpartition("/")[2])
        return f"Action: say {word if number < first else 'nothing'}"

    return Player(model=ScriptedModel(script), name=name, engine="scripted")


def submit(folder: Path, console: Console, name: str | None = None) -> bool:
    return submit_command(folder, None, name, None, 8, console)


def test_an_entry_that_fails_a_check_does_not_get_on(board: Board, tmp_path: Path, console: Console) -> None:
    entry = play(tmp_path / "e", scripted())
    forge(entry.path, lambda rows: rows[::-1])
    assert not submit(entry.path, console)
    assert "wrong attempts" in text_of(console)
    assert not (board.path / "entries").exists()
    assert board.history() == []


def test_submitted_verified_rendered(board: Board, tmp_path: Path, console: Console) -> None:
    for player in ("expert", "random", scripted(name="half | <b>right</b>")):
        entry = play(tmp_path / str(player)[:6], player)
        assert submit(entry.path, console), text_of(console)
    names = ["expert", "half-b-right-b", "random"]
    assert list(board.entries()) == names
    assert [line["entry"] for line in board.history()] == ["expert", "random", "half-b-right-b"]
    for name in names:
        assert verify_command(board.path / "entries" / name, None, None, 8, console)
    text = (board.path / "README.md").read_text()
    assert "| expert | 100.0% |" in text
    assert r"half \| \<b\>right\</b\>" in text
    assert "<b>" not in (board.path / "index.html").read_text().partition("<main>")[2].partition("Rules")[0]


def test_the_boards_copy_has_no_logprobs_and_stays_verified(
    board: Board, tmp_path: Path, tokenizer: PreTrainedTokenizerBase, console: Console
) -> None:
    entry = play(tmp_path / "e", scripted(tokenizer))
    assert submit(entry.path, console, "mine"), text_of(console)
    there = board.path / "entries" / "mine"
    assert all(not turn["completion"]["logprobs"] for row in rows_of(there) for turn in row["turns"])
    assert [row["turns"][0]["completion"]["tokens"] for row in rows_of(there)] == [
        row["turns"][0]["completion"]["tokens"] for row in rows_of(entry.path)
    ]
    assert verify_command(there, None, None, 8, console)
    assert Entry.open(there).record == entry.record


def test_a_name_is_used_once_and_is_a_name(board: Board, tmp_path: Path, console: Console) -> None:
    entry = play(tmp_path / "e", "expert")
    assert submit(entry.path, console)
    with pytest.raises(UserError, match="is there already"):
        submit(entry.path, console)
    for name in ("../up", "a/b", "", ".hidden"):
        with pytest.raises(UserError, match="cannot name an entry"):
            submit(entry.path, console, name)


def test_what_was_accepted_cannot_be_exchanged(board: Board, tmp_path: Path, console: Console) -> None:
    """Not even by an entry that is in order by itself."""
    entry = play(tmp_path / "e", scripted())
    assert submit(entry.path, console)
    there = board.path / "entries" / "half"
    forge(there, lambda rows: None, model="other", seed=5)
    assert not verify_command(there, None, None, 8, console)
    assert "since the board accepted" in text_of(console)
    with pytest.raises(UserError, match="it was changed"):
        standing(board)


def test_an_entry_that_nobody_accepted(board: Board, tmp_path: Path, console: Console) -> None:
    folder = board.path / "entries" / "sneaked"
    play(folder, "expert")
    assert not verify_command(folder, None, None, 8, console)
    assert "knows no such entry" in text_of(console)
    assert standing(board) == []


def test_the_history_cannot_lead_elsewhere(board: Board) -> None:
    board.note({"what": "submitted", "entry": "../../other", "signature": "0", "grader_version": "1"})
    board.note({"what": "rescored", "entry": "e", "signature": "0", "grader_version": "../.."})
    with pytest.raises(UserError, match="cannot name"):
        board.entries()


def test_ranks_are_ranges_where_nothing_tells_apart(board: Board, tmp_path: Path, console: Console) -> None:
    for n, name in ((12, "all"), (11, "most"), (1, "few"), (0, "none")):
        assert submit(play(tmp_path / name, wins(n, name)).path, console), text_of(console)
    rows = standing(board)
    assert [(row.name, row.ranks) for row in rows] == [
        ("all", "1-2"),
        ("most", "1-2"),
        ("few", "3-4"),
        ("none", "3-4"),
    ]


def test_cards_say_every_mistake(board: Board) -> None:
    (board.path / "board.yaml").write_text(CARD.replace("n: 12", "m: 12") + "lost: many\n")
    with pytest.raises(UserError, match="2 mistakes") as caught:
        _ = Board(board.path).card
    assert "m: " in str(caught.value)
    assert "lost: " in str(caught.value)
    (board.path / "board.yaml").write_text(CARD + "attempts: 12\n")
    with pytest.raises(UserError, match="no other value than 1"):
        _ = Board(board.path).card


def test_published_figures_are_never_ranked(board: Board, tmp_path: Path, console: Console) -> None:
    extra = "published:\n  - {model: GPT-9, success: 99.9, note: as quoted}\n"
    (board.path / "board.yaml").write_text(CARD + extra)
    board = Board(board.path)
    assert submit(play(tmp_path / "e", "random").path, console)
    verified, published = markdown(board, standing(board)).split("## As published")
    assert "GPT-9" not in verified
    assert "| GPT-9 | 99.9% | as quoted |" in published
    assert "rank" not in published.partition("## Rules")[0].replace("no rank", "").lower()


def test_boards_are_found(board: Board, tmp_path: Path) -> None:
    assert [b.name for b in all_boards()] == ["echo"]
    assert Board.find("echo").path == board.path
    assert board_of(board.path / "entries" / "x") == Board(board.path)
    assert board_of(tmp_path / "x") is None
    with pytest.raises(UserError, match="Did you mean 'echo'"):
        Board.find("ecko")


def test_the_shipped_boards_are_in_order() -> None:
    """Cards, histories and entries as they are in the repository, and pages as they are drawn from them."""
    cards = sorted(SHIPPED.glob("*/board.yaml"))
    assert cards
    for card in cards:
        board = Board(card.parent)
        rows = standing(board)
        assert (board.path / "README.md").read_text(encoding="utf-8") == markdown(board, rows)
        assert (board.path / "index.html").read_text(encoding="utf-8") == page(board, rows)
        for row in rows:
            assert sum(f.stat().st_size for f in row.entry.path.iterdir()) < 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alfworld-unseen", "alfworld-generated", "gsm8k-200"])
def test_the_shipped_entries_verify(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every accepted entry, from the repository alone (and the official games or problems, for their boards)."""
    board = Board(SHIPPED / name)
    if board.card.env == "math":
        data = Path(os.environ.get("HARNESS_TEST_DATA", ""))
        if not (data / "math" / "gsm8k_test.jsonl").is_file():
            pytest.skip("needs HARNESS_TEST_DATA, the folder that holds math/gsm8k_test.jsonl")
        monkeypatch.setenv("HARNESS_DATA", str(data))
    if board.card.options["source"] == "official":
        monkeypatch.setenv("ALFWORLD_DATA", str(request.getfixturevalue("official_games")[1]))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for entry in board.entries().values():
        report = verify(entry.path)
        assert report.ok, report.findings
