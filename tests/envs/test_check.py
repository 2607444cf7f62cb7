"""`harness env check` catches each broken world by name, and lets the shipped ones pass."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest

from harness.envs.check import CHECKS, Finding, Report, check
from harness.envs.check.probe import Probe
from harness.envs.errors import UserError
from harness.envs.registry import TABLE

BROKEN = Path(__file__).with_name("broken.py")


@pytest.fixture(autouse=True)
def _find_worlds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BROKEN.parent))
    monkeypatch.setenv("PYTHONPATH", str(BROKEN.parent))
    monkeypatch.setenv("BROKEN_FOLDER", str(tmp_path))


def judged(world: str, *only: str, seconds: float = 10.0) -> Report:
    return check(f"broken:{world}", only=only, seconds=seconds)


def test_a_sound_world_passes_everything_without_a_warning() -> None:
    report = judged("Sound")
    assert report.verdicts() == dict.fromkeys(CHECKS, "passed"), report.findings
    assert report.passed
    assert {"step_p50_ms", "step_p99_ms", "reset_ms", "memory_kb_per_episode"} <= set(report.figures)


FAULTS = [
    ("WrongShape", "contract", "step must give"),
    ("OddInfo", "contract", "info['progress'] is"),
    ("OddInfo", "contract", "info['tools'] is"),
    ("OddInfo", "contract", "info cannot cross a process boundary"),
    ("SameTasks", "tasks", "100 of the first 100 tasks of 'valid_unseen' are also training tasks"),
    ("DrawsAnew", "determinism", "two plays of one task part at reset"),
    ("HashSeed", "determinism", "two processes play one task differently"),
    ("OneTask", "seeds", "all the same episode"),
    ("Remembers", "reset", "plays differently than in a fresh world"),
    ("Grows", "reset", "kB of memory an episode"),
    ("Opens", "reset", "open files"),
    ("Spawns", "reset", "child processes"),
    ("Shares", "isolation", "8 worlds stepped in turn mix"),
    ("Races", "isolation", "8 threads at once"),
    ("LocksItself", "isolation", "two processes play one task differently"),
    ("HalfCloned", "clone", "copied in the middle"),
    ("RaisesOnJson", "hostile", "half-open JSON"),
    ("Exits", "hostile", "control characters: the world ends its process: process exited with code 3"),
    ("Overpays", "reward", "add up to 2, outside of [0, 1]"),
    ("NotANumber", "reward", "nan is not finite"),
    ("ReadsReward", "reward", "writes its own reward gets it"),
    ("PaysForNothing", "tricks", "doing nothing wins 12"),
    ("TakesAnyOf", "tricks", "every answer at once wins 12"),
    ("Mistaken", "oracle", "the expert loses"),
    ("Pedantic", "spellings", "with spaces around loses 5"),
    ("Evaluates", "reach", "runs what the agent writes as code"),
    ("Reads", "reach", "the agent can read"),
    ("GivesAway", "reach", "info gives the answer away"),
]
APART = ("HashSeed", "Opens", "Spawns", "LocksItself", "Exits", "Evaluates")
"""Those that would break this process, or that only another one can catch."""


@pytest.mark.parametrize(("world", "by", "says"), FAULTS, ids=[f"{world}-{by}" for world, by, _ in FAULTS])
def test_each_fault_is_caught_by_name(world: str, by: str, says: str) -> None:
    found = judged(world, by).of(by) if world in APART else judged_here(world, by)
    failed = [f for f in found if f.level == "failed"]
    assert any(says in f.what for f in failed), [f.what for f in found]
    assert all(f.mend for f in failed)


def judged_here(world: str, by: str) -> list[Finding]:
    """One check as its process does it, without the second that a process takes to start."""
    action = "half-open JSON" if by == "hostile" else ""
    answer = Probe(f"broken:{world}", "{}", "10").answer(["findings", [by, action]])
    status, (findings, _) = msgpack.unpackb(answer[4:])
    assert status == "ok"
    return [Finding(**f) for f in findings]


def test_a_world_that_hangs_is_named_with_the_action_and_does_not_hang_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.envs.check.run.START_SECONDS", 5.0)
    report = judged("HangsOnLength", "hostile", seconds=1)
    (hung,) = [f for f in report.of("hostile") if f.level == "failed"]
    assert hung.what.startswith("100 kB of digits: the world hangs")


def test_where_nothing_can_be_played_the_rest_is_skipped() -> None:
    report = judged("WrongShape")
    assert report.verdicts() == {**dict.fromkeys(CHECKS, "skipped"), "contract": "failed"}


def test_a_world_that_is_not_there_is_a_user_error() -> None:
    with pytest.raises(UserError):
        check("broken:NotThere")
    with pytest.raises(UserError):
        check("echo", options={"rounds": 99}, only=("tasks",))


@pytest.mark.slow
@pytest.mark.parametrize("world", [row.name for row in TABLE if row.name not in ("mcp", "alfworld-textworld")])
def test_the_shipped_worlds_pass(world: str) -> None:
    report = check(world, seconds=2)  # enough for 200 episodes of a quick world
    assert report.passed, [f for f in report.findings if f.level == "failed"]
    assert "failed" not in report.verdicts().values()


def test_a_report_as_json_and_as_a_card_with_a_badge() -> None:
    report = judged("Pedantic", "contract", "spellings")
    again = json.loads(json.dumps(report.as_json()))
    assert again["passed"] is False
    assert {f["check"] for f in again["findings"]} == {"contract", "spellings"}
    card = report.card().splitlines()
    assert card[0] == "# sound"
    assert card[2] == (
        "![harness env check: 1 of 2 passed](https://img.shields.io/badge/harness%20env%20check-1%2F2%20failed-red)"
    )
    assert any("with spaces around" in line and line.startswith("- **spellings**") for line in card)
