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

from harness.rl.buffer.base import STATES
from harness.rl.buffer.sql import SqlBuffer

PLAYERS = Path(__file__).with_name("players.py")
KILLED = -9


def start(role: str, folder: Path, die_at: str, *rest: str) -> subprocess.Popen[bytes]:
    url = f"sqlite:///{folder / 'buffer.db'}"
    return subprocess.Popen([sys.executable, str(PLAYERS), role, str(folder), url, die_at, *rest])


def run(role: str, folder: Path, die_at: str, *rest: str) -> None:
    assert start(role, folder, die_at, *rest).wait(120) == (0 if die_at == "never" else KILLED)


def audit(folder: Path) -> None:
    done, model = json.loads((folder / "checkpoint.json").read_text())
    assert done == 2
    assert sorted(model) == list(range(8))
    buffer = SqlBuffer(f"sqlite:///{folder / 'buffer.db'}")
    assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": 8}
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
    for die_at in ("in flight 0.3", "put 0", "in flight 1.6", "put 1"):
        run("explorer", tmp_path, die_at)
    run("explorer", tmp_path, "never")
    assert len((tmp_path / "played").read_text().split()) == 8
    run("trainer", tmp_path, "never", "1")
    audit(tmp_path)


@pytest.mark.slow
def test_writers_killed_at_random_moments_lose_nothing_that_put_returned_for(tmp_path: Path) -> None:
    """Two writers, killed again and again, beside a reader that trains in the meantime."""
    slots, batch = 48, 4
    buffer = SqlBuffer(f"sqlite:///{tmp_path / 'buffer.db'}")
    chance = random.Random(3)
    writers: dict[int, subprocess.Popen[bytes]] = {}
    kills, step, trained = 0, 0, []
    while len(trained) < slots:
        for i in (0, 1):
            if i not in writers or writers[i].poll() is not None:
                writers[i] = start("writer", tmp_path, "never", f"{i},2,{slots}")
        if kills < 4 and buffer.counts()["ready"] > 8 * chance.randrange(3):
            kills += 1
            time.sleep(chance.random() * 0.02)
            chance.choice(list(writers.values())).kill()
        if (groups := buffer.take(step, batch, 0)) is not None:
            assert [len(g.experiences) for g in groups] == [8] * batch
            buffer.acknowledge(step)
            trained += [g.group for g in groups]
            step += 1
        time.sleep(0.01)
    for w in writers.values():
        w.kill()
        w.wait(60)
    assert sorted(trained, key=int) == [str(slot) for slot in range(slots)]
    returned = [name for i in (0, 1) for name in (tmp_path / f"journal{i}").read_text().split()]
    assert set(returned) <= set(trained)
    assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": slots * 8}
    buffer.close()
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_many_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    opened = [start("writer", tmp_path, "never", f"{i},1,0") for i in range(4)]
    assert [p.wait(120) for p in opened] == [0] * 4
