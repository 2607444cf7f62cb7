"""`harness eval` and `harness compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.envs.errors import UnknownName

from .options import Env, Overrides, Recipe, Seed, console, interruptible, settings


def evaluate(
    overrides: Overrides = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A run (RUN, RUN@warmup, RUN@10), a model folder, expert, random, or openai:MODEL@URL.",
        ),
    ] = "latest",
    env: Env = None,
    split: Annotated[str | None, typer.Option(help="Tasks to play, such as valid_unseen.")] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", help="The first n tasks of the split.")] = None,
    recipe: Recipe = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the entry; default: beside the run.")] = None,
) -> None:
    """Play held-out tasks and score them. Killed at any moment, the same command goes on where it was."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: spinning threads cost more than they bring
    from ..evaluate import evaluate_command

    shorthand = {"env.name": env, "env.eval_split": split, "eval.n": n, "eval.temperature": temperature}
    given = [*settings(shorthand | {"run.seed": seed}), *(overrides or [])]
    with interruptible("The same command goes on where this one stopped."):
        evaluate_command(model, env, recipe, given, out, console())


def compare(
    entries: Annotated[
        list[str], typer.Argument(metavar="A B [C ...]", help="Entries: a folder, RUN, RUN@10, or a name under evals.")
    ],
    by: Annotated[str, typer.Option(help="What is compared: success or reward.")] = "success",
    out: Annotated[Path | None, typer.Option(help="Folder for picture and transcripts.")] = None,
) -> None:
    """Which of several evaluated models is better: paired by task, with a test and a verdict in words."""
    from ..compare import compare_command

    if by not in ("success", "reward"):
        raise UnknownName("measure", by, ("success", "reward"))
    compare_command(entries, "success" if by == "success" else "reward", out, console())
