"""Evaluation: through the real player, resumable, with lost attempts beside the score."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from harness.agents.config import TinyConfig
from harness.agents.models.base import ModelError, Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.agents.types import Outcome
from harness.bench import Ask, evaluate_command
from harness.config import RunConfig
from harness.display import Display
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.evaluate import evaluate, held_out, record_of
from harness.leaderboard.entry import Entry
from harness.load import load
from harness.players import Player, open_player, source
from harness.runs import RunFolder
from harness.show import show_episode

from .conftest import text_of

Script = Callable[[Prompt, Sampling, str], str]


def config(*overrides: str) -> RunConfig:
    return load(
        "default", ["env.name=echo", "eval.n=20", "limits.call_retries=0", "limits.episode_retries=0", *overrides]
    )


def player(script: Script, name: str = "test") -> Player:
    return Player(model=ScriptedModel(script), name=name, engine="scripted")


def word(prompt: Prompt) -> str:
    return prompt.messages[-1].content.rstrip(".").split()[-1]


def half_right(prompt: Prompt, sampling: Sampling, session: str) -> str:
    return f"Action: say {word(prompt) if Random(sampling.seed).random() < 0.7 else 'nothing'}"


def run(who: Player, c: RunConfig, folder: Path, display: Display | None = None) -> Entry:
    return asyncio.run(evaluate(who, c, held_out(c), folder, display))


def test_expert_wins_and_random_rarely_does(tmp_path: Path) -> None:
    c = config()
    scores = {}
    for name in ("expert", "random"):
        who = open_player(source(name), c, held_out(c))
        scores[name] = run(who, c, tmp_path / name).scores().success
    assert (scores["expert"].successes, scores["expert"].n) == (20, 20)
    assert scores["random"].value < 0.3


def test_the_record_says_what_moves_the_score(tmp_path: Path) -> None:
    c = config("env.options.rounds=3", "eval.temperature=0.5", "run.seed=7", "agent.max_steps=9")
    record = run(player(half_right), c, tmp_path).record
    assert record.env == "echo"
    assert record.split == "valid_unseen"
    assert record.options == {"rounds": 3}
    assert record.task_ids == [str(i) for i in range(20)]
    assert record.sampling["temperature"] == 0.5
    assert (record.seed, record.max_steps, record.success_at, record.world_version) == (7, 9, 1.0, "1")
    assert record.prompt_hash is not None
    sessions = Entry.open(tmp_path).sessions()
    assert sessions[0]["hardware"]["cores"] >= 1
    assert sessions[0]["versions"]["harness"] == record.harness_version
    assert sessions[-1]["episodes"] == 20


def test_same_seed_same_entry_other_seed_another(tmp_path: Path) -> None:
    def rewards(seed: int, folder: str) -> list[float]:
        return [t.reward for t in run(player(half_right), config(f"run.seed={seed}"), tmp_path / folder).trajectories()]

    assert rewards(1, "a") == rewards(1, "b")
    assert rewards(1, "a") != rewards(2, "c")


def test_goes_on_where_it_stopped_and_plays_nothing_twice(tmp_path: Path) -> None:
    c, asked = config(), []

    def counting(prompt: Prompt, sampling: Sampling, session: str) -> str:
        asked.append(session.rpartition("#")[0])
        if len(asked) > stop_after:
            raise KeyboardInterrupt
        return half_right(prompt, sampling, session)

    stop_after = 17
    with pytest.raises(KeyboardInterrupt):
        run(player(counting), c, tmp_path)
    before = [t.task.key for t in Entry.open(tmp_path).trajectories()]
    asked.clear()
    stop_after = 10_000
    entry = run(player(counting), c, tmp_path)
    assert not set(before) & set(asked)
    assert len(before) + len(set(asked)) == 20
    whole = run(player(half_right), c, tmp_path / "at once")
    assert [t.reward for t in entry.trajectories()] == [t.reward for t in whole.trajectories()]


def test_a_finished_entry_is_returned_as_it_is(tmp_path: Path) -> None:
    first = run(player(half_right), config(), tmp_path)

    def never(prompt: Prompt, sampling: Sampling, session: str) -> str:
        raise AssertionError("asked again")

    assert run(player(never), config(), tmp_path).record == first.record


def test_another_record_in_the_folder_is_refused(tmp_path: Path) -> None:
    run(player(half_right), config(), tmp_path)
    with pytest.raises(UserError, match=r"other settings \(seed\)"):
        run(player(half_right), config("run.seed=3"), tmp_path)


def test_lost_attempts_are_reported_and_not_scored(tmp_path: Path) -> None:
    def breaks(prompt: Prompt, sampling: Sampling, session: str) -> str:
        if session.startswith(("echo/valid_unseen/3#", "echo/valid_unseen/11#")):
            raise ModelError("the server went away")
        return f"Action: say {word(prompt)}"

    entry = run(player(breaks), config(), tmp_path)
    scores = entry.scores()
    assert (scores.success.successes, scores.success.n) == (18, 18)
    assert scores.lost == {"model_error": 2}
    assert scores.bounds == (0.9, 1.0)
    assert [t.task.id for t in entry.trajectories() if t.outcome is Outcome.MODEL_ERROR] == ["3", "11"]


def test_a_dead_model_stops_the_evaluation_and_names_the_cause(tmp_path: Path) -> None:
    def dead(prompt: Prompt, sampling: Sampling, session: str) -> str:
        raise ModelError("connection refused")

    with pytest.raises(UserError, match="connection refused"):
        run(player(dead), config("limits.failures_in_row=5"), tmp_path)
    assert not Entry.open(tmp_path).finished


def test_n_beyond_the_split_takes_all(tmp_path: Path) -> None:
    world = tmp_path / "two.py"
    world.write_text(
        "from harness.envs.base import Task, TextEnv, WorldSpec\n"
        "class Two(TextEnv):\n"
        "    world = WorldSpec(id='two', description='d', max_steps=3, isolation='none')\n"
        "    @classmethod\n"
        "    def tasks(cls, split):\n"
        "        return [Task(env='two', id=str(i), split=split) for i in range(2)]\n"
    )
    assert len(held_out(config(f"env.name={world}"))) == 2


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path, console: Console) -> None:
    with Display(console) as display:
        run(player(half_right), config(), tmp_path, display)
    begun, ended = text_of(console).splitlines()
    assert begun == "test on echo valid_unseen: 0/20"
    assert ended.startswith("test on echo valid_unseen: 20/20, success ")
    assert "[" in ended


class TestCommand:
    def command(self, console: Console, model: str, *settings: str, env: str | None = "echo") -> str:
        evaluate_command(Ask(model=model, envs=(env,) if env else (), settings=settings), console)
        return text_of(console)

    def test_shows_score_interval_n_and_settings(self, console: Console, runs_root: Path) -> None:
        text = self.command(console, "expert", "eval.n=30")
        assert "100.0%" in text
        assert "88.6 to 100.0" in text
        assert "seed 0, at most 20 steps" in text
        assert str(runs_root / "evals" / "expert-echo-valid_unseen-") in text

    def test_the_same_command_plays_nothing_again(self, console: Console, runs_root: Path) -> None:
        self.command(console, "random", "eval.n=5")
        folder = next((runs_root / "evals").iterdir())
        before = (folder / "sessions.jsonl").read_bytes()
        self.command(console, "random", "eval.n=5")
        assert (folder / "sessions.jsonl").read_bytes() == before
        assert len(list((runs_root / "evals").iterdir())) == 1

    @pytest.mark.parametrize(
        ("model", "setting", "says"),
        [
            ("expert", "trainer.updates=3", "does not train"),
            ("expert", "run.steps=3", "does not train"),
            ("expert", "sampling.temperature=3", "eval.temperature"),
            ("expert", "eval.temperature=0", "samples from no model"),
            ("random", "model.slots=3", "samples from no model"),
        ],
    )
    def test_settings_that_would_be_ignored(self, console: Console, model: str, setting: str, says: str) -> None:
        with pytest.raises(UserError, match=says):
            self.command(console, model, setting)

    def test_world_is_needed(self, console: Console) -> None:
        with pytest.raises(UserError, match="say which world"):
            self.command(console, "expert", env=None)

    def test_unknown_model(self, console: Console) -> None:
        RunFolder.create(load("default", ["env.name=echo"]), "good-run")
        with pytest.raises(UserError, match="Did you mean 'good-run'"):
            self.command(console, "god-run")

    def test_a_world_that_breaks_is_lost_and_not_scored(self, console: Console, tmp_path: Path) -> None:
        world = tmp_path / "mute.py"
        world.write_text(
            "from harness.envs.base import Task, TextEnv, WorldSpec\n"
            "class Mute(TextEnv):\n"
            "    world = WorldSpec(id='mute', description='d', max_steps=3, isolation='none')\n"
            "    @classmethod\n"
            "    def tasks(cls, split):\n"
            "        return [Task(env='mute', id='0', split=split)]\n"
            "    def reset(self, *, seed=None, options=None):\n"
            "        return 'hi', {}\n"
        )
        text = self.command(console, "random", env=str(world))
        assert "1 env_error (NotImplementedError" in text or "1 model_error (NotImplementedError" in text
        assert "0.0 to 100.0%" in " ".join(text.split())
        with pytest.raises(UserError, match="has no expert"):
            self.command(console, "expert", env=str(world))


KILLED = """
import asyncio, sys, time
from pathlib import Path
from tests.harness import test_evaluate as t
def slow(prompt, sampling, session):
    time.sleep(0.02)
    return t.half_right(prompt, sampling, session)
