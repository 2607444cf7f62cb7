"""`harness eval`: one or many checkpoints on one or many tasksets, a live table, scores, a curve, and plans beforehand.

Knows which entries are asked for, where they lie and how to show them; how one is played is in evaluate.py. Invariant:
each taskset and model is one entry, so a killed call goes on with the entry it was at and plays none twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from harness.envs.errors import UnknownName, UserError
from harness.envs.registry import world_class
from harness.envs.tasks import tasks_of

from .config import RunConfig
from .disk import write_atomically
from .display import Display
from .evaluate import all_held_out, configured, evaluate, held_out, record_of
from .figures import draw, markdown, print_scores, summary, table_of
from .leaderboard.entry import Entry
from .leaderboard.plan import REPEATS, Outlook, outlook
from .leaderboard.record import Record
from .leaderboard.score import Scores, result_of
from .players import Source, of_checkpoint, open_player, source
from .runs import find, root, slug


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What one call of `harness eval` is to play: every model on every taskset."""

    model: str = "latest"
    checkpoints: str | None = None
    """`all`, or labels and numbers of steps with commas between; None: the one that `model` says."""
    envs: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    """With several worlds, each plays those of its own."""
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    """`key.sub=value`."""
    out: Path | None = None

    def players(self) -> list[Source]:
        """Raises UserError."""
        if self.checkpoints is None:
            return [source(self.model)]
        run = find(self.model)
        labels = run.labels()
        if self.checkpoints != "all":
            asked = [label.strip() for label in self.checkpoints.split(",")]
            wanted = [f"step-{int(a):06d}" if a.isdecimal() else a for a in asked]
            for label in wanted:
                if label not in labels:
                    raise UnknownName("checkpoint", label, labels, hint=f"Of the run '{run.name}'.")
            labels = [label for label in labels if label in wanted]
        if not labels:
            raise UserError(f"the run '{run.name}' has no checkpoint yet.")
        return [of_checkpoint(run, label) for label in labels]

    def tasksets(self, who: Source) -> Iterator[RunConfig]:
        """The settings for each taskset that `who` plays. Raises UserError."""
        several = len(self.envs) > 1
        if several and any(text.startswith(("env.options", "env.name")) for text in self.settings):
            raise UserError("env.options: several worlds are asked for, and each has options of its own.")
        used: set[str] = set()
        for env in self.envs or (None,):
            splits: Sequence[str | None] = self.splits or (None,)
            if several and self.splits:
                splits = [s for s in self.splits if s in world_class(str(env)).world.splits]
                if not splits:
                    known = ", ".join(world_class(str(env)).world.splits)
                    raise UserError(f"'{env}' has none of the splits {', '.join(self.splits)}. It has: {known}.")
            for split in splits:
                used.add(str(split))
                own = [f"env.name={env}"] if env else []
                own += [f"env.eval_split={split}"] if split else []
                yield configured(who, env, self.recipe, [*own, *self.settings])
        if self.splits and (unused := [s for s in self.splits if s not in used]):
            raise UserError(f"--split {unused[0]}: none of the worlds has it.")


def evaluate_command(ask: Ask, console: Console) -> list[Entry]:
    """Play all that is asked for and show it. Raises UserError."""
    jobs = [(who, config) for who in ask.players() for config in ask.tasksets(who)]
    for _, config in jobs[: len({(c.env.name, c.env.eval_split) for _, c in jobs})]:
        if (there := len(all_held_out(config))) < config.eval.n:
            console.print(Text(f"{config.env.eval_split} has {there} tasks; all of them are played", style="dim"))
    with Scoreboard(console, many=len(jobs) > 1) as board:
        entries = [asyncio.run(_play(who, config, ask, len(jobs) > 1, board)) for who, config in jobs]
    if len(entries) == 1:
        print_scores(entries[0], console)
        return entries
    console.print(summary(entries))
    for entry in entries:
        console.print(Text(f"entry: {entry.path}", style="dim"))
    run = jobs[0][0].run
    if ask.checkpoints is not None and run is not None:
        picture = (ask.out or run.evals) / "checkpoints.png"
        draw([(who.label or "", entry) for (who, _), entry in zip(jobs, entries, strict=True)], run.name, picture)
        write_atomically(picture.with_suffix(".md"), markdown(entries))
        console.print(Text(f"curve: {picture}, table: {picture.with_suffix('.md')}"))
    return entries


