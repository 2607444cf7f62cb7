"""`harness env check`: a report on the screen, as JSON, or as a card.

Knows reports; not how they come about.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.envs.check import CHECKS, Report, check
from harness.envs.errors import UnknownName

from .disk import write_atomically
from .load import options_of

MARKS = {
    "passed": ("ok", "green"),
    "warning": ("warn", "yellow"),
    "failed": ("FAIL", "bold red"),
    "skipped": ("-", "dim"),
}
BEGIN, END = "<!-- harness env check -->", "<!-- end of harness env check -->"


def judge(
    env: str,
    options: Sequence[str],
    only: Sequence[str],
    seconds: float,
    as_json: bool,
    card: Path | None,
    console: Console,
) -> bool:
    """Check a world and tell about it; whether it passed. Raises UserError."""
    for name in only:
        if name not in CHECKS:
            raise UnknownName("check", name, CHECKS)
    if as_json:
        report = check(env, options=options_of(options), only=tuple(only), seconds=seconds)
        print(json.dumps(report.as_json(), indent=2))
    else:
        began = time.monotonic()

        def heard(name: str, part: str) -> None:
            text = f"{name}: {part or CHECKS[name]}"
            status.update(f"{text} ({time.monotonic() - began:.0f} s)")
            if not console.is_terminal and not part:
                print(text, file=sys.stderr, flush=True)

        with console.status("checking") as status:
            report = check(
                env,
                options=options_of(options),
                only=tuple(only),
                seconds=seconds,
                heard=heard,
            )
        show(report, console)
    if card is not None:
        write_card(card, report)
        if not as_json:
            console.print(Text(f"card: {card}", style="dim"))
    return report.passed


def show(report: Report, console: Console) -> None:
    """Print a report: a line a finding, and beneath what is to be mended how to do it."""
    table = Table.grid(padding=(0, 2))
    for name in CHECKS:
        for f in report.of(name):
            mark, colour = MARKS[f.level]
            table.add_row(Text(mark, style=colour), Text(name, style="bold"), Text(f.what))
            if f.level in ("failed", "warning"):
                for word, text in (("where", f.where), ("mend", f.mend)):
                    if text:
                        table.add_row("", "", Text.assemble((f"{word}: ", "dim"), text))
    console.print(table)
    levels = list(report.verdicts().values())
    counts = ", ".join(
        f"{levels.count(level)} {said}"
        for level, said in (
            ("passed", "passed"),
            ("warning", "with warnings"),
            ("failed", "failed"),
            ("skipped", "skipped"),
        )
        if level in levels
    )
    end = "passes" if report.passed else "does not pass"
    console.print(Text(f"\n{report.id} {end}: {counts}", style="bold green" if report.passed else "bold red"))


def write_card(path: Path, report: Report) -> None:
    """Put the report's page into a file: between its marks where the file has them, else as the whole file."""
    section = f"{BEGIN}\n{report.card()}{END}\n"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if begun and ended:
        page = report.card().split("\n", 2)[2]  # the author's page has a title already
        section = f"{BEGIN}\n{page}{END}"
        write_atomically(path, before + section + after)
    else:
        write_atomically(path, section)
