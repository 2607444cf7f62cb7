"""The trainer alone: on demonstrations, on preference pairs, and on what other runs have stored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.agents.base import Agent
from harness.agents.registry import make
from harness.cli import app
from harness.config import RunConfig
from harness.envs.base import Task
from harness.envs.echo import WORDS, Echo
from harness.envs.errors import UserError
from harness.load import ConfigError, load
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.loop import Loop
from harness.rl.monitor import read
from harness.rl.trainer.checkpoint import read_state
from harness.runs import RunFolder, find
from harness.show import points
from harness.train import resume, train

Small = Callable[..., RunConfig]
LEARNS = (
    "model.tiny.layers=2",
    "model.tiny.width=64",
    "model.tiny.heads=2",
    "model.tiny.kv_heads=2",
    "model.tiny.mlp=128",
    "sampling.max_tokens=16",
    "trainer.optimizer.lr=5e-3",
    "eval.n=20",
)


def talk(agent: Agent, task: Task, say: Callable[[str], str]) -> list[dict[str, str]]:
    """An episode of echo as messages, in which `say` makes an answer of the word that is shown."""
    world = Echo()
    observation, info = world.reset(seed=task.seed, options={"task": task})
    messages = list(agent.start(observation, info, lambda tools=(), *, thinking=None: None))
    out = [{"role": m.role, "content": m.content} for m in messages]
    done = False
    while not done:
        action = f"say {say(world.words[world.turn])}"
        out.append({"role": "assistant", "content": agent.write("", action)})
        observation, _, done, _, info = world.step(action)
        if not done:
            out += [{"role": m.role, "content": m.content} for m in agent.tell(observation, info)]
    return out


def demonstrations(path: Path, config: RunConfig, count: int = 200) -> Path:
    agent = make(config.agent, Echo.world)
    lines = [{"messages": talk(agent, task, str)} for task in list(Echo.tasks("train")[:count])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def pairs(path: Path, config: RunConfig, count: int = 60) -> Path:
    """The right answer to the first word against the one that stands behind it in the list."""
    agent = make(config.agent, Echo.world)

    def wrong(word: str) -> str:
        return WORDS[(WORDS.index(word) + 1) % len(WORDS)]

    lines = []
    for task in list(Echo.tasks("train", rounds=1)[:count]):
        *prompt, chosen = talk(agent, task, str)
        rejected = talk(agent, task, wrong)[-1]
        lines.append({"prompt": prompt, "chosen": [chosen], "rejected": [rejected]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def steps(run: RunFolder) -> list[dict[str, Any]]:
    return [line for line in read(run.path) if line["phase"] == "train"]


def success(run: RunFolder, label: str) -> float:
    return {p.label: p.scores.success.value for p in points(run)}[label]


def weights(run: RunFolder, step: int) -> bytes:
    return (run.checkpoint(step) / "model.safetensors").read_bytes()


@pytest.fixture
def asked(settings: list[str]) -> list[str]:
    """The small run without its players and its warm-up, as it is asked for on the command line."""
    idle = ("explorer.", "warmup.", "run.steps", "trainer.checkpoint")
    return [s for s in settings if not s.startswith(idle)] + ["warmup.stages=[]"]


@pytest.fixture
def alone(asked: list[str]) -> Callable[..., RunConfig]:
    """The small run on a file."""
    return lambda data, *more: load("default", [*asked, "eval.n=2", f"data.file={json.dumps(str(data))}", *more])


def test_demonstrations_lift_success(tmp_path: Path, asked: list[str], small: Small) -> None:
    data = demonstrations(tmp_path / "demos.jsonl", small())
    command = ["train", "--recipe", "default", "--name", "sft", "--data", str(data), "--steps", "30"]
    result = CliRunner().invoke(app, [*command, "algorithm.name=sft", *asked, *LEARNS])
    assert result.exit_code == 0, result.output
    run = find("sft")
    assert not (run.path / "buffer.db").exists()
    assert success(run, "initial") < 0.2
    assert success(run, "step-000030") > 0.8
    losses = [line["loss"] for line in steps(run)]
    assert losses[-1] < 0.3 * losses[0]
    assert steps(run)[-1]["passes"] == pytest.approx(30 * 16 / 200)


def test_pairs_raise_the_chosen_answer_over_the_rejected_one(tmp_path: Path, alone: Any, small: Small) -> None:
    data = pairs(tmp_path / "pairs.jsonl", small())
    config = alone(data, "algorithm.name=dpo", "run.steps=30", *LEARNS, "eval.n=2")
    run = RunFolder.create(config, "dpo")
    train(config, run)
    first, *_, last = steps(run)
    assert first["margin"] == pytest.approx(0, abs=1e-3)  # the reference is the model itself
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-3)
    assert np.mean([line["preferred"] for line in steps(run)[-5:]]) > 0.85
    assert last["gain_chosen"] > last["gain_rejected"]


class Stopped(Exception):
    """Stands for a kill, between two steps."""


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_a_stopped_run_goes_on_and_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path, alone: Any, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_file = pairs if name == "dpo" else demonstrations
    data = make_file(tmp_path / "data.jsonl", small(), 20)
    config = alone(data, f"algorithm.name={name}", "run.steps=6", "trainer.checkpoint_every=2", "data.batch=8")
    whole, broken = RunFolder.create(config, "whole"), RunFolder.create(config, "broken")
    train(config, whole)
    original = Loop.run

    async def stops(self: Loop, done: int) -> None:
        heard = self.report

        def report(version: int, metrics: Mapping[str, float]) -> None:
            heard(version, metrics)
            if version == 3:
                raise Stopped

        self.report = report
        await original(self, done)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", stops)
        with pytest.raises(Stopped):
            train(config, broken)
    kept = data.read_text()
    data.write_text(kept + kept.splitlines(keepends=True)[0])
    with pytest.raises(UserError, match="has changed since the run began"):
        resume(broken)
    data.write_text(kept)
    resume(broken)
    assert [line["step"] for line in steps(broken)] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in steps(broken)] == [line["loss"] for line in steps(whole)]
    assert weights(broken, 6) == weights(whole, 6)
    assert journal(broken) == journal(whole)


def journal(run: RunFolder) -> str:
    return str(read_state(run.checkpoint(6))["journal"])


def test_lines_longer_than_the_context_are_left_out_and_counted(tmp_path: Path, alone: Any, small: Small) -> None:
    data = demonstrations(tmp_path / "demos.jsonl", small(), 3)
    long = [{"role": "user", "content": "apple " * 400}, {"role": "assistant", "content": "say apple"}]
    data.write_text(data.read_text() + json.dumps({"messages": long}) + "\n")
    config = alone(data, "algorithm.name=sft", "run.steps=4", "data.batch=1")
    run = RunFolder.create(config, "long")
    train(config, run)
    assert (
        sum(line["lines_too_long"] for line in steps(run)) == sum(line["nothing_to_train"] for line in steps(run)) == 1
    )


def test_settings_that_training_on_a_file_would_ignore_are_refused(tmp_path: Path, alone: Any, small: Small) -> None:
    data = demonstrations(tmp_path / "demos.jsonl", small(), 1)
    for setting, path in {
        "explorer.groups=4": "explorer",
        "buffer.bound=20": "buffer",
        "sync.interval=2": "sync",
        "trainer.updates=2": "trainer.updates",
        "run.place=apart": "run.place",
        "run.steps=0": "run.steps",
        "algorithm.clip_low=0.1": "algorithm.clip_low",
        "algorithm.name=grpo": "algorithm.name",
        "data.batch=0": "data.batch",
        "data.file=/nowhere.jsonl": "data.file",
    }.items():
        with pytest.raises(ConfigError) as refused:
            alone(data, "algorithm.name=sft", setting)
        assert [found for found, _ in refused.value.problems] == [path]
    with pytest.raises(ConfigError, match=r"data\.batch: would be ignored"):
        small("data.batch=8")


def tell_apart(run: RunFolder) -> None:
    """Store the run's experiences anew with rewards that differ within a group: models this small earn none."""
    old = SqlBuffer(run.buffer_url)
    groups = old.read(old.names())
    old.close()
    for file in run.path.glob("buffer.db*"):
        file.unlink()
    new = SqlBuffer(run.buffer_url)
    for g in groups:
        new.put([replace(g, experiences=tuple(replace(e, reward=float(e.attempt)) for e in g.experiences))])
    new.close()


