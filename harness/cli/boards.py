"""`harness leaderboard ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import console

app = typer.Typer(help="Boards: check entries, add them, draw them, grade them again.", no_args_is_help=True)

EntryFolder = Annotated[Path, typer.Argument(metavar="ENTRY", help="Folder of a finished entry.")]
BoardName = Annotated[
    str | None, typer.Option("--board", "-b", help="A board below leaderboards/, or its folder.", show_default=False)
]


@app.command("verify")
def verify(entry: EntryFolder, board: BoardName = None) -> None:
    """Play every answer of an entry again, and compare all that it claims."""
    from ..boards import verify_command

    raise typer.Exit(0 if verify_command(entry, board, console()) else 1)
