"""`harness eval` over several tasksets and checkpoints, its plans, and `harness compare` after it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.agents.config import TinyConfig
from harness.agents.models.base import Prompt, Sampling
from harness.bench import Ask, evaluate_command, plan_command
from harness.compare import compare_command, find_entry
from harness.envs.echo import Echo
from harness.envs.errors import UnknownName, UserError
from harness.load import load
from harness.players import open_player, source
from harness.runs import RunFolder

from .conftest import text_of


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A player that names two words in turn."""
    file = tmp_path / "apples.txt"
    file.write_text("say apple\n\nsay bridge\n")
    return f"scripted:{file}"


def test_several_worlds_and_splits_in_one_call(console: Console, runs_root: Path) -> None:
    ask = Ask(model="expert", envs=("echo", "math"), splits=("train", "valid_unseen"), settings=("eval.n=4",))
    entries = evaluate_command(ask, console)
    played = [(e.record.env, e.record.split, e.scores().success.successes) for e in entries]
    assert played == [
        ("echo", "train", 4),
        ("echo", "valid_unseen", 4),
        ("math", "train", 4),
        ("math", "valid_unseen", 4),
    ]
    text = text_of(console)
    assert "mean of 4 tasksets" in text
    assert text.count("100.0%") >= 5
    before = {e.path: (e.path / "sessions.jsonl").read_bytes() for e in entries}
    again = evaluate_command(ask, console)
    assert {e.path: (e.path / "sessions.jsonl").read_bytes() for e in again} == before


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (Ask(envs=("echo", "math"), splits=("valid_seen",)), "'echo' has none of the splits valid_seen"),
        (Ask(envs=("echo", "math"), settings=("env.options.rounds=2",)), "each has options of its own"),
        (Ask(envs=("echo",), settings=("run.seed=3",)), "run.seed: would be ignored"),
        (Ask(envs=("echo",), settings=("eval.price_in=3",)), "eval.price_in: would be ignored"),
        (Ask(model="scripted:/nowhere", envs=("echo",)), "there is no file"),
        (Ask(model="openai:m@http://x/v1", envs=("echo",), settings=("model.dtype=bfloat16",)), "served elsewhere"),
        (Ask(model="vllm:no/such@http://127.0.0.1:9/v1", envs=("echo",)), "there is no tokenizer 'no/such'"),
        (Ask(envs=("echo",), settings=("eval.repeats=0",)), "eval.repeats: must be at least 1"),
    ],
)
def test_refusals(ask: Ask, says: str, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ask = replace(ask, model="expert") if ask.model == "latest" else ask
    with pytest.raises(UserError, match=says):
        evaluate_command(ask, console)


def test_repeats_are_drawn_anew_and_shown(console: Console, script: str) -> None:
    settings = ("eval.n=6", "eval.repeats=4", "env.options.rounds=1")
    (entry,) = evaluate_command(Ask(model="random", envs=("echo",), settings=settings), console)
    said = {t.attempt: [turn.action for turn in t.turns] for t in entry.trajectories() if t.task.id == "0"}
    assert sorted(said) == [0, 1, 2, 3]
    assert len({tuple(s) for s in said.values()}) > 1
    text = text_of(console)
    for name in ("avg@4", "pass@2", "pass@4", "pass^2", "pass^4", "of the variance of success lies between tasks"):
        assert name in text
    assert json.loads((entry.path / "scores.json").read_text())["pass@"]["4"]["n"] == 6


def test_a_script_is_said_over_and_over(console: Console, script: str) -> None:
    (entry,) = evaluate_command(
        Ask(model=script, envs=("echo",), settings=("eval.n=3", "env.options.rounds=5")), console
    )
    assert {tuple(turn.action for turn in t.turns) for t in entry.trajectories()} == {
        ("say apple", "say bridge", "say apple", "say bridge", "say apple")
    }
    assert entry.record.model_digest is not None
    assert not entry.record.seed_reaches_sampler


def test_all_checkpoints_of_a_run_with_a_curve(console: Console) -> None:
    from harness.agents.models.tiny import make_tiny  # late: torch

    run = RunFolder.create(load("default", ["env.name=echo", "eval.n=3", "sampling.max_tokens=6"]), "mine")
    shape = TinyConfig(layers=1, width=16, heads=2, kv_heads=2, mlp=16, context=2048)
    for i, label in enumerate(("initial", "step-000010")):
        make_tiny(run.checkpoint(label), shape, Echo.texts(), i)
    entries = evaluate_command(Ask(model="mine", checkpoints="all"), console)
    assert [e.record.model for e in entries] == ["mine@initial", "mine@step-000010"]
    assert (run.evals / "checkpoints.png").read_bytes().startswith(b"\x89PNG")
    assert (run.evals / "checkpoints.md").read_text().count("\n") == 4
    (only,) = evaluate_command(Ask(model="mine", checkpoints="10"), console)
    assert only.path == entries[1].path
    with pytest.raises(UnknownName, match="unknown checkpoint 'step-000011'"):
        evaluate_command(Ask(model="mine", checkpoints="11"), console)
    with pytest.raises(UserError, match="every attempt is the same"):
        evaluate_command(Ask(model="mine", settings=("eval.temperature=0", "eval.repeats=2")), console)


def test_a_plan_before_anything_is_played(console: Console, runs_root: Path) -> None:
    plan_command(Ask(envs=("echo",)), 5, [], console)
    text = text_of(console)
    assert "5 points apart" in text
    assert "assumed" in text
    assert "1183" in text
    assert not (runs_root / "evals").exists()
    settings = ("eval.n=8", "eval.repeats=3", "env.options.rounds=1")
    (pilot,) = evaluate_command(Ask(model="random", envs=("echo",), settings=settings), console)
    plan_command(Ask(envs=()), 10, [pilot, pilot], console)
    assert "from 8 tasks of random and random" in text_of(console)
    with pytest.raises(UserError, match="points, above 0"):
        plan_command(Ask(), 0, [], console)


def test_compare_leaves_transcripts_a_picture_and_a_file(console: Console, tmp_path: Path, script: str) -> None:
    settings = ("eval.n=20", "env.options.rounds=1")
    entries = [
        evaluate_command(Ask(model=m, envs=("echo",), settings=settings), console)[0] for m in ("expert", script)
    ]
    compare_command(["expert", str(entries[1].path)], "success", tmp_path / "c", console)
    text = text_of(console)
    assert "expert is better than apples by" in text
    assert "exact McNemar test" in text
    assert "where expert and apples differ" in text
    told = json.loads((tmp_path / "c" / "compare.json").read_text())
    differing = told["contrasts"][0]["differing"]
    assert differing
    assert (tmp_path / "c" / "compare.png").read_bytes().startswith(b"\x89PNG")
    folders = sorted((tmp_path / "c" / "transcripts").iterdir())
    assert len(folders) == len(differing)
    first = (folders[0] / "expert.txt").read_text()
    assert "The word is" in first
    assert "success: reward 1" in first
    assert "no success" in (folders[0] / "apples.txt").read_text()


def test_entries_are_found_by_folder_name_and_run(console: Console) -> None:
    settings = ("eval.n=2",)
    (entry,) = evaluate_command(Ask(model="expert", envs=("echo",), settings=settings), console)
    assert find_entry("expert-echo").path == entry.path
    assert find_entry(str(entry.path)).path == entry.path
    evaluate_command(Ask(model="expert", envs=("echo",), settings=("eval.n=3",)), console)
    with pytest.raises(UserError, match="may be any of"):
        find_entry("expert")
    with pytest.raises(UnknownName, match="unknown entry 'nobody'"):
        find_entry("nobody")
    run = RunFolder.create(load("default", ["env.name=echo"]), "mine")
    run.checkpoint("warmup").mkdir()
    (run.checkpoint("warmup") / "config.json").write_text("{}")
    with pytest.raises(UserError, match="has no finished evaluation"):
        find_entry("mine")


def test_cost_is_kept_where_prices_are_known(console: Console) -> None:
    from .test_evaluate import chat_server

    settings = ("eval.n=4", "eval.price_in=2", "eval.price_out=10", "limits.call_retries=0")
    with chat_server() as url:
        (entry,) = evaluate_command(Ask(model=f"openai:parrot@{url}", envs=("echo",), settings=settings), console)
    scores = entry.scores()
    assert scores.prompt is not None
    assert scores.sampled is not None
    assert (scores.prompt.value, scores.sampled.value) == (200.0, 20.0)  # two turns of an episode
    assert entry.sessions()[-1]["cost"] == pytest.approx(4 * (200 * 2 + 20 * 10) / 1e6)
    assert "cost 0.0024" in text_of(console)


def test_random_worlds_are_closed_when_an_episode_ends() -> None:
    c = load("default", ["env.name=echo", "eval.n=2"])
    tasks = [Echo.tasks("train")[0]]
    model = open_player(source("random"), c, tasks).model
    session = f"{tasks[0].key}#1"
    asyncio.run(model.complete(Prompt(messages=(), tokens=()), Sampling(seed=1), session=session))
    playing = model._script._playing  # type: ignore[attr-defined]
    assert session in playing
    model.release(session)
    assert not playing
