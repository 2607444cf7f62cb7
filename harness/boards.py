"""What `harness leaderboard` does, told on the console."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .leaderboard.board import Board
from .leaderboard.verify import Report
from .leaderboard.verify import verify as verified

SHOWN = 5
"""Findings of one kind that are told in full."""


def verify_command(entry: Path, board: str | None, console: Console) -> bool:
    """`harness leaderboard verify`. Returns whether all is well; raises UserError."""
    report = verified(entry, None if board is None else Board.find(board))
    print_report(report, console)
    return report.ok


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
