"""`harness train`, `harness resume` and `harness explore`."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    from ..runs import RunFolder

    if env is None and recipe is None:
        raise UserError("say which world to train on: `harness train --env alfworld`, or give a --recipe.")
    shorthand = {"env.name": env, "run.seed": seed, "run.steps": steps}
    if data is not None:
        shorthand["data.file"] = json.dumps(str(data.expanduser().resolve()))
    if stored:
        shorthand |= {"buffer.sources": json.dumps(_sources(stored)), "explorer.workers": 0}
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


def _sources(stored: Sequence[str]) -> list[dict[str, Any]]:
    """`buffer.sources` that take whole batches from what runs have stored: RUN=SHARE each, or RUN, and those without a
    share divide what the others leave. Raises UserError."""
    from ..runs import find

    found = [(find(name), share) for name, _, share in (text.partition("=") for text in stored)]
    try:
        shares = [float(share) if share else None for _, share in found]
    except ValueError:
        raise UserError(f"--stored is RUN or RUN=SHARE with a share such as 0.5, not {' '.join(stored)}.") from None
    given = sum(share for share in shares if share is not None)
    open_shares = shares.count(None)
    rest = (1 - given) / open_shares if open_shares else 0.0
    if not 0 < given + rest * open_shares <= 1 + 1e-9 or rest < 0 or (open_shares and rest == 0):
        raise UserError(f"--stored: the shares of {' '.join(stored)} must be above 0 and at most 1 together.")
    return [
        {"name": run.name, "url": run.buffer_url, "share": rest if share is None else share}
        for (run, _), share in zip(found, shares, strict=True)
    ]
