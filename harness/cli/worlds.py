"""`harness env ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from harness.envs.errors import UserError

from .options import World, console, interruptible

Options = Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the world: key=value.")]

app = typer.Typer(help="Worlds: list, play, check, and make them.", no_args_is_help=True)


@app.command("list")
def env_list(
    family: Annotated[str | None, typer.Argument(help="Only the worlds of this family, such as reasoning_gym.")] = None,
) -> None:
    """List the worlds there are; a family of many is one line, unless it is named."""
    from rich.table import Table

    from harness.envs.errors import UnknownName
    from harness.envs.registry import FAMILIES, members, names

    families = {f.name: members(f) for f in FAMILIES}
    if family is not None and family not in families:
        raise UnknownName("family of worlds", family, families)
    if family is not None:
        console().print(", ".join(row.name for row in families[family]))
        return
    table = Table("name", "Gymnasium id", "what it is", box=None, header_style="bold", pad_edge=False)
    inside = {row for rows in families.values() for row in rows}
    for row in names():
        if row not in inside:
            table.add_row(row.name, row.gym_id, row.description)
    for f in FAMILIES:
        table.add_row(f"{f.name}/NAME", "", f.description.format(count=len(families[f.name])))
    console().print(table)


@app.command("play")
def env_play(
    env: World,
    split: Annotated[str, typer.Option(help="Tasks to play.")] = "train",
    index: Annotated[int, typer.Option(min=0, help="Number of the task in its split.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Draw the task by this seed instead.")] = None,
    option: Options = None,
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


@app.command("check")
def env_check(
    env: World,
    option: Options = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this check, by its name; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for the loops of one check.")] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    card: Annotated[
        Path | None, typer.Option(help="Write a page with a badge to this Markdown file, or between its marks.")
    ] = None,
) -> None:
    """Judge a world without a model: contract, determinism, leaks, safety, rewards, hostile actions."""
    from ..judge import judge

    with interruptible("Nothing was judged."):
        passed = judge(env, option or [], only or [], seconds, as_json, card, console())
    raise typer.Exit(0 if passed else 1)


@app.command("new")
def env_new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the world, such as my_world.")],
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path(),
) -> None:
    """Write the file of a new world, which works as it stands, its test and its card."""
    from ..new import new

    new(name, folder, console())
