"""`harness runs` and `harness show`: what a run did, as tables, curves and readable episodes.

Reads run folders and entries, writes only `curve.png`. Invariant: every success shown comes from an entry's
trajectories, with n and its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.envs.errors import UnknownName, UserError
from harness.rl.monitor import read

from .display import sparkline
from .leaderboard.entry import Entry
from .leaderboard.score import Scores
from .load import ConfigError
from .runs import RunFolder, all_runs, root
from .transcript import decoder, print_episode, print_tokens


@dataclass(frozen=True, slots=True)
class Point:
    """Success on held-out tasks at one checkpoint."""

    label: str
    step: int | None
    """Training steps behind it; None before a warm-up."""
    scores: Scores


def points(run: RunFolder) -> list[Point]:
    """The run's own evaluations: untrained, after warm-up, and along the steps."""
    found = []
    first = None if run.config().warmup.episodes else 0
    for label in ["initial", "warmup", *sorted(p.name for p in run.evals.glob("step-*"))]:
        entry = Entry(run.evals / label)
        number = label.removeprefix("step-")
        if entry.finished and (number.isdecimal() or label in ("initial", "warmup")):
            step = int(number) if number.isdecimal() else (0 if label == "warmup" else first)
            found.append(Point(label, step, entry.scores()))
    return found


def list_runs(console: Console) -> None:
    """Print all runs, the latest last."""
    runs = all_runs()
    if not runs:
        console.print(Text(f"no run in {root()} yet; start one with `harness train --env alfworld`"))
        return
    table = Table("run", "world", "steps", "success before", "after", "state", box=None, header_style="bold")
    unread: list[str] = []
    for run in runs:
        try:
            config, ps = run.config(), points(run)
        except UserError as e:  # of another version, or damaged: the others are worth listing all the same
            table.add_row(run.name, "-", "-", "-", "-", Text("unreadable", style="red"))
            unread.append(f"{run.name} is unreadable: {_why(e)}")
            continue
        done = max((line["step"] for line in read(run.path) if line["phase"] == "train"), default=0)
        first = str(ps[0].scores.success) if ps else "-"
        last = str(ps[-1].scores.success) if len(ps) > 1 else "-"
        state = Text(run.state, style={"running": "cyan", "finished": "green"}.get(run.state, "yellow"))
        table.add_row(run.name, config.env.name, f"{done}/{config.run.steps}", first, last, state)
    console.print(table)
    for line in unread:
        console.print(Text(line, style="dim"))


def _why(e: UserError) -> str:
    """The first mistake, and how many more there are."""
    if isinstance(e, ConfigError):
        where, what = e.problems[0]
        more = f", and {len(e.problems) - 1} more" if len(e.problems) > 1 else ""
        return f"its config.yaml is not of this version: {where}: {what}{more}"
    return " ".join(str(e).split())


def success_table(ps: Sequence[Point]) -> Table:
    """Success at each checkpoint, with n and interval."""
    names = {"initial": "untrained", "warmup": "after warm-up"}
    table = Table("held-out success", "", "95% interval", "n", "lost", box=None, header_style="bold", pad_edge=False)
    for p in ps:
        s = p.scores.success
        low, high = s.interval
        name = names.get(p.label, f"after {p.step} steps")
        value = f"{100 * s.value:.1f}%" if s.n else "-"
        lost = str(sum(p.scores.lost.values()) or "")
        table.add_row(name, value, f"{100 * low:.1f} to {100 * high:.1f}", str(s.n), lost)
    return table


def show_run(run: RunFolder, console: Console) -> None:
    """Print a run's summary and curves, and draw `curve.png` anew."""
    config, ps, lines = run.config(), points(run), read(run.path)
    env = config.env
    console.print(Text(f"{run.name}: {env.name}, {run.state}", style="bold"))
    console.print(Text(f"trained on {env.split}, scored on {env.eval_split}, seed {config.run.seed}", style="dim"))
    if ps:
        console.print(success_table(ps))
    curves = Table.grid(padding=(0, 2))
    for phase, names in (
        ("warmup", ("loss",)),
        ("train", ("reward", "success", "preferred", "loss", "grad_norm", "steps")),
    ):
        for name in names:
            _, values = series(lines, phase, name)
            if values:
                ends = f"{_number(values[0])} to {_number(values[-1])}"
                curves.add_row(Text(f"{phase} {name}"), Text(sparkline(values, 40), style="cyan"), Text(ends))
    console.print()
    console.print(curves)
    if draw(run):
        console.print(Text(f"curve: {run.curve}"))
    if ps:
        console.print(
            Text(f"one episode: harness show {run.name} --episode 0 (add --tokens for its mask)", style="dim")
        )


