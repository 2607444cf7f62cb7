"""`harness compare`: the verdicts, a table, a picture, and the episodes in which the entries differ as readable files.

Knows how to tell people; what is better is said in `leaderboard/compare.py`. Invariant: whatever is printed is also in
the folder it leaves: compare.json, compare.png and transcripts/.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.agents.types import Trajectory
from harness.envs.errors import UnknownName, UserError

from .disk import write_atomically, writing
from .leaderboard.compare import Comparison, Contrast, Measure, Side, as_json, compare
from .leaderboard.entry import Entry, entries
from .leaderboard.score import Scores, score
from .runs import find_checkpoint, root, slug
from .transcript import print_episode

SHOWN = 10
"""Differing tasks that are printed; all are in compare.json."""
TRANSCRIPTS = 100
"""Differing tasks whose episodes are written out."""


def compare_command(names: Sequence[str], measure: Measure, out: Path | None, console: Console) -> None:
    """Compare entries, each with each. Raises UserError."""
    comparison = compare([find_entry(name) for name in names], measure)
    folder = out or root() / "compare" / "-vs-".join(slug(side.name) for side in comparison.sides)[:150]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files = _transcripts(comparison, folder / "transcripts")
        write_atomically(folder / "compare.json", json.dumps(as_json(comparison), indent=2, ensure_ascii=False) + "\n")
        draw(comparison, folder / "compare.png")
    _print(comparison, files, console)
    if files:
        console.print(Text(f"their episodes, by number: {folder / 'transcripts'}"))
    console.print(Text(f"picture: {folder / 'compare.png'}"))
    console.print(Text(f"all of it, for programs: {folder / 'compare.json'}"))


def find_entry(name: str) -> Entry:
    """A finished entry: its folder or that folder's name (its beginning will do), RUN, or RUN@10.

    Of a run, its own evaluation of the checkpoint is taken. Raises UserError, with the names there are.
    """
    if (Path(name) / "record.json").is_file():
        return Entry(Path(name))
    there = entries(root()) if root().is_dir() else []
    named = [e for e in there if e.path.name == name or e.path.name.startswith(f"{name}-")]
    if len(named) == 1:
        return named[0]
    if len(named) > 1:
        raise UserError(f"'{name}' may be any of {', '.join(str(e.path) for e in named)}; give the folder.")
    found = find_checkpoint(name) if name != "latest" else None
    if found is not None:
        run, label = found
        if (own := Entry(run.evals / label)).finished:
            return own
        raise UserError(f"{run.name}@{label} has no finished evaluation; make one with `harness eval --model {name}`.")
    raise UnknownName("entry", name, [e.path.name for e in there], hint="Entries are made by `harness eval`.")


def _print(comparison: Comparison, files: dict[tuple[str, str], Path], console: Console) -> None:
    record = comparison.sides[0].record
    title = f"{record.env} {record.split}, {len(comparison.common)} tasks"
    table = Table("", "success", "95% interval", "n", "mean reward", "steps", "lost", title=title, title_justify="left")
    table.box, table.header_style = None, "bold"
    for side in comparison.sides:
        scores = score(side.results)
        table.add_row(side.name, *_row(scores))
    console.print(table)
    for key, values in comparison.unlike.items():
        told = ", ".join(f"{s.name} {v!r}" for s, v in zip(comparison.sides, values, strict=True))
        console.print(Text(f"they differ in {key}: {told}", style="yellow"))
    for contrast in comparison.contrasts:
        style = "bold green" if contrast.separated else "bold yellow"
        console.print(Text(contrast.verdict(), style=style))
        console.print(Text("  " + _how(contrast), style="dim"))
    for contrast in comparison.contrasts:
        _print_differing(contrast, files, console)


def _row(scores: Scores) -> list[str]:
    success = scores.success
    low, high = success.interval
    return [
        f"{100 * success.value:.1f}%" if success.n else "-",
        f"{100 * low:.1f} to {100 * high:.1f}",
        str(success.n),
        "-" if scores.mean_reward is None else f"{scores.mean_reward:.3f}",
        "-" if scores.steps is None else f"{scores.steps:.1f}",
        ", ".join(f"{n} {outcome}" for outcome, n in scores.lost.items()),
    ]


def _how(contrast: Contrast) -> str:
    test = "exact McNemar test" if contrast.single and contrast.measure == "success" else "paired permutation test"
    if contrast.exact and "exact" not in test:
        test = f"exact {test}"
    first = sum(a > b for a, b in contrast.differing.values())
    second = len(contrast.differing) - first
    parts = [f"{contrast.tasks} pairs, {second} better with {contrast.second}, {first} with {contrast.first}; {test}"]
    if contrast.left_out:
        parts.append(f"{contrast.left_out} tasks left out: lost to faults")
    if contrast.bounds is not None:
        low, high = contrast.bounds
        parts.append(f"with all lost attempts wrong or right: {100 * low:+.1f} to {100 * high:+.1f} points")
    return "; ".join(parts)


def _print_differing(contrast: Contrast, files: dict[tuple[str, str], Path], console: Console) -> None:
    if not contrast.differing:
        return
    table = Table("task", contrast.first, contrast.second, box=None, header_style="bold", title_justify="left")
    table.add_column("episodes")
    table.title = f"where {contrast.first} and {contrast.second} differ ({len(contrast.differing)} tasks)"
    for task, means in list(contrast.differing.items())[:SHOWN]:
        paths = [files.get((name, task)) for name in (contrast.first, contrast.second)]
        cells = [Text(f"{mean:.2f}", _link(path)) for mean, path in zip(means, paths, strict=True)]
        folder = next((path.parent for path in paths if path), None)
        table.add_row(task, *cells, Text(folder.name[:3] if folder else "", _link(folder)))
    console.print(table)
    if len(contrast.differing) > SHOWN:
        console.print(Text(f"  and {len(contrast.differing) - SHOWN} more", style="dim"))


def _link(path: Path | None) -> str:
    return "" if path is None else f"link {path.resolve().as_uri()}"


def _transcripts(comparison: Comparison, folder: Path) -> dict[tuple[str, str], Path]:
    """Write the episodes at differing tasks, one file for a side and a task. Returns them by (side, task)."""
    wanted = list(dict.fromkeys(task for c in comparison.contrasts for task in c.differing))[:TRANSCRIPTS]
    shutil.rmtree(folder, ignore_errors=True)  # those of an earlier comparison under this name
    number = {task: i for i, task in enumerate(wanted)}
    files: dict[tuple[str, str], Path] = {}
    for side in comparison.sides if wanted else ():
        episodes: dict[str, list[Trajectory]] = {}
        for trajectory in side.entry.trajectories():
            if trajectory.task.id in number:
                episodes.setdefault(trajectory.task.id, []).append(trajectory)
        for task, played in episodes.items():
            path = folder / f"{number[task]:03d}-{slug(task)[:60]}" / f"{slug(side.name)}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_as_text(side, played), encoding="utf-8")
            files[side.name, task] = path
    return files


def _as_text(side: Side, episodes: Iterable[Trajectory]) -> str:
    out = Console(file=io.StringIO(), width=120, force_terminal=False, highlight=False)
    for trajectory in episodes:
        out.print(Text(f"{side.name}, attempt {trajectory.attempt}"))
        print_episode(trajectory, out, success_at=side.record.success_at)
        out.print()
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def draw(comparison: Comparison, path: Path) -> None:
    """Success of each side, and the difference of each pair, with their intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    sides, contrasts = comparison.sides, comparison.contrasts
    height = 1.6 + 0.42 * max(len(sides), len(contrasts))
    figure = Figure(figsize=(12, height), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2)
    ink, blue, orange, grey = "#333840", "#2f6fb7", "#d9822b", "#9aa1a9"
    for y, side in enumerate(reversed(sides)):
        success = score(side.results).success
        low, high = success.interval
        left.plot([low, high], [y, y], color=blue, linewidth=2.4, solid_capstyle="round")
        left.plot([success.value], [y], "o", color=blue, markersize=7)
    left.set_yticks(range(len(sides)), [side.name for side in reversed(sides)])
    left.set_xlim(0, 1)
    left.xaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_title("success, 95% interval", loc="left", fontsize=11, color=ink)
    for y, c in enumerate(reversed(contrasts)):
        colour = orange if c.separated else grey
        right.plot(c.interval, [y, y], color=colour, linewidth=2.4, solid_capstyle="round")
        right.plot([c.difference], [y], "o", color=colour, markersize=7)
    right.axvline(0, color=ink, linewidth=1)
    right.set_yticks(range(len(contrasts)), [f"{c.second}\nagainst {c.first}" for c in reversed(contrasts)])
    if contrasts[0].measure == "success":
        right.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:+.3g}"))
    unit = " in points" if contrasts[0].measure == "success" else ""
    right.set_title(f"difference of {contrasts[0].measure}{unit}", loc="left", fontsize=11, color=ink)
    right.set_xlabel("paired by task; orange: separated", loc="left", fontsize=9, color=ink)
    for axes, rows in ((left, len(sides)), (right, len(contrasts))):
        axes.set_ylim(-0.6, rows - 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="x", color="#e6e8eb", linewidth=0.8)
        axes.set_axisbelow(True)
        for edge in ("top", "right", "left"):
            axes.spines[edge].set_visible(False)
        axes.tick_params(colors=ink, length=0, labelsize=9)
    figure.savefig(path)
