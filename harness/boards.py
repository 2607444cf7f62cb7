"""What `harness leaderboard` does, told on the console.

Knows the order in which things are done; how a board works is in `leaderboard/`. Invariant: an entry gets onto a board
only when every check of it has passed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.envs.errors import UserError
from harness.envs.registry import world_class

from . import __version__, machine
from .disk import write_atomically, writing
from .leaderboard import page, render
from .leaderboard.board import NAME, Board, all_boards, board_of, boards_root, expected_tasks
from .leaderboard.entry import Entry, copy
from .leaderboard.intake import digest, inspect
from .leaderboard.overlap import KINDS, overlap, prompt
from .leaderboard.rescore import rescore
from .leaderboard.standing import standing
from .leaderboard.verify import Report
from .leaderboard.verify import verify as verified
from .load import load
from .players import open_player, source
from .rerun import rerun
from .runs import slug

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RESTORED = ("dtype", "context")
"""What a record's engine options set where its checkpoint is asked again (players.asked_of)."""
SHOWN = 5
"""Findings of one kind that are told in full."""


def verify_command(path: Path, board: str | None, model: str | None, episodes: int, console: Console) -> bool:
    """`harness leaderboard verify`. Returns whether all is well. Raises UserError."""
    chosen = board_of(path) if board is None else Board.find(board)
    report = _verified(path, chosen, model, episodes)
    print_report(report, console)
    return report.ok


def submit_command(
    path: Path, board: str | None, name: str | None, model: str | None, episodes: int, console: Console
) -> bool:
    """`harness leaderboard submit`. Returns whether the entry was accepted. Raises UserError."""
    inspect(path)
    chosen = _board_for(Entry.open(path)) if board is None else Board.find(board)
    name = slug(Entry.open(path).record.model) if name is None else name
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' cannot name an entry: use letters, digits, dots, dashes, underscores and @.")
    report = _verified(path, chosen, model, episodes)
    print_report(report, console)
    if not report.ok:
        return False
    with writing(chosen.path):
        (chosen.path / "entries").mkdir(exist_ok=True)
        borrowed = world_class(chosen.card.env).borrowed
        there = copy(Entry.open(path), chosen.path / "entries" / name, borrowed)
    record = there.record
    chosen.note(
        {
            "what": "submitted",
            "entry": name,
            "signature": digest(there.path / "scores.json"),
            "origin": digest(path / "scores.json"),
            "world_version": record.world_version,
            "grader_version": record.grader_version,
            "success": str(there.scores().success),
            "harness": __version__,
            "commit": machine.commit(),
            "player": next((check.text for check in report.checks if check.name == "player"), "not asked again"),
        }
    )
    console.print(Text(f"accepted: {there.path}"))
    _draw(Board(chosen.path), console)
    return True


def render_command(which: str | None, console: Console) -> None:
    """`harness leaderboard render`: one board, or all. Raises UserError."""
    boards = all_boards() if which is None else [Board.find(which)]
    if not boards:
        raise UserError(f"there is no board in {boards_root()}. A board is a folder with a board.yaml in it.")
    for board in boards:
        _draw(board, console)


def rescore_command(which: str | None, console: Console) -> None:
    """`harness leaderboard rescore`: one board, or all. Raises UserError."""
    for board in all_boards() if which is None else [Board.find(which)]:
        done = rescore(board)
        if not done:
            console.print(Text(f"{board.name}: every entry was graded by today's grader"))
            continue
        table = Table("entry", "grader", "before", "now", "changed", box=None, header_style="bold", pad_edge=False)
        for found in done:
            table.add_row(
                found.name,
                " to ".join(found.grader),
                str(found.before.success),
                str(found.after.success),
                f"{len(found.changes)} of {found.after.n}",
            )
        console.print(table)
        for found in done:
            for change in found.changes[:SHOWN]:
                console.print(f"  {found.name}: {change.attempt}: {change.before:g} became {change.after:g}")
        _draw(board, console)