def series(lines: Sequence[dict[str, Any]], phase: str, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one figure of one phase; where it was missing or not finite the value is nan."""
    rows = [line for line in lines if line["phase"] == phase]
    if not any(line.get(name) is not None for line in rows):
        return [], []
    values = [math.nan if line.get(name) is None else float(line[name]) for line in rows]
    return [int(line["step"]) for line in rows], values


def draw(run: RunFolder) -> bool:
    """Draw `curve.png`: held-out success with intervals and the training episodes' success (else reward) per step.

    Returns False, and draws nothing, while there is nothing to see.
    """
    ps, lines = points(run), read(run.path)
    name = "success" if series(lines, "train", "success")[0] else "reward"
    steps, values = series(lines, "train", name)
    if not ps and not steps:
        return False
    config = run.config()
    _draw(run.curve, f"{config.env.name}: {run.name}", ps, steps, values, name)
    return True


def _draw(
    path: Path, title: str, ps: Sequence[Point], steps: Sequence[int], values: Sequence[float], name: str
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(7.2, 4.0), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    ink, blue, orange = "#333840", "#2f6fb7", "#d9822b"
    if steps:
        axes.plot(steps, values, color=blue, alpha=0.25, linewidth=1)
        smooth = _smoothed(values, 5)
        axes.plot(steps, smooth, color=blue, linewidth=2, label=f"training episodes, {name} (mean of 5 steps)")
    last = max([*steps, *(p.step or 0 for p in ps), 1])
    # the untrained model stands left of step 0, at a place of its own
    left = -0.12 * last
    at = [left if p.step is None else p.step for p in ps]
    if ps:
        rates = [p.scores.success.value for p in ps]
        spans = [p.scores.success.interval for p in ps]
        below = [max(0.0, r - low) for r, (low, _) in zip(rates, spans, strict=True)]
        above = [max(0.0, high - r) for r, (_, high) in zip(rates, spans, strict=True)]
        n = ps[-1].scores.success.n
        axes.errorbar(
            at,
            rates,
            yerr=[below, above],
            fmt="o",
            color=orange,
            markersize=6,
            capsize=4,
            linewidth=1.6,
            zorder=5,
            clip_on=False,
            label=f"held-out success, 95% interval (n = {n})",
        )
        for x, r in zip(at, rates, strict=True):
            axes.annotate(f"{100 * r:.0f}%", (x, r), (7, 4), textcoords="offset points", fontsize=9, color=ink)
    if name == "success" or ps:
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(left - 0.05 * last, last * 1.06)
    ticks = [t for t in MaxNLocator(integer=True, steps=[1, 2, 5, 10]).tick_values(0, last) if 0 <= t <= last]
    names = [f"{t:g}" for t in ticks]
    if left in at:
        ticks, names = [left, *ticks], ["untrained", *names]
    axes.set_xticks(ticks, names)
    axes.set_xlabel("training step" + (" (0: after warm-up)" if left in at else ""), color=ink)
    axes.set_title(title, loc="left", fontsize=11, color=ink)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#b8bdc4")
    axes.tick_params(colors=ink, length=0)
    axes.legend(frameon=False, fontsize=9, loc="upper left", labelcolor=ink)
    figure.savefig(path)


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """Mean of the last `width` values at each place; gaps are left out."""
    out = []
    for i in range(len(values)):
        window = [v for v in values[max(0, i + 1 - width) : i + 1] if math.isfinite(v)]
        out.append(sum(window) / len(window) if window else math.nan)
    return out


def show_episode(run: RunFolder, label: str | None, which: str, tokens: bool, console: Console) -> None:
    """Print one evaluation episode of a run: by number in its entry, or by task id. Raises UserError."""
    there = sorted(p.parent.name for p in run.evals.glob("*/record.json"))
    if not there:
        raise UserError(f"the run '{run.name}' has no evaluation yet, so there is no episode to show.")
    if label is None:
        own = [p.label for p in points(run)]
        label = own[-1] if own else there[-1]
    if label not in there:
        raise UnknownName("evaluation", label, there, hint=f"Of the run '{run.name}'.")
    entry = Entry.open(run.evals / label)
    episodes = list(entry.trajectories())
    found = [t for t in episodes if t.task.id == which]
    if not found and which.isdecimal() and int(which) < len(episodes):
        found = [episodes[int(which)]]
    if not found:
        raise UserError(f"{label} has {len(episodes)} episodes (0 to {len(episodes) - 1}), and none is '{which}'.")
    print_episode(found[0], console, success_at=entry.record.success_at)
    if tokens:
        folder = run.newest()
        if folder is None:
            raise UserError(f"the run '{run.name}' keeps no tokenizer, so tokens cannot be shown as text.")
        print_tokens(found[0], decoder(str(folder)), console)


def _number(v: float) -> str:
    return "-" if not math.isfinite(v) else f"{v:.3g}"