t.run(t.player(slow), t.config("eval.n=300"), Path(sys.argv[1]))
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    folder = tmp_path / "e"
    env = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=root, env=env) as process:
        plain = folder / "trajectories.jsonl"
        while process.poll() is None and not (plain.is_file() and plain.stat().st_size > 5000):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    kept = [t.task.id for t in Entry.open(folder).trajectories()]
    assert kept
    assert len(kept) == len(set(kept)) < 300
    entry = run(player(half_right), config("eval.n=300"), folder)
    assert entry.scores().n == 300
    assert [t.task.id for t in entry.trajectories()] == [str(i) for i in range(300)]
    assert json.loads((folder / "scores.json").read_text())["n"] == 300


def test_records_of_players_differ() -> None:
    c = config()
    tasks = held_out(c)
    one = record_of(player(half_right, "one"), c, tasks)
    assert one.digest != record_of(replace(player(half_right, "one"), digest="x"), c, tasks).digest
    assert one.digest == record_of(player(half_right, "one"), c, tasks).digest


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A run-sized model folder, untrained."""
    from harness.agents.models.tiny import make_tiny  # late: torch, which the killed process does not need

    folder = tmp_path / "tiny"
    make_tiny(folder, TinyConfig(layers=1, width=16, heads=2, kv_heads=2, mlp=16, context=2048), Echo.texts(), 0)
    return folder


def test_a_real_model_with_tokens_digests_and_a_mask_to_show(tiny: Path, console: Console) -> None:
    run_folder = RunFolder.create(config("eval.n=6", "sampling.max_tokens=8"), "mine")
    shutil.copytree(tiny, run_folder.checkpoint("initial"))
    evaluate_command(Ask(model="mine"), console)
    entry = Entry.open(next(run_folder.evals.iterdir()))
    assert entry.path.name.startswith("initial-echo-valid_unseen-")
    record = entry.record
    assert record.model == "mine@initial"
    assert record.engine == "local"
    assert record.model_digest is not None
    assert record.tokenizer_hash is not None
    trajectories = list(entry.trajectories())
    assert len(trajectories) == 6
    assert all(t.trainable for t in trajectories)
    show_episode(run_folder, None, "0", True, console)
    assert "sampled tokens" in text_of(console)


def test_an_endpoint_without_tokens(console: Console) -> None:
    """Plays against a real HTTP server that speaks the chat completions protocol."""
    with chat_server() as url:
        evaluate_command(Ask(model=f"openai:parrot@{url}", envs=("echo",), settings=("eval.n=4",)), console)
    text = text_of(console)
    assert "parrot on echo valid_unseen" in text
    assert "100.0%" in text


class Parrot(BaseHTTPRequestHandler):
    """Answers with the last word of the last message."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = asked["messages"][-1]["content"].rstrip(".").split()[-1]
        message = {"role": "assistant", "content": f"Action: say {said}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "parrot", "choices": [choice]}
        answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Not into the test's output."""


@contextmanager
def chat_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Parrot) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()