def overlap_command(
    env: str, split: str, against: str, options: Sequence[str], n: int, near: float, console: Console
) -> bool:
    """`harness leaderboard overlap`. Returns whether nothing was found. Raises UserError."""
    boards = {board.name: board for board in all_boards() if board.name == against}
    scored = boards[against].card.split if against in boards else against
    settings = [f"env.name={env}", f"env.split={split}", f"env.eval_split={scored}"]
    config = load("default", [*settings, *(f"env.options.{text}" for text in options)], training=False)
    first = world_class(env).tasks(split, **config.env.options)
    if against in boards:
        if boards[against].card.env != env:
            raise UserError(f"the board '{against}' is of the world '{boards[against].card.env}', not of '{env}'.")
        second, said = boards[against].tasks, f"the board '{against}'"
    else:
        there = world_class(env).tasks(against, **config.env.options)
        second, said = [there[i] for i in range(min(n, len(there)))], f"{env} {against}"
    looked = [first[i] for i in range(min(n, len(first)))]
    found = overlap(looked, second, env, near=near)
    console.print(Text(f"{len(looked)} of {env} {split} against {len(second)} of {said}, prompts near from {near:g}"))
    counts = Counter(pair.kind for pair in found)
    for kind in KINDS:
        mark = Text("✗ ", style="bold red") if counts[kind] else Text("✓ ", style="green")
        touched = len({pair.second for pair in found if pair.kind == kind})
        console.print(Text.assemble(mark, f"{kind}: {counts[kind]} pairs, {touched} scored tasks"))
    texts = {task.key: task for task in (*looked, *second)}
    world = world_class(env)()
    for kind in KINDS:
        for pair in [p for p in found if p.kind == kind][:1]:
            console.print(Text(f"\n{pair.kind}, similarity {pair.similarity:.2f}", style="bold"))
            for key in (pair.first, pair.second):
                console.print(Text(f"{key}\n  {' '.join(prompt(world, texts[key]).split())[:300]}", style="dim"))
    world.close()
    return not found


def print_report(report: Report, console: Console) -> None:
    """Each check on a line, and what was found below."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in report.checks:
        mark = Text("✗", style="bold red") if check.findings else Text("✓", style="green")
        table.add_row(mark, check.name, Text(check.text, style="dim"))
    console.print(table)
    for check in report.checks:
        for finding in check.findings[:SHOWN]:
            console.print(Text.assemble((f"{finding.fault}", "red"), f": {finding.where}: {finding.text}"))
        if len(check.findings) > SHOWN:
            console.print(Text(f"... and {len(check.findings) - SHOWN} more of {check.name}", style="dim"))
    verdict = Text("verified", style="bold green") if report.ok else Text("not verified", style="bold red")
    console.print(Text.assemble(verdict, f": {report.entry}"))


def _verified(path: Path, board: Board | None, model: str | None, episodes: int) -> Report:
    """All checks, and the player asked again where it is at hand: a scripted one always, another by `model`."""
    inspect(path)
    record = Entry.open(path).record
    scripted = record.engine if record.engine in ("expert", "random") else None
    if model is not None and scripted is not None:
        raise UserError(f"--model: would be ignored: the entry's player is '{scripted}', which is asked again anyway.")
    if model is None and scripted is None:
        return verified(path, board)
    who = source(scripted or str(model))
    env = board.card.env if board else record.env
    settings = [f"env.name={env}", f"env.split={record.split}", f"env.eval_split={record.split}"]
    settings += [f"model.{name}={value}" for name, value in record.engine_options.items() if name in RESTORED]
    settings += [f"agent.{name}={json.dumps(value)}" for name, value in record.agent.items()]
    config = load("default", settings, training=False)
    tasks = board.tasks if board else expected_tasks(record.env, record.split, record.options, len(record.task_ids))

    async def job(report: Report) -> None:
        player = open_player(who, config, tasks)
        try:
            count = len(record.task_ids) * record.repeats if scripted else episodes
            report.checks.append(await rerun(Entry.open(path), player, tasks, count, config.model.slots))
        finally:
            await player.model.close()

    report = verified(path, board, _tokenizer(who.path) if scripted is None and who.kind == "checkpoint" else None)
    if report.ok:
        asyncio.run(job(report))
    return report


def _tokenizer(folder: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    from harness.agents.models.loading import load_pretrained

    found: PreTrainedTokenizerBase = load_pretrained(AutoTokenizer, folder)
    return found


def _board_for(entry: Entry) -> Board:
    """The one board whose card is of the same tasks. Raises UserError where there is none, or several."""
    record = entry.record
    asked = (record.env, record.split, record.options)
    found = [b for b in all_boards() if (b.card.env, b.card.split, b.card.options) == asked]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(board.name for board in found or all_boards()) or "none"
    what = "several boards are" if found else "no board is"
    raise UserError(f"{what} of {record.env} {record.split} {record.options}: name one with --board ({listed}).")


def _draw(board: Board, console: Console) -> None:
    rows = standing(board)
    write_atomically(board.path / "README.md", render.markdown(board, rows))
    write_atomically(board.path / "index.html", page.page(board, rows))
    table = Table(
        "rank", "model", "success", "n", title=board.card.title, title_justify="left", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(row.ranks, row.record.model, str(row.scores.success), str(row.scores.success.n))
    console.print(table)
    console.print(Text(f"wrote {board.path}/README.md and index.html", style="dim"))