def test_stored_experiences_are_trained_on_without_players(
    small: Small, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs' experiences, with ratios, by a third run of which nobody plays."""
    for name, seed in (("one", 1), ("two", 2)):
        config = small(f"run.seed={seed}", "eval.n=1")
        train(config, run := RunFolder.create(config, name))
        tell_apart(run)
    # The policy that is trained here is another one than those that sampled: only ratios make that right.
    command = ["train", "--recipe", "default", "--name", "third", "--stored", "one=0.75", "--stored", "two"]
    idle = ("explorer.group_size", "warmup.", "explorer.groups")
    asked = [s for s in settings if not s.startswith(idle)]
    result = CliRunner().invoke(app, [*command, *asked, "explorer.groups=4", "warmup.stages=[]", "eval.n=1"])
    assert result.exit_code == 0, result.output
    lines = steps(find("third"))
    assert len(lines) == 4
    assert all(line["attempts"] == 8 for line in lines)
    assert all("episodes" not in line and line["lag_max"] is None for line in lines)
    assert sum(line["groups_used"] for line in lines) > 0
    assert any(line["kl_behaviour"] > 0 for line in lines if line["groups_used"])


def test_who_plays_and_what_is_stored_must_make_a_batch(small: Small) -> None:
    source = "buffer.sources=[{name: a, url: 'sqlite:///a.db', share: %s}]"
    for settings, path in {
        ("explorer.workers=0",): "explorer.workers",
        ("explorer.workers=0", source % 0.5): "explorer.workers",
        (source % 1.0,): "explorer.workers",
        ("explorer.workers=0", source % 1.0, "sync.interval=2"): "sync",
        (source % 0.5, "algorithm.name=reinforce"): "buffer.sources",
    }.items():
        with pytest.raises(ConfigError) as refused:
            small(*settings, "explorer.groups=4")
        assert path in [found for found, _ in refused.value.problems]


@pytest.mark.parametrize("interval", [1, 2])
def test_a_mixed_batch_keeps_its_own_version(interval: int, small: Small) -> None:
    """Explorers play only what is not taken from elsewhere, so nothing of theirs grows old in the buffer."""
    config = small("eval.n=1", "warmup.stages=[]")
    train(config, RunFolder.create(config, "other"))
    url = find("other").buffer_url
    config = small(
        "eval.n=1",
        "warmup.stages=[]",
        "explorer.groups=4",
        f"sync.interval={interval}",
        f"buffer.sources=[{{name: other, url: '{url}', share: 0.5}}]",
    )
    run = RunFolder.create(config, "mixed")
    train(config, run)
    assert [line["lag_max"] for line in steps(run)] == [s % interval for s in range(4)]
    assert [line["attempts"] for line in steps(run)] == [8] * 4
