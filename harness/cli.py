"""The `harness` command: options in, one call into the house, mistakes out as one red line.

Knows what each command is called and takes, and nothing of how it is done. Invariant: nothing heavy is imported
before a command needs it, so that `--help` and the lists answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.envs.errors import UserError

from . import __version__

if TYPE_CHECKING:
    from rich.console import Console


app = typer.Typer(
    name="harness",
    help="Benchmark and train LLM agents: worlds, ReAct agents, reinforcement learning, boards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="First steps: [bold]harness train --env alfworld[/], then [bold]harness show latest[/].",
)
env_app = typer.Typer(help="Worlds: list them, play them.", no_args_is_help=True)
doctor_app = typer.Typer(help="Check this machine, or a chat template.", invoke_without_command=True)
app.add_typer(env_app, name="env")
app.add_typer(doctor_app, name="doctor")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings over the recipe's, by dotted keys: trainer.optimizer.lr=3e-4",
        show_default=False,
    ),
]
Env = Annotated[str | None, typer.Option("--env", "-e", help="A world from `harness env list`, or a .py file.")]
Recipe = Annotated[str | None, typer.Option(help="Recipe by short name (alfworld/tiny), or a .yaml file.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run, or `latest`.")]

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


@app.command()
def train(
    overrides: Overrides = None,
    env: Env = None,
    recipe: Recipe = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; default: world and time.")] = None,
    seed: Seed = None,
    steps: Annotated[int | None, typer.Option(help="Reinforcement learning steps.")] = None,
) -> None:
    """Train a model: warm-up, reinforcement learning, and its success on held-out tasks before and after."""
    from .load import default_recipe, load
    from .runs import RunFolder

    if env is None and recipe is None:
        raise UserError("say which world to train on: `harness train --env alfworld`, or give a --recipe.")
    shorthand = {"env.name": env, "run.seed": seed, "run.steps": steps}
    config = load(recipe or default_recipe(str(env)), [*_settings(shorthand), *(overrides or [])])
    run = RunFolder.create(config, name)
    _run_training(run.name, lambda: _train_module().train(config, run))


@app.command()
def resume(run: Run = "latest") -> None:
    """Go on with a run that was stopped or killed."""
    from .runs import find

    folder = find(run)
    _run_training(folder.name, lambda: _train_module().resume(folder))


@app.command("eval")
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
    from .evaluate import evaluate_command

    shorthand = {"env.name": env, "env.eval_split": split, "eval.n": n, "eval.temperature": temperature}
    settings = [*_settings(shorthand | {"run.seed": seed}), *(overrides or [])]
    with _interruptible("The same command goes on where this one stopped."):
        evaluate_command(model, env, recipe, settings, out, _console())


@app.command()
def runs() -> None:
    """List the runs, with their success before and after."""
    from .show import list_runs

    list_runs(_console())


@app.command()
def show(
    run: Run = "latest",
    episode: Annotated[str | None, typer.Option(help="Show one evaluation episode: a number or a task id.")] = None,
    entry: Annotated[
        str | None, typer.Option("--eval", help="Evaluation to take it from: warmup, step-000040.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show the episode's tokens, trained ones coloured.")] = False,
) -> None:
    """Show a run: its table and curves, or one episode as a transcript."""
    from .runs import find
    from .show import show_episode, show_run

    if episode is None and not tokens and entry is None:
        show_run(find(run), _console())
    else:
        show_episode(find(run), entry, episode or "0", tokens, _console())


@app.command()
def board(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders with entries; default: all runs.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the board as Markdown to this file.")] = None,
) -> None:
    """Render a board from finished entries."""
    from .leaderboard.entry import entries
    from .leaderboard.render import markdown
    from .runs import root, write_atomically

    places = folders or [root()]
    for place in places:
        if not place.is_dir():
            raise UserError(f"there is no folder {place}. Make entries with `harness eval`.")
    text = markdown(e for place in places for e in entries(place))
    if out is None:
        _console().print(_rendered(text))
    else:
        write_atomically(out, text)
        print(f"wrote {out}")


@env_app.command("list")
def env_list() -> None:
    """List the worlds there are."""
    from rich.table import Table

    from harness.envs.registry import names

    table = Table("name", "Gymnasium id", "what it is", box=None, header_style="bold", pad_edge=False)
    for row in names():
        table.add_row(row.name, row.gym_id, row.description)
    _console().print(table)


@env_app.command("play")
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
    from .play import play

    if expert and model:
        raise UserError("choose one of --expert and --model.")
    with _interruptible("Bye."):
        play(env, split, index, seed, option or [], "expert" if expert else model, _console())


@doctor_app.callback()
def doctor(context: typer.Context) -> None:
    """Check this machine: cores, memory, versions, optional parts and how to install them."""
    if context.invoked_subcommand is None:
        from .doctor import machine_report

        machine_report(_console())


@doctor_app.command("template")
def doctor_template(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a run, or a hub name.")],
) -> None:
    """Say what the harness will do with a tokenizer's chat template."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from .doctor import template_report

    template_report(model, _console())


def main() -> None:
    """Entry point of the `harness` script."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        app()
    except UserError as e:
        _complain(str(e))
        sys.exit(2)
    except BrokenPipeError:  # `harness runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _settings(shorthand: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in shorthand.items() if value is not None]


def _train_module() -> Any:
    from . import train as module

    return module


def _run_training(name: str, job: Any) -> None:
    with _interruptible(f"Go on with `harness resume {name}`."):
        job()


@contextmanager
def _interruptible(how_to_go_on: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _complain(f"stopped. {how_to_go_on}", "yellow")
        sys.exit(130)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _rendered(text: str) -> Any:
    from rich.markdown import Markdown

    return Markdown(text)


def _complain(text: str, colour: str = "red") -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style=colour))
