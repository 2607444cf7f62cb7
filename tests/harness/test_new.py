"""From nothing to a first evaluation in three commands, and the file that README shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness.envs.errors import UserError
from harness.new import files, new

from .conftest import text_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_is_what_is_written_and_short() -> None:
    written = files("higher")
    assert (EXAMPLES / "higher.py").read_text() == written["higher.py"]
    assert (EXAMPLES / "test_higher.py").read_text() == written["test_higher.py"]
    assert len(written["higher.py"].splitlines()) <= 25


def test_files_are_written_and_what_comes_next_is_said(tmp_path: Path, console: Console) -> None:
    new("my_world", tmp_path, console)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my_world.md", "my_world.py", "test_my_world.py"]
    assert "class MyWorld(TextEnv)" in (tmp_path / "my_world.py").read_text()
    assert f"harness eval --env {tmp_path}/my_world.py --model random" in text_of(console)


def test_nothing_of_the_authors_is_overwritten(tmp_path: Path, console: Console) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        new("mine", tmp_path, console)
    assert [p.name for p in tmp_path.iterdir()] == ["test_mine.py"]


@pytest.mark.parametrize("name", ["My", "my-world", "class", "2nd", "a b", "../up", "wörld"])
def test_names_that_cannot_name_a_world(name: str) -> None:
    with pytest.raises(UserError, match="cannot name a world"):
        files(name)


@pytest.mark.slow
def test_three_commands_from_nothing_to_a_score_and_the_test_that_comes_with_it_passes(tmp_path: Path) -> None:
    def harness(*args: str) -> str:
        command = [sys.executable, *(args if args[0] == "-m" else ("-m", "harness", *args))]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    harness("env", "new", "guess")
    assert "guess passes" in harness("env", "check", "./guess.py", "--card", "guess.md")
    assert "success" in harness("eval", "--env", "./guess.py", "--model", "random", "--n", "40")
    assert "11 of 11 passed" in (tmp_path / "guess.md").read_text()
    assert "1 passed" in harness("-m", "pytest", "-q", "-k", "right_number", "test_guess.py")


@pytest.mark.slow
def test_two_runs_at_once_on_one_world_file(tmp_path: Path) -> None:
    """A training and an evaluation begin in the same moment, while the file is not even compiled yet."""
    new("guess", tmp_path, Console())
    sizes = ["run.steps=1", "eval.n=4", "explorer.groups=2", "explorer.group_size=2", "warmup.stages=[{episodes: 20}]"]
    train = ["train", "--env", "./guess.py", "run.place=inline", "explorer.workers=1", "trainer.threads=1", *sizes]
    played = ["eval", "--env", "./guess.py", "--model", "random", "--n", "20"]
    began = [
        subprocess.Popen(
            [sys.executable, "-m", "harness", *args],
            cwd=tmp_path,
            env=os.environ | {"HARNESS_RUNS": str(tmp_path / "runs")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for args in (train, train, played)
    ]
    for process in began:
        said, _ = process.communicate(timeout=280)
        assert process.returncode == 0, said
    assert len(list((tmp_path / "runs").glob("guess-*/metrics.jsonl"))) == 2
