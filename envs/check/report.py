"""What a check found, and a page about it.

Knows no checks. Invariant: a finding says what, where and how to mend; a world passes where nothing failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["passed", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check says."""

    check: str
    """Name of the check."""
    level: Level
    what: str
    """What was seen, in one line."""
    where: str = ""
    """File and line, task, or action."""
    mend: str = ""
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found out about a world."""

    name: str
    """As it was asked for."""
    id: str
    """Of the world's spec."""
    description: str
    edition: str
    """Version of the world and its grader."""
    isolation: str
    harness: str
    """Version that judged."""
    findings: tuple[Finding, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    """reset_ms, step_p50_ms, step_p99_ms, memory_kb_per_episode, episodes."""

    @property
    def passed(self) -> bool:
        """Nothing failed; warnings do not count."""
        return all(finding.level != "failed" for finding in self.findings)

    def of(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [finding for finding in self.findings if finding.check == check]

    def verdicts(self) -> dict[str, Level]:
        """Each check with the worst that it found."""
        worst: dict[str, Level] = {}
        rank: Sequence[Level] = ("skipped", "passed", "warning", "failed")
        for f in self.findings:
            worst[f.check] = max(worst.get(f.check, "skipped"), f.level, key=rank.index)
        return worst

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "findings": [asdict(f) for f in self.findings], "passed": self.passed}

    def badge(self) -> str:
        """One line for a README or a registry."""
        counts = Counter(self.verdicts().values())
        done = sum(counts.values()) - counts["skipped"]
        good = done - counts["failed"]
        colour = "red" if counts["failed"] else "yellow" if counts["warning"] else "brightgreen"
        text = f"{good}%2F{done}%20{'failed' if counts['failed'] else 'passed'}"
        alt = f"harness env check: {good} of {done} passed"
        return f"![{alt}](https://img.shields.io/badge/harness%20env%20check-{text}-{colour})"

    def card(self) -> str:
        """One Markdown page."""
        marks = {"passed": "pass", "warning": "**warning**", "failed": "**FAIL**", "skipped": "skipped"}
        lines = [
            f"# {self.id}",
            "",
            self.badge(),
            "",
            f"{self.description}. Version {self.edition}, isolation {self.isolation}; judge: harness {self.harness}.",
            "",
            "| check | verdict | what |",
            "|---|---|---|",
        ]
        for name, level in self.verdicts().items():
            said = "; ".join(_cell(f.what) for f in self.of(name) if f.level == level)
            lines.append(f"| {name} | {marks[level]} | {said} |")
        mending = [f for f in self.findings if f.level in ("failed", "warning")]
        if mending:
            lines += ["", "## To mend", ""]
            lines += [f"- **{f.check}** {_cell(f.where)}: {_cell(f.what)}. {_cell(f.mend)}" for f in mending]
        if self.figures:
            lines += ["", "## Figures", "", "| | |", "|---|--:|"]
            lines += [f"| {name.replace('_', ' ')} | {value:g} |" for name, value in self.figures.items()]
        lines += ["", f"`harness env check {self.name}`", ""]
        return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
