"""The command as people meet it: quick, and kind about mistakes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import __version__
from harness.cli import main

HEAVY = ("torch", "transformers", "ray", "vllm", "verl", "pandas", "matplotlib", "sqlalchemy", "aiohttp", "scipy")


def harness(*args: str, stdin: str = "", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"} | env,
        timeout=120,
    )


class Called(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Called]:
    """The command in this process, in an empty folder: the same path, without Python's start each time."""
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def command(*args: str, stdin: str = "") -> Called:
        monkeypatch.setattr(sys, "argv", ["harness", *args])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 0
        return Called(code, *capsys.readouterr())

    return command


def imported(*args: str) -> set[str]:
    """Top-level packages that a command imports."""
    code = (
        f"import sys, runpy\nsys.argv = ['harness', *{args!r}]\n"
        "try: runpy.run_module('harness', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("args", [["--help"], ["env", "list"], ["train", "--help"], ["env", "--help"]])
def test_starting_imports_nothing_heavy(args: list[str]) -> None:
    """What makes a command slow to start is what it imports; seconds depend on the machine and are not asserted."""
    there = imported(*args)
    assert "typer" in there
    assert not there & {*HEAVY, "numpy", "gymnasium"}


@pytest.mark.parametrize("args", [["runs"], ["doctor"], ["leaderboard", "render"]])
def test_reading_commands_need_no_torch(args: list[str]) -> None:
    assert not imported(*args) & {"torch", "transformers", "ray"}


def test_help_names_every_command(call: Callable[..., Called]) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for command in ("train", "resume", "eval", "runs", "show", "leaderboard", "env", "doctor"):
        assert f" {command} " in out


def test_version() -> None:
    assert harness("--version").stdout == f"harness {__version__}\n"


def test_env_list(call: Callable[..., Called]) -> None:
    code, out, _ = call("env", "list")
    assert code == 0
    for name in ("alfworld", "math", "echo", "harness/ALFWorld-v0"):
        assert name in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "--env", "alfwrld"], "Did you mean 'alfworld'"),
        (["train"], "harness train --env alfworld"),
        (["train", "--env", "echo", "trainer.lr=3e-4", "eval.m=3"], "trainer.optimizer.lr"),
        (["train", "--env", "echo", "trainer.lr=3e-4", "eval.m=3"], "2 mistakes"),
        (["train", "--recipe", "alfworld/tinny"], "Did you mean 'alfworld/tiny'"),
        (["train", "--env", "echo", "model.path=./nowhere"], "no config.json"),
        (["train", "--env", "./nowhere.py"], "does not exist"),
        (["resume", "nothing"], "unknown run 'nothing'"),
        (["resume"], "there is no run"),
        (["show", "nothing"], "unknown run 'nothing'"),
        (["eval", "--env", "echo", "--model", "nothing"], "unknown model 'nothing'"),
        (["eval", "--env", "echo", "--model", "openai:x"], "openai:MODEL@http"),
        (["eval", "--env", "echo", "--model", "expert", "--split", "tset"], "no split 'tset'"),
        (["env", "play", "ecko"], "Did you mean 'echo'"),
        (["env", "play", "echo", "--split", "tset"], "unknown split"),
        (["leaderboard", "render"], "there is no board in leaderboards"),
        (["leaderboard", "render", "nothing"], "unknown board 'nothing'"),
        (["leaderboard", "verify", "nowhere"], "nowhere is no folder"),
        (["env", "check", "ecko"], "Did you mean 'echo'"),
        (["env", "check", "echo", "--only", "resett"], "Did you mean 'reset'"),
        (["env", "check", "echo", "-o", "rounds=99"], "between 1 and 20"),
        (["env", "new", "My World"], "cannot name a world"),
        (["train", "--env", "echo", "env.faults.hang=0.9", "env.faults.exit=0.9"], "at most 1 together"),
        (["train", "--env", "echo", "env.faults.hung=0.9"], "Did you mean env.faults.hang"),
        (["train", "--env", "echo", "env.faults.seed=3"], "there are no faults"),
    ],
)
def test_mistakes_are_one_message_without_a_traceback(
    args: list[str], says: str, call: Callable[..., Called], runs_root: Path
) -> None:
    code, out, err = call(*args)
    assert code == 2, out + err
    assert says in err
    assert "Traceback" not in err
    assert os.listdir() == []  # nothing was begun
    assert not runs_root.exists()


def test_mistakes_from_a_shell(tmp_path: Path) -> None:
    done = harness("train", "--env", "alfwrld", "trainer.lr=3e-4", cwd=tmp_path)
    assert done.returncode == 2
    assert "2 mistakes" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_runs_folder_that_cannot_be_written(
    call: Callable[..., Called], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_RUNS", str(tmp_path / "file"))
    code, _, err = call("train", "--env", "echo")
    assert code == 2
    assert "in the way" in err


def test_unknown_option_is_explained(call: Callable[..., Called]) -> None:
    code, _, err = call("train", "--envv", "echo")
    assert code == 2
    assert "No such option" in err


def test_eval_verify_submit_render(call: Callable[..., Called], tmp_path: Path) -> None:
    board = Path("leaderboards/echo")
    board.mkdir(parents=True)
    (board / "board.yaml").write_text("title: Echo\nenv: echo\nsplit: valid_unseen\nn: 20\nmax_steps: 20\n")
    for model in ("expert", "random"):
        out = str(tmp_path / model)
        code, _, err = call("eval", "--env", "echo", "--model", model, "--n", "20", "--out", out)
        assert code == 0, err
        assert call("leaderboard", "verify", out).code == 0
        assert "accepted" in call("leaderboard", "submit", out).out
    assert "no run in" in call("runs").out
    rows = [line for line in (board / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[1] for row in rows[2:]] == ["expert", "random"]
    assert "expert" in call("leaderboard", "render").out
    entry = board / "entries" / "random" / "scores.json"
    entry.write_text(entry.read_text().replace('"successes": 0', '"successes": 20', 1))
    code, out, _ = call("leaderboard", "verify", str(entry.parent))
    assert code == 1
    assert "edited figure" in out


def test_play_by_hand(call: Callable[..., Called]) -> None:
    code, out, err = call("env", "play", "echo", stdin=":admissible\n:what\nsay island\n\nsay hammer\n")
    assert code == 0, err
    assert "say apple" in out
    assert ":quit leaves" in out
    assert "solved: reward 1 in 2 steps" in out


def test_play_ends_with_the_input(call: Callable[..., Called]) -> None:
    assert "left after 0 steps" in call("env", "play", "echo").out


def test_doctor(call: Callable[..., Called]) -> None:
    code, out, _ = call("doctor")
    assert code == 0
    for word in ("python", "core", "memory", "torch", "pip install"):
        assert word in out


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    world = tmp_path / "slow.py"
    world.write_text(SLOW)
    command = [sys.executable, "-m", "harness", "eval", "--env", str(world), "--model", "random", "--n", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (tmp_path / "played").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopped. The same command goes on where this one stopped." in err
    assert "Traceback" not in err


SLOW = """
import time
from pathlib import Path
from harness.envs.base import Task, TextEnv, WorldSpec
class Slow(TextEnv):
    world = WorldSpec(id="slow", description="d", max_steps=3, isolation="none")
    @classmethod
    def tasks(cls, split):
        return [Task(env="slow", id=str(i), split=split) for i in range(100_000)]
    def reset(self, *, seed=None, options=None):
        return "hi", {"admissible": ["a"]}
    def step(self, action):
        Path(__file__).with_name("played").touch()
        time.sleep(0.01)
        return "bye", 1.0, True, False, {}
"""
