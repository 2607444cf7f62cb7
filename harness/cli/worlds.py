"""`harness env ...`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from harness.envs.errors import UserError

from .options import console, interruptible

app = typer.Typer(help="Worlds: list them, play them.", no_args_is_help=True)


@app.command("list")
def env_list() -> None:
    """List the worlds there are."""
    from rich.table import Table

    from harness.envs.registry import names

    table = Table("name", "Gymnasium id", "what it is", box=None, header_style="bold", pad_edge=False)
    for row in names():
        table.add_row(row.name, row.gym_id, row.description)
    console().print(table)


@app.command("play")
def env_play(
    env: Annotated[str, typer.Argument(metavar="ENV", help="A world from `harness env list`, or a .py file.")],
    split: Annotated[str, typer.Option(help="Tasks to play.")] = "train",
    index: Annotated[int, typer.Option(min=0, help="Number of the task in its split.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Draw the task by this seed instead.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the world: key=value.")] = None,
    expert: Annotated[bool, typer.Option("--expert", help="Watch the world's expert.")] = False,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Watch a model, as in `harness eval`.")] = None,
) -> None:
    """Play a world in the terminal, or watch the expert or a model."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from ..play import play

    if expert and model:
        raise UserError("choose one of --expert and --model.")
    with interruptible("Bye."):
        play(env, split, index, seed, option or [], "expert" if expert else model, console())
