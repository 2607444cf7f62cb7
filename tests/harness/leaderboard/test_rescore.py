"""A new grader: stored answers are graded again, the old grades are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.leaderboard.board import Board
from harness.leaderboard.entry import Entry

WORLD = '''
from harness.envs.base import Task, TextEnv, WorldSpec

class Sums(TextEnv):
    """Say the sum. The first grader wants the very digits, the second any way to write the number."""

    world = WorldSpec(id="sums", description="say the sum", max_steps=2, isolation="none", version="VERSION",
                      grader_version="GRADER", splits=("train", "test"))

    @classmethod
    def tasks(cls, split):
        return [Task(env="sums", split=split, id=str(i), data={"a": i, "b": 2 * i}) for i in range(10)]

    def reset(self, *, seed=None, options=None):
        self.data = options["task"].data
        return f"What is {self.data['a']} + {self.data['b']}?", {}

    def step(self, action):
        true = self.data["a"] + self.data["b"]
        right = action == str(true) if "GRADER" == "1" else action.lstrip("+0 ") == str(true).lstrip("0")
        return "Right." if right else "Wrong.", float(right), True, False, {}

    def expert(self):
        return Adds()

class Adds:
    def act(self, observation, info):
        a, b = (int(word) for word in observation.strip("?").split() if word.isdigit())
        return "", f"{a + b}" if a % 2 else f"+{a + b}"
'''
CARD = "title: Sums\nenv: {env}\nsplit: test\nmax_steps: 2\n"


def harness(*args: str, boards: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as a new version of the world would be met."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *args],
        capture_output=True,
        text=True,
        env=os.environ | {"HARNESS_BOARDS": str(boards), "NO_COLOR": "1", "COLUMNS": "160"},
        timeout=120,
    )


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "sums.py"
    path.write_text(WORLD.replace("GRADER", "1").replace("VERSION", "1"))
    (tmp_path / "boards" / "sums").mkdir(parents=True)
    (tmp_path / "boards" / "sums" / "board.yaml").write_text(CARD.format(env=path))
    return path


def test_graded_again_with_history_kept(world: Path, tmp_path: Path) -> None:
    boards = tmp_path / "boards"
    out = tmp_path / "e"
    played = harness("eval", "--env", str(world), "--split", "test", "-m", "expert", "--out", str(out), boards=boards)
    assert played.returncode == 0, played.stderr
    done = harness("leaderboard", "submit", str(out), "--board", "sums", boards=boards)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every entry was graded by today's grader" in harness("leaderboard", "rescore", boards=boards).stdout

    world.write_text(WORLD.replace("GRADER", "2").replace("VERSION", "1"))
    stale = harness("leaderboard", "render", "sums", boards=boards)
    assert stale.returncode == 0, stale.stderr
    assert "| - | expert | 50.0% |" in (boards / "sums" / "README.md").read_text()

    done = harness("leaderboard", "rescore", "sums", boards=boards)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 to 2" in done.stdout
    assert "5 of 10" in done.stdout
    board = Board(boards / "sums")
    old, new = Entry.open(board.path / "entries" / "expert"), board.entries()["expert"]
    assert new.path == board.path / "rescored" / "2" / "expert"
    assert (old.scores().success.successes, new.scores().success.successes) == (5, 10)
    assert (old.record.grader_version, new.record.grader_version) == ("1", "2")
    line = json.loads((board.path / "history.jsonl").read_text().splitlines()[-1])
    assert (line["what"], line["from"], line["grader_version"], line["changed"]) == ("rescored", "1", "2", 5)
    assert "| 1 | expert | 100.0% |" in (board.path / "README.md").read_text()

    verified = harness("leaderboard", "verify", str(new.path), boards=boards)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    refused = harness("leaderboard", "verify", str(old.path), boards=boards)
    assert refused.returncode == 1
    assert "grader_version" in refused.stdout


def test_a_new_version_of_the_world_asks_for_new_episodes(world: Path, tmp_path: Path) -> None:
    boards, out = tmp_path / "boards", tmp_path / "e"
    harness("eval", "--env", str(world), "--split", "test", "-m", "expert", "--out", str(out), boards=boards)
    assert harness("leaderboard", "submit", str(out), "--board", "sums", boards=boards).returncode == 0
    world.write_text(WORLD.replace("GRADER", "2").replace("VERSION", "2"))
    done = harness("leaderboard", "rescore", "sums", boards=boards)
    assert done.returncode == 2
    assert "must be played again" in done.stderr
