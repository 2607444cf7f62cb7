"""`harness env check` on the screen, as JSON, and as a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from harness.envs.check import Finding, Report
from harness.envs.errors import UnknownName
from harness.judge import judge, show, write_card

from .conftest import text_of

REPORT = Report(
    name="./mine.py",
    id="mine",
    description="d",
    edition="1",
    isolation="none",
    harness="0",
    findings=(
        Finding(check="contract", level="passed", what="fine"),
        Finding(check="reward", level="failed", what="nan is paid", where="mine.py:3", mend="Pay a number."),
        Finding(check="clone", level="skipped", what="not declared"),
    ),
    figures={"reset_ms": 0.5},
)


def test_each_failure_says_what_where_and_how_to_mend(console: Console) -> None:
    show(REPORT, console)
    text = text_of(console)
    for said in ("nan is paid", "where: mine.py:3", "mend: Pay a number.", "mine does not pass: 1 passed, 1 failed"):
        assert said in text


def test_json_is_all_there_is_on_stdout(console: Console, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    assert judge("echo", ["rounds=3"], ["tasks", "seeds"], 5.0, True, card, console)
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is True
    assert {f["check"] for f in report["findings"]} == {"tasks", "seeds"}
    assert "2 of 2 passed" in card.read_text()
    assert text_of(console) == ""


def test_an_unknown_check_is_named(console: Console) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'tricks'"):
        judge("echo", [], ["trics"], 5.0, False, None, console)


def test_a_card_goes_between_the_marks_and_leaves_the_rest(tmp_path: Path) -> None:
    card = tmp_path / "mine.md"
    write_card(card, REPORT)
    whole = card.read_text()
    write_card(card, REPORT)
    assert card.read_text().count("![harness env check") == 1
    card.write_text(f"# Mine\n\nBefore.\n\n{whole}\nAfter.\n")
    write_card(card, REPORT)
    text = card.read_text()
    assert text.startswith("# Mine\n\nBefore.\n")
    assert text.endswith("\nAfter.\n")
    assert text.count("1 of 2 passed") == 1
