"""`harness leaderboard ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from .options import console, interruptible

app = typer.Typer(help="Boards: check entries, add them, draw them, grade them again.", no_args_is_help=True)

EntryFolder = Annotated[Path, typer.Argument(metavar="ENTRY", help="Folder of a finished entry.")]
BoardName = Annotated[
    str | None,
    typer.Option("--board", "-b", help="A board below leaderboards/, or its folder.", show_default=False),
]
OneBoard = Annotated[
    str | None, typer.Argument(metavar="BOARD", help="A board; default: all below leaderboards/.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="The entry's checkpoint: asked again, some episodes, under the same seeds."),
]
Episodes = Annotated[int, typer.Option(min=1, help="Episodes that the checkpoint plays again.")]


@app.command("verify")
def verify(entry: EntryFolder, board: BoardName = None, model: Model = None, episodes: Episodes = 8) -> None:
    """Play every answer of an entry again, and compare all that it claims."""
    from ..boards import verify_command

    _threads()
    raise typer.Exit(0 if verify_command(entry, board, model, episodes, console()) else 1)


@app.command("submit")
def submit(
    entry: EntryFolder,
    board: BoardName = None,
    name: Annotated[str | None, typer.Option(help="Name on the board; default: the model's.")] = None,
    model: Model = None,
    episodes: Episodes = 8,
) -> None:
    """Verify an entry, put it on a board, and draw the board."""
    from ..boards import submit_command

    _threads()
    raise typer.Exit(0 if submit_command(entry, board, name, model, episodes, console()) else 1)


@app.command("render")
def render(board: OneBoard = None) -> None:
    """Draw boards: README.md and index.html."""
    from ..boards import render_command

    render_command(board, console())


@app.command("rescore")
def rescore(board: OneBoard = None) -> None:
    """Grade stored attempts again where the world's grader has a new version, and show what changed."""
    from ..boards import rescore_command

    with interruptible("Entries that were graded are kept; the same command goes on with the others."):
        rescore_command(board, console())


@app.command("overlap")
def overlap(
    env: Annotated[str, typer.Option("--env", "-e", help="A world from `harness env list`, or a .py file.")],
    against: Annotated[str, typer.Option(help="Scored tasks: a board, or a split of the world.")],
    split: Annotated[str, typer.Option(help="Tasks to train on.")] = "train",
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the world: key=value.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Most tasks of a split that are looked at.")] = 10_000,
    near: Annotated[float, typer.Option(help="Similarity from which two prompts are near, 0 to 1.")] = 0.8,
) -> None:
    """Look for scored tasks among those to train on: same ids, same content, nearly the same prompts."""
    from ..boards import overlap_command

    with interruptible("Nothing was changed."):
        raise typer.Exit(0 if overlap_command(env, split, against, option or [], n, near, console()) else 1)


def _threads() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch, which a checkpoint needs
