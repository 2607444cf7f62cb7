"""`harness board`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.envs.errors import UserError

from .options import console


def board(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders with entries; default: all runs.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the board as Markdown to this file.")] = None,
) -> None:
    """Render a board from finished entries."""
    from ..leaderboard.entry import entries
    from ..leaderboard.render import markdown
    from ..runs import root, write_atomically

    places = folders or [root()]
    for place in places:
        if not place.is_dir():
            raise UserError(f"there is no folder {place}. Make entries with `harness eval`.")
    text = markdown(e for place in places for e in entries(place))
    if out is None:
        console().print(_rendered(text))
    else:
        write_atomically(out, text)
        print(f"wrote {out}")


def _rendered(text: str) -> Any:
    from rich.markdown import Markdown

    return Markdown(text)
