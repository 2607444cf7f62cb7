"""`harness runs` and `harness show`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Run, console


def runs() -> None:
    """List the runs, with their success before and after."""
    from ..show import list_runs

    list_runs(console())


def show(
    run: Run = "latest",
    episode: Annotated[str | None, typer.Option(help="Show one evaluation episode: a number or a task id.")] = None,
    entry: Annotated[
        str | None, typer.Option("--eval", help="Evaluation to take it from: warmup, step-000040.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show the episode's tokens, trained ones coloured.")] = False,
) -> None:
    """Show a run: its table and curves, or one episode as a transcript."""
    from ..runs import find
    from ..show import show_episode, show_run

    if episode is None and not tokens and entry is None:
        show_run(find(run), console())
    else:
        show_episode(find(run), entry, episode or "0", tokens, console())
