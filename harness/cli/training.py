"""`harness train`, `harness resume` and `harness explore`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.envs.errors import UserError

from .options import Env, Overrides, Recipe, Run, Seed, interruptible, settings


def train(
    overrides: Overrides = None,
    env: Env = None,
    recipe: Recipe = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; default: world and time.")] = None,
    seed: Seed = None,
    steps: Annotated[int | None, typer.Option(help="Training steps after the warm-up.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Train on this JSONL file instead of playing: demonstrations (algorithm.name=sft) or pairs (dpo)."
        ),
    ] = None,
    stored: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN[=SHARE]", help="Train on a run's stored experiences instead of playing; several are mixed."
        ),
    ] = None,
) -> None:
    """Train a model: warm-up, reinforcement learning, and its success on held-out tasks before and after.

    With --data or --stored the trainer is alone, and nobody plays but for the scores.
    """
    from ..load import default_recipe, load
    from ..runs import RunFolder, sources

    if env is None and recipe is None:
        raise UserError("say which world to train on: `harness train --env alfworld`, or give a --recipe.")
    shorthand = {"env.name": env, "run.seed": seed, "run.steps": steps}
    if data is not None:
        shorthand["data.file"] = json.dumps(str(data.expanduser().resolve()))
    if stored:
        shorthand |= {"buffer.sources": json.dumps(sources(stored)), "explorer.workers": 0}
    config = load(recipe or default_recipe(str(env)), [*settings(shorthand), *(overrides or [])])
    run = RunFolder.create(config, name)
    _run_training(run.name, lambda: _train_module().train(config, run))


def resume(run: Run = "latest") -> None:
    """Go on with a run that was stopped or killed."""
    from ..runs import find

    folder = find(run)
    _run_training(folder.name, lambda: _train_module().resume(folder))


def explore(run: Run = "latest") -> None:
    """Play for a run whose trainer runs elsewhere (run.place=apart); start as many as explorer.workers says."""
    from ..explore import explore as play_for
    from ..runs import find

    folder = find(run)
    with interruptible(f"Start another one with `harness explore {folder.name}`."):
        play_for(folder)


def _train_module() -> Any:
    from .. import train as module

    return module


def _run_training(name: str, job: Any) -> None:
    with interruptible(f"Go on with `harness resume {name}`."):
        job()
