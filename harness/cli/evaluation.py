"""`harness eval` and `harness compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.envs.errors import UnknownName, UserError

from .options import Overrides, Recipe, Seed, console, interruptible, settings


def evaluate(
    overrides: Overrides = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A run (RUN, RUN@warmup, RUN@10), a model folder, expert, random, scripted:FILE, openai:MODEL@URL, "
            "or vllm:MODEL@URL.",
        ),
    ] = "latest",
    checkpoints: Annotated[
        str | None, typer.Option(help="Of the run: all, or some, such as warmup,10,20; draws a curve.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="A world from `harness env list`, or a .py file; repeatable."),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Tasks to play, such as valid_unseen; repeatable.")] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", help="The first n tasks of the split.")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", "-k", help="Attempts at each task.")] = None,
    recipe: Recipe = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the entry; default: beside the run.")] = None,
    plan: Annotated[
        float | None,
        typer.Option(metavar="POINTS", help="Play nothing: say how much shows a difference of so many points."),
    ] = None,
    pilot: Annotated[
        list[str] | None,
        typer.Option(metavar="ENTRY", help="For --plan: an entry to learn from; twice for two models."),
    ] = None,
) -> None:
    """Play held-out tasks and score them. Killed at any moment, the same command goes on where it was."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: spinning threads cost more than they bring
    from ..bench import Ask, evaluate_command, plan_command

    shorthand = {"eval.n": n, "eval.repeats": repeats, "eval.temperature": temperature, "run.seed": seed}
    ask = Ask(
        model=model,
        checkpoints=checkpoints,
        envs=tuple(env or ()),
        splits=tuple(split or ()),
        recipe=recipe,
        settings=(*settings(shorthand), *(overrides or [])),
        out=out,
    )
    if pilot and plan is None:
        raise UserError("--pilot: would be ignored: it says what a --plan is made from.")
    if plan is not None:
        from ..compare import find_entry

        if ask.settings:
            raise UserError(f"{ask.settings[0]}: would be ignored: --plan plays nothing.")
        plan_command(ask, plan, [find_entry(name) for name in pilot or ()], console())
        return
    with interruptible("The same command goes on where this one stopped."):
        evaluate_command(ask, console())


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
