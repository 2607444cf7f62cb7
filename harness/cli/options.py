"""What the commands share: common options, the console, and how a mistake or Ctrl-C is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings over the recipe's, by dotted keys: trainer.optimizer.lr=3e-4",
        show_default=False,
    ),
]


def _absolute(env: str | None) -> str | None:
    """A file by its whole path: the run that is made of it may go on from another folder."""
    return str(Path(env).expanduser().resolve()) if env is not None and env.endswith(".py") else env


_WORLD = "A world from `harness env list`, a .py file, or a Gymnasium id."
Env = Annotated[str | None, typer.Option("--env", "-e", help=_WORLD, callback=_absolute)]
World = Annotated[str, typer.Argument(metavar="ENV", help=_WORLD)]
Recipe = Annotated[str | None, typer.Option(help="Recipe by short name (alfworld/tiny), or a .yaml file.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run, or `latest`.")]


def settings(shorthand: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in shorthand.items() if value is not None]


@contextmanager
def interruptible(how_to_go_on: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped. {how_to_go_on}", "yellow")
        sys.exit(130)


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def complain(text: str, colour: str = "red") -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style=colour))
