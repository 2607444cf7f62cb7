"""`harness runs` and `harness show`, on a run folder made of real parts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import matplotlib.image
import pytest
from rich.console import Console

from harness.agents.models.base import Prompt, Sampling
from harness.agents.models.scripted import ScriptedModel
from harness.envs.errors import UserError
from harness.evaluate import evaluate, held_out
from harness.load import load
from harness.players import Player
from harness.rl.monitor import Monitor, read
from harness.runs import RunFolder
from harness.show import draw, list_runs, points, series, show_episode, show_run

from .conftest import text_of


def skilled(share: float) -> ScriptedModel:
    def script(prompt: Prompt, sampling: Sampling, session: str) -> str:
        word = prompt.messages[-1].content.rstrip(".").split()[-1]
        return f"Thought: I say it.\nAction: say {word if Random(sampling.seed).random() < share else 'what'}"

    return ScriptedModel(script)


def made(name: str = "demo", *overrides: str) -> RunFolder:
    config = load("default", ["env.name=echo", "eval.n=20", "run.steps=4", *overrides])
    run = RunFolder.create(config, name)
    for label, share in (("initial", 0.0), ("warmup", 0.6), ("step-000004", 1.0)):
        who = Player(model=skilled(share), name=label, engine="scripted")
        asyncio.run(evaluate(who, config, held_out(config), run.evals / label))
    monitor = Monitor(run.path)
    for step in range(1, 5):
        monitor.log(
            "train", step, {"reward": step / 5, "success": step / 10, "loss": float("nan") if step == 2 else 0.1}
        )
    monitor.close()
    return run


def test_points_in_the_order_of_training() -> None:
    found = points(made())
    assert [(p.label, p.step) for p in found] == [("initial", None), ("warmup", 0), ("step-000004", 4)]
    rates = [p.scores.success.value for p in found]
    assert rates[0] == 0 < rates[1] < rates[2] == 1


def test_without_a_warm_up_the_untrained_model_is_step_0() -> None:
    assert points(made("cold", "warmup.stages=[]"))[0].step == 0


def test_series_marks_gaps() -> None:
    lines = read(made().path)
    steps, values = series(lines, "train", "loss")
    assert steps == [1, 2, 3, 4]
    assert [v == v for v in values] == [True, False, True, True]
    assert series(lines, "train", "nothing") == ([], [])


def test_a_run_that_cannot_be_read_does_not_hide_the_others(console: Console) -> None:
    made("old").config_file.write_text("warmup: {episodes: 3}\n", encoding="utf-8")
    made("new")
    list_runs(console)
    told = text_of(console)
    assert "old is unreadable: its config.yaml is not of this version: warmup.episodes: " in " ".join(told.split())
    assert "new" in told


def test_list_of_runs(console: Console) -> None:
    list_runs(console)
    assert "no run in" in text_of(console)
    made("one").finish({})
    made("two")
    list_runs(console)
    rows = {line.split()[0]: line for line in text_of(console).splitlines() if line.strip().startswith(("one", "two"))}
    assert "finished" in rows["one"]
    assert "stopped" in rows["two"]
    assert "4/4" in rows["one"]
    assert "0.0% [0.0, 16.1]" in rows["one"]
    assert "100.0% [83.9, 100.0]" in rows["one"]


def test_show_prints_the_table_and_draws_the_curve(console: Console) -> None:
    run = made()
    show_run(run, console)
    text = text_of(console)
    assert "untrained" in text
    assert "after warm-up" in text
    assert "after 4 steps" in text
    assert "83.9 to 100.0" in text
    assert "train reward" in text
    picture = matplotlib.image.imread(run.curve)
    height, width = picture.shape[:2]
    assert width > height > 400
    assert picture[..., :3].mean() > 0.9  # light
    assert picture[..., :3].std() > 0.02  # and not empty


def test_nothing_to_draw_yet() -> None:
    run = RunFolder.create(load("default", ["env.name=echo"]), "fresh")
    assert not draw(run)
    assert not run.curve.exists()


def test_show_of_a_fresh_run(console: Console) -> None:
    show_run(RunFolder.create(load("default", ["env.name=echo"]), "fresh"), console)
    assert "fresh: echo, stopped" in text_of(console)


def test_one_episode_as_a_transcript(console: Console) -> None:
    run = made()
    show_episode(run, None, "3", False, console)
    text = text_of(console)
    assert "echo/valid_unseen/3" in text
    assert "The word is" in text
    assert "I say it." in text
    assert "> say " in text
    assert "success: reward 1 in 2 steps" in text


@pytest.mark.parametrize(
    ("label", "which", "says"),
    [("warm", "0", "Did you mean 'warmup'"), (None, "99", "0 to 19"), (None, "x", "none is 'x'")],
)
def test_episodes_that_are_not_there(label: str | None, which: str, says: str, console: Console) -> None:
    with pytest.raises(UserError, match=says):
        show_episode(made(), label, which, False, console)


def test_no_evaluation_yet(console: Console) -> None:
    run = RunFolder.create(load("default", ["env.name=echo"]), "fresh")
    with pytest.raises(UserError, match="no evaluation yet"):
        show_episode(run, None, "0", False, console)


def test_a_run_without_a_tokenizer_shows_no_tokens(console: Console) -> None:
    run = made()
    with pytest.raises(UserError, match="keeps no tokenizer"):
        show_episode(run, None, "0", True, console)


def test_curve_is_in_the_run_folder(runs_root: Path) -> None:
    assert made().curve == runs_root / "demo" / "curve.png"