async def _play(who: Source, config: RunConfig, ask: Ask, several: bool, board: Scoreboard) -> Entry:
    tasks = held_out(config)
    player = open_player(who, config, tasks)
    try:
        record = record_of(player, config, tasks)
        folder = _folder(who, record) if ask.out is None else ask.out
        if several and ask.out is not None:
            folder = ask.out / f"{slug(who.name)}-{slug(record.env)}-{record.split}"
        entry = await evaluate(player, config, tasks, folder, board)
        board.keep(entry)
        return entry
    finally:
        await player.model.close()


def _folder(who: Source, record: Record) -> Path:
    """Where an entry lives: the run's own evaluation where it is the same, else a folder named for the record."""
    short = record.digest[:8]
    if who.run is not None and who.label is not None:
        own = who.run.evals / who.label
        if (own / "record.json").is_file() and Entry(own).record == record:
            return own
        return who.run.evals / f"{who.label}-{slug(record.env)}-{record.split}-{short}"
    return root() / "evals" / f"{slug(who.name)}-{slug(record.env)}-{record.split}-{short}"


class Scoreboard(Display):
    """The live line of what is being played, under a table of what is finished."""

    def __init__(self, console: Console, *, many: bool) -> None:
        super().__init__(console)
        self._many = many
        self._kept: list[tuple[Record, Scores]] = []

    def keep(self, entry: Entry) -> None:
        """An entry is finished."""
        if self._many:
            self._kept.append((entry.record, entry.scores()))

    def __rich__(self) -> Group | Text:
        line = super().__rich__()
        return Group(table_of(self._kept), line) if self._kept else line


def plan_command(ask: Ask, points: float, pilots: Sequence[Entry], console: Console) -> None:
    """How many tasks and repeats show a difference of so many points, and what the asked tasksets can show at all.

    points: percentage points, above 0 and below 100. pilots: none, or one or two finished entries to learn from.
    Raises UserError.
    """
    if not 0 < points < 100:
        raise UserError(f"--plan takes a difference in points, above 0 and below 100, not {points:g}.")
    view, told = _outlook(pilots)
    console.print(Text(f"two models {points:g} points apart, told apart at 95% four times in five", style="bold"))
    console.print(Text(told, style="dim"))
    table = Table("repeats", "tasks", "episodes of each model", box=None, header_style="bold", pad_edge=False)
    for repeats in REPEATS:
        tasks = view.tasks(points / 100, repeats)
        table.add_row(str(repeats), str(tasks), str(tasks * repeats))
    console.print(table)
    for env in ask.envs:
        for split in ask.splits or world_class(env).world.splits:
            tasks = len(tasks_of(world_class(env), split))
            if tasks > 100_000:
                console.print(Text(f"{env} {split}: as many tasks as wanted"))
                continue
            found = [(k, view.difference(tasks, k)) for k in REPEATS]
            told = ", ".join(f"x{k} {'none' if d is None else f'{100 * d:.1f}'}" for k, d in found)
            console.print(Text(f"{env} {split}, all {tasks} tasks: smallest difference shown, in points: {told}"))


def _outlook(pilots: Sequence[Entry]) -> tuple[Outlook, str]:
    if not pilots:
        view = Outlook()
        how = "assumed (give --pilot ENTRY, once or twice, to measure it)"
    else:
        groups = [_groups(entry) for entry in pilots[:2]]
        common = [task for task in groups[0] if all(task in g for g in groups)]
        if not common:
            raise UserError("the pilots have no scored task in common.")
        view = outlook(*([g[task] for task in common] for g in groups))
        how = f"from {len(common)} tasks of {' and '.join(e.record.model for e in pilots[:2])}"
    told = f"success about {100 * view.success:.0f}%, {100 * view.share:.0f}% of its variance between tasks"
    return view, f"{told}, likeness of the two models {view.likeness:.2f}: {how}"


def _groups(entry: Entry) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for trajectory in entry.trajectories():
        result = result_of(trajectory, entry.record.success_at)
        if result.scored:
            groups.setdefault(result.task, []).append(float(result.success))
    return groups
