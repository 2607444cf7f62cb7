"""Processes killed with SIGKILL at every point: nothing stored is lost, and each id is trained exactly once (C14)."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.rl.buffer.sql import SqlBuffer

PLAYERS = Path(__file__).with_name("players.py")
KILLED = -9


def start(role: str, folder: Path, die_at: str, *rest: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(PLAYERS), role, str(folder), die_at, *rest])


def run(role: str, folder: Path, die_at: str, *rest: str) -> None:
    assert start(role, folder, die_at, *rest).wait(120) == (0 if die_at == "never" else KILLED)


def audit(folder: Path) -> None:
    done, model = json.loads((folder / "checkpoint.json").read_text())
    assert done == 2
    assert sorted(model) == list(range(8))
    buffer = SqlBuffer(f"sqlite:///{folder / 'buffer.db'}")
    assert buffer.counts() == {"ready": 0, "leased": 0, "trained": 8}
    buffer.close()


def test_each_id_is_trained_once_though_the_trainer_is_stopped_after_one_step(tmp_path: Path) -> None:
    """C14: ids 0 to 7, train batch 2, rollout batch 4; stopped after the first optimizer step and resumed."""
    run("explorer", tmp_path, "never")
    run("trainer", tmp_path, "trained 0.0", "1")
    run("trainer", tmp_path, "saved 0", "1")  # its checkpoint has step 0, which it could not acknowledge
    run("trainer", tmp_path, "never", "1")
    audit(tmp_path)


def test_each_id_is_trained_once_with_two_long_episodes_in_flight_at_the_stop(tmp_path: Path) -> None:
    """C14 again: at the stop, ids 0 and 1 were put, 2 and 3 were still being played."""
    waiting = start("trainer", tmp_path, "never", "1")
    run("explorer", tmp_path, "in flight 0.2")
    waiting.kill()
    assert waiting.wait(60) == KILLED
    assert not (tmp_path / "checkpoint.json").exists()
    run("explorer", tmp_path, "never")
    run("trainer", tmp_path, "never", "1")
    audit(tmp_path)
    played = (tmp_path / "played").read_text().split()
    assert Counter(played) == dict.fromkeys(played, 1)
    assert len(played) == 8


@pytest.mark.slow
def test_a_trainer_killed_at_every_point_trains_each_id_once(tmp_path: Path) -> None:
    """With one checkpoint at the end, so that each kill also takes back what was acknowledged."""
    run("explorer", tmp_path, "never")
    for die_at in ("taken 0", "acknowledged 0", "trained 1.0", "saved 1"):
        run("trainer", tmp_path, die_at, "2")
    run("trainer", tmp_path, "never", "2")
    audit(tmp_path)


@pytest.mark.slow
def test_an_explorer_killed_at_every_point_plays_what_is_missing(tmp_path: Path) -> None:
    for die_at in ("in flight 0.3", "put 0", "complete 0", "put 1"):
        run("explorer", tmp_path, die_at)
    run("explorer", tmp_path, "never")
    assert len((tmp_path / "played").read_text().split()) == 8
    run("trainer", tmp_path, "never", "1")
    audit(tmp_path)


@pytest.mark.slow
def test_writers_killed_at_random_moments_lose_nothing_that_put_returned_for(tmp_path: Path) -> None:
    """Two writers, killed again and again, beside a reader that trains in the meantime."""
    steps = 12
    buffer = SqlBuffer(f"sqlite:///{tmp_path / 'buffer.db'}")
    chance = random.Random(3)
    writers: list[subprocess.Popen[bytes]] = []
    kills, trained = 0, 0
    while trained < steps:
        writers = [w for w in writers if w.poll() is None]
        present = {int(str(w.args[-1]).split(",")[0]) for w in writers}  # type: ignore[index]
        writers += [start("writer", tmp_path, "never", f"{i},{steps}") for i in {0, 1} - present]
        if kills < 4 and len(buffer.groups_of(trained)) > chance.randrange(3):
            kills += 1
            time.sleep(chance.random() * 0.02)
            chance.choice(writers).kill()
        if (groups := buffer.take(trained)) is not None:
            assert [len(g.experiences) for g in groups] == [8] * 4
            buffer.acknowledge(trained)
            trained += 1
        time.sleep(0.01)
    for w in writers:
        w.kill()
        w.wait(60)
    returned = [line.split() for i in (0, 1) for line in (tmp_path / f"journal{i}").read_text().splitlines()]
    assert {(step, g) for step in range(steps) for g in buffer.groups_of(step)} >= {(int(s), g) for s, g in returned}
    assert buffer.counts() == {"ready": 0, "leased": 0, "trained": steps * 4 * 8}
    assert buffer.completed() == steps
    buffer.close()
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_many_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    opened = [start("writer", tmp_path, "never", f"{i},0") for i in range(4)]
    assert [p.wait(120) for p in opened] == [0] * 4
