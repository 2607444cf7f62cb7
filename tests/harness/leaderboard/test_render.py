"""Boards: comparable entries together, best first, lost attempts in sight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.agents.types import Outcome, Trajectory
from harness.envs.base import Task
from harness.leaderboard.entry import Entry, EntryWriter, Record
from harness.leaderboard.render import markdown, tables

RECORD = Record(
    model="m",
    model_digest=None,
    engine="expert",
    env="echo",
    world_version="1",
    split="valid_unseen",
    task_ids=[str(i) for i in range(50)],
    success_at=1.0,
    max_steps=20,
    sampling={"temperature": 1.0},
)


def entry(folder: Path, record: Record, won: int, lost: int = 0) -> Entry:
    with EntryWriter(folder, record) as writer:
        for i, task_id in enumerate(record.task_ids):
            outcome = Outcome.TIMEOUT if i >= len(record.task_ids) - lost else Outcome.DONE
            task = Task(env="echo", id=task_id, split="valid_unseen")
            writer.add(Trajectory(task=task, attempt=0, opening="", turns=(), reward=float(i < won), outcome=outcome))
        return writer.finish()


def test_best_first_with_interval_and_n(tmp_path: Path) -> None:
    worse = entry(tmp_path / "a", replace(RECORD, model="worse"), 26)
    better = entry(tmp_path / "b", replace(RECORD, model="better|one"), 29)
    text = markdown([worse, better])
    assert "| 1 | better\\|one | 58.0% | 44.2 to 70.6 | 50 | 0 |" in text
    assert "| 2 | worse | 52.0% | 38.5 to 65.2 | 50 | 0 |" in text


def test_lost_attempts_stand_beside_the_score(tmp_path: Path) -> None:
    text = markdown([entry(tmp_path / "a", RECORD, 20, lost=10)])
    assert "| 50.0% | 35.2 to 64.8 | 40 | 10 | 40.0 to 60.0 |" in text


def test_what_cannot_be_compared_is_kept_apart(tmp_path: Path) -> None:
    records = [
        RECORD,
        replace(RECORD, max_steps=30),
        replace(RECORD, task_ids=RECORD.task_ids[:10]),
        replace(RECORD, options={"rounds": 3}),
        replace(RECORD, world_version="2"),
    ]
    made = [entry(tmp_path / str(i), r, 5) for i, r in enumerate(records)]
    assert [len(rows) for _, rows in tables(made)] == [1] * 5


def test_empty_board() -> None:
    assert "No finished entry yet" in markdown([])
