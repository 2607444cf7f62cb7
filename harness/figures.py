"""Scores of entries as people read them: one entry in full, several as a table, a run's checkpoints as a curve.

Knows entries and how to show them; plays nothing. Invariant: each figure stands beside its interval and its n, and what
was lost beside the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .leaderboard import stats
from .leaderboard.entry import Entry
from .leaderboard.record import Record
from .leaderboard.score import Scores


def summary(entries: Sequence[Entry]) -> Table:
    """One row an entry, and the mean over tasksets of each model that played several."""
    rows = [(e.record, e.scores()) for e in entries]
    table = table_of(rows)
    for model in dict.fromkeys(record.model for record, _ in rows):
        own = [scores.success for record, scores in rows if record.model == model]
        if len(own) > 1:
            mean, (low, high) = stats.combined([(p.value, p.interval) for p in own])
            span = f"{100 * low:.1f} to {100 * high:.1f}"
            table.add_row(model, f"mean of {len(own)} tasksets", f"{100 * mean:.1f}%", span)
    return table


HEAD = ("model", "taskset", "success", "95% interval", "n", "lost", "bounds", "mean reward", "steps", "tokens")


def table_of(rows: Sequence[tuple[Record, Scores]]) -> Table:
    """One row an entry."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in HEAD:
        table.add_column(name, no_wrap=name not in ("model", "taskset", "lost"), overflow="fold")
    for record, scores in rows:
        table.add_row(*_cells(record, scores))
    return table


def _cells(record: Record, scores: Scores) -> list[str]:
    success = scores.success
    low, high = success.interval
    lost = ", ".join(f"{n} {outcome}" for outcome, n in scores.lost.items())
    bounds = f"{100 * scores.bounds[0]:.1f} to {100 * scores.bounds[1]:.1f}" if lost else ""
    return [
        record.model,
        f"{record.env} {record.split}" + (f" x{record.repeats}" if record.repeats > 1 else ""),
        f"{100 * success.value:.1f}%" if success.n else "-",
        f"{100 * low:.1f} to {100 * high:.1f}",
        str(success.n),
        lost,
        bounds,
        "-" if scores.mean_reward is None else f"{scores.mean_reward:.3f}",
        "-" if scores.steps is None else f"{scores.steps:.1f}",
        f"{scores.sampled_tokens:,.0f}" if scores.sampled_tokens else "",
    ]


def markdown(entries: Sequence[Entry]) -> str:
    """The summary as a Markdown table."""
    rows = [_cells(e.record, e.scores()) for e in entries]
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def print_scores(entry: Entry, console: Console) -> None:
    """The figures of one entry."""
    record, scores = entry.record, entry.scores()
    title = f"{record.model} on {record.env} {record.split}"
    table = Table("", "success", "95% interval", "n", title=title, title_justify="left", box=None, header_style="bold")
    kinds = scores.by_type if len(scores.by_type) > 1 else {}
    for name, p in [("all", scores.success), *kinds.items()]:
        low, high = p.interval
        value = f"{100 * p.value:.1f}%" if p.n else "-"
        table.add_row(name, value, f"{100 * low:.1f} to {100 * high:.1f}", str(p.n))
    figures = [("mean over types", scores.macro), (f"avg@{record.repeats}", scores.average)]
    figures += [(f"pass@{k}", f) for k, f in scores.pass_any.items()]
    figures += [(f"pass^{k}", f) for k, f in scores.pass_all.items()]
    for name, figure in figures:
        if figure is not None:
            low, high = figure.interval
            of = f"{figure.n} {'types' if figure is scores.macro else 'tasks'}"
            table.add_row(name, f"{100 * figure.value:.1f}%", f"{100 * low:.1f} to {100 * high:.1f}", of)
    console.print(table)
    console.print(Text(_footnote(entry, scores), style="dim"))
    console.print(Text(f"entry: {entry.path}"))


def _footnote(entry: Entry, scores: Scores) -> str:
    record = entry.record
    parts = [f"temperature {record.sampling['temperature']:g}, seed {record.seed}, at most {record.max_steps} steps"]
    for name, figure in (("reward", scores.reward), ("steps", scores.turns), ("sampled tokens", scores.sampled)):
        if figure is not None and (figure.value or name != "sampled tokens"):
            low, high = figure.interval
            digits = 3 if name == "reward" else 1
            parts.append(f"mean {name} {figure.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]")
    if scores.split is not None and scores.split.between + scores.split.within > 0:
        parts.append(f"{100 * scores.split.share:.0f}% of the variance of success lies between tasks")
    cost = [s["cost"] for s in entry.sessions() if "cost" in s]
    if cost:
        parts.append(f"cost {sum(cost):.4f}")
    if scores.lost:
        why = {str(t.outcome): t.error for t in entry.trajectories() if not t.scored}
        lost = ", ".join(f"{n} {outcome} ({why[outcome]})" for outcome, n in scores.lost.items())
        low, high = scores.bounds
        parts.append(f"lost and not scored: {lost}; with them success lies within {100 * low:.1f} to {100 * high:.1f}%")
    return "; ".join(parts)


def draw(points: Sequence[tuple[str, Entry]], name: str, path: Path) -> None:
    """Success along a run's checkpoints with its intervals, one line a taskset."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    labels = list(dict.fromkeys(label for label, _ in points))
    lines: dict[str, list[tuple[int, Scores]]] = {}
    for label, entry in points:
        record = entry.record
        lines.setdefault(f"{record.env} {record.split}", []).append((labels.index(label), entry.scores()))
    figure = Figure(figsize=(7.2, 4.0), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    for i, (taskset, line) in enumerate(lines.items()):
        xs = [x + 0.06 * (i - (len(lines) - 1) / 2) for x, _ in line]
        rates = [s.success.value for _, s in line]
        spans = [s.success.interval for _, s in line]
        below = [max(0.0, r - low) for r, (low, _) in zip(rates, spans, strict=True)]
        above = [max(0.0, high - r) for r, (_, high) in zip(rates, spans, strict=True)]
        axes.errorbar(xs, rates, yerr=[below, above], fmt="o-", capsize=4, linewidth=1.6, label=taskset)
    axes.set_xticks(range(len(labels)), [_step(label) for label in labels])
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("checkpoint (steps of reinforcement learning)")
    axes.set_title(f"{name}: success, 95% interval", loc="left", fontsize=11)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.legend(frameon=False, fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _step(label: str) -> str:
    number = label.removeprefix("step-")
    return str(int(number)) if number.isdecimal() else label
