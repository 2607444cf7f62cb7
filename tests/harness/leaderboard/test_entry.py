"""Entries: nothing twice, nothing lost, nothing mixed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from harness.agents.types import Completion, Outcome, Trajectory, Turn
from harness.envs.base import Task
from harness.envs.errors import UserError
from harness.leaderboard.entry import Entry, EntryWriter, entries
from harness.leaderboard.record import Record

RECORD = Record(
    model="m",
    model_digest="d",
    engine="local",
    env="echo",
    world_version="1",
    split="valid_unseen",
    options={"rounds": 2},
    task_ids=["0", "1", "2"],
    success_at=1.0,
    max_steps=20,
    sampling={"temperature": 1.0},
)


def attempt(task_id: str, reward: float = 1.0, text: str = "say é\u2028x\n", number: int = 0) -> Trajectory:
    turn = Turn(
        prompt_tokens=(1, 2),
        restart=True,
        completion=Completion(tokens=(7,), logprobs=(-0.25,), text=text, finish="stop", version=4),
        thought="t",
        action="a",
        problem=None,
        observation="o",
        reward=reward,
    )
    task = Task(env="echo", id=task_id, split="valid_unseen", seed=3, data=MappingProxyType({"k": [1, {"a": None}]}))
    return Trajectory(
        task=task,
        attempt=number,
        opening="hi",
        turns=(turn,),
        reward=reward,
        outcome=Outcome.DONE,
        metrics={"progress": float("nan"), "steps": 1.0},
    )


def plain(t: Trajectory) -> str:
    return repr(replace(t, task=replace(t.task, data=dict(t.task.data))))  # repr: nan is not equal to itself


def test_round_trip_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    played = [attempt("2"), attempt("0", 0.0), attempt("1")]
    with EntryWriter(tmp_path / "e", RECORD) as writer:
        for t in played:
            writer.add(t)
        entry = writer.finish()
    assert entry.finished
    assert entry.record == RECORD
    assert [t.task.id for t in entry.trajectories()] == ["0", "1", "2"]
    assert sorted(map(plain, entry.trajectories())) == sorted(map(plain, played))
    assert (entry.scores().success.successes, entry.scores().success.n) == (2, 3)
    assert not (entry.path / "trajectories.jsonl").exists()
    assert entries(tmp_path) == [entry]


def test_digests_are_of_the_files(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.sitting({"hardware": "x"})
        for i in "012":
            writer.add(attempt(i))
        writer.finish()
    digests = json.loads((tmp_path / "scores.json").read_text())["digests"]
    assert set(digests) == {"record.json", "sessions.jsonl", "trajectories.jsonl.gz"}
    for name, digest in digests.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_torn_line_is_dropped_and_played_again(tmp_path: Path, cut: int) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.add(attempt("0"))
        writer.add(attempt("1"))
    file = tmp_path / "trajectories.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    with EntryWriter(tmp_path, RECORD) as writer:
        assert list(writer.done) == [("0", 0)]
        writer.add(attempt("1"))
        writer.add(attempt("2"))
        entry = writer.finish()
    assert [t.task.id for t in entry.trajectories()] == ["0", "1", "2"]


def test_readable_while_it_is_played(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.add(attempt("1"))
        assert [t.task.id for t in Entry.open(tmp_path).trajectories()] == ["1"]
        assert not Entry.open(tmp_path).finished
        assert entries(tmp_path) == []


def test_nothing_is_stored_twice(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.add(attempt("1"))
        with pytest.raises(ValueError, match="played already"):
            writer.add(attempt("1"))


def test_repeats_in_the_order_of_tasks_and_numbers(tmp_path: Path) -> None:
    record = replace(RECORD, repeats=2)
    played = [("1", 0), ("0", 1), ("2", 1), ("2", 0), ("1", 1), ("0", 0)]
    with EntryWriter(tmp_path, record) as writer:
        for task, number in played[:3]:
            writer.add(attempt(task, number=number))
    with EntryWriter(tmp_path, record) as writer:
        assert set(writer.done) == set(played[:3])
        with pytest.raises(ValueError, match="none of the entry's"):
            writer.add(attempt("0", number=2))
        for task, number in played[3:]:
            writer.add(attempt(task, number=number))
        entry = writer.finish()
    assert [(t.task.id, t.attempt) for t in entry.trajectories()] == sorted(played)
    assert entry.scores().n == 6


def test_two_writers_at_once(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD), pytest.raises(UserError, match="another process"):
        EntryWriter(tmp_path, RECORD)


def test_another_record_is_refused_by_field(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.add(attempt("0"))
    with pytest.raises(UserError, match=r"other settings \(split, seed\)"):
        EntryWriter(tmp_path, replace(RECORD, seed=1, split="train"))


def test_finish_wants_all(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, RECORD) as writer:
        writer.add(attempt("0"))
        with pytest.raises(ValueError, match="2 attempts have not been played"):
            writer.finish()


def test_finished_is_finished(tmp_path: Path) -> None:
    with EntryWriter(tmp_path, replace(RECORD, task_ids=["0"])) as writer:
        writer.add(attempt("0"))
        writer.finish()
    with pytest.raises(UserError, match="finished already"):
        EntryWriter(tmp_path, replace(RECORD, task_ids=["0"]))


def test_no_entry_and_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no entry"):
        Entry.open(tmp_path)
    (tmp_path / "record.json").write_text('{"model": "x"}')
    with pytest.raises(UserError, match="no record of this version"):
        _ = Entry.open(tmp_path).record


def test_record_digest_moves_with_every_field() -> None:
    changed = [replace(RECORD, seed=1), replace(RECORD, task_ids=["0"]), replace(RECORD, sampling={"temperature": 0.0})]
    assert len({r.digest for r in [RECORD, *changed]}) == 4
    assert replace(RECORD).digest == RECORD.digest
    assert replace(RECORD, repeats=2).digest != RECORD.digest


def test_record_digest_stands_since_the_first_version() -> None:
    assert RECORD.digest == "9d27f668c6276ac896b073b130e355f3d3aaf6e132e31618f047abe3993607e8"
