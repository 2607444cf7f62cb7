"""The `harness` command: options in, one call into the house, mistakes out as one red line.

Knows what each command is called and takes, and nothing of how it is done. Invariant: nothing heavy is imported
before a command needs it, so that `--help` and the lists answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from harness.envs.errors import UserError

from .. import __version__
from . import boards, doctor, evaluation, rewards, runs, training, worlds
from .options import complain

app = typer.Typer(
    name="harness",
    help="Benchmark and train LLM agents: worlds, ReAct agents, reinforcement learning, boards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="First steps: [bold]harness train --env alfworld[/], then [bold]harness show latest[/].",
)
app.command()(training.train)
app.command()(training.resume)
app.command()(training.explore)
app.command("eval")(evaluation.evaluate)
app.command()(evaluation.compare)
app.command()(runs.runs)
app.command()(runs.show)
app.command()(rewards.rewards)
app.add_typer(boards.app, name="leaderboard")
app.add_typer(worlds.app, name="env")
app.add_typer(doctor.app, name="doctor")

QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Libraries that would write into our display; whoever sets these otherwise is heeded."""


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"harness {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point of the `harness` script."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        app()
    except UserError as e:
        complain(str(e))
        sys.exit(2)
    except BrokenPipeError:  # `harness runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
