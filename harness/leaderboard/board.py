"""A board: its rules, its entries, and what has happened to it.

    leaderboards/<name>/board.yaml        the card: what is played, under which rules, and figures published elsewhere
                        entries/<entry>/  see entry.py
                        history.jsonl     one line for each thing that happened: submitted, rescored
                        rescored/<grader version>/<entry>/   the same, graded anew (rescore.py)
                        README.md, index.html   rendered, never edited

Knows files and rules; not how anything is verified or drawn. Invariant: an entry is on the board only if the history
says so, under the digest that it had when it was verified.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from harness.envs.errors import UnknownName, UserError
from harness.envs.registry import world_class
from harness.envs.tasks import tasks_of

from ..disk import writing
from ..load import parse_yaml
from .entry import Entry
from .intake import digest, read_objects

if TYPE_CHECKING:
    from harness.envs.base import Task

CARD: Final = "board.yaml"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A figure that somebody else has published: shown apart, never ranked."""

    __pydantic_config__ = _STRICT

    model: str
    success: float
    """Per cent."""
    note: str = ""
    """What is known of how it was made, and what is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The rules of a board: what is played, and within which settings an entry may have been made."""

    __pydantic_config__ = _STRICT

    title: str
    about: str = ""
    """A few sentences, Markdown."""
    env: str
    split: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the world's `tasks`: which games, which source."""
    n: int | None = None
    """The first n tasks of the split; None for all of them."""
    max_steps: int
    """Actions an episode may take: exactly this."""
    temperature: tuple[float, float] = (0.0, 2.0)
    """Least and most."""
    top_p: tuple[float, float] = (0.0, 1.0)
    """Least and most."""
    max_tokens: int | None = None
    """Most tokens of one answer; None for no limit."""
    repeats: int = 1
    """Episodes that an entry must have of each task."""
    attempts: int = 1
    """Tries that one counted episode may be the best of. There is no other value than 1: every attempt counts."""
    lost: int = 0
    """Most attempts that may be lost to faults of world, model or grader."""
    published: tuple[Published, ...] = ()


_CARD = TypeAdapter(Card)


@dataclass(frozen=True)
class Board:
    """A board on disk."""

    path: Path

    @classmethod
    def find(cls, which: str | Path) -> Board:
        """A board by its name below `boards_root()`, or by its folder. Raises UserError."""
        for path in (boards_root() / which, Path(which)):
            if (path / CARD).is_file():
                return cls(path)
        raise UnknownName(
            "board", str(which), [b.name for b in all_boards()], hint=f"Boards are looked for in {boards_root()}."
        )

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @cached_property
    def card(self) -> Card:
        """The rules. Raises UserError."""
        path = self.path / CARD
        try:
            card = _CARD.validate_python(parse_yaml(path.read_text(encoding="utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError) as e:
            raise UserError(f"{path} is not valid YAML: {' '.join(str(e).split())}") from None
        except ValidationError as e:
            wrong = [f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in e.errors(include_url=False)]
            raise UserError("\n  ".join([f"{path}: {len(wrong)} mistakes", *wrong])) from None
        if card.attempts != 1:
            raise UserError(
                f"{path}: attempts is {card.attempts}, and there is no other value than 1: an entry that keeps the "
                "best of several tries is not ranked. Ask for several episodes of each task with repeats; all count."
            )
        return card

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """What is played here, in order. Raises UserError where the world's data is not on this machine."""
        return expected_tasks(self.card.env, self.card.split, self.card.options, self.card.n)

    def entries(self) -> dict[str, Entry]:
        """The accepted entries by name, in alphabetical order, each as it was graded last.

        Raises UserError where one is not what was accepted.
        """
        found = {}
        for name, line in sorted(self.accepted().items()):
            path = self.folder(line)
            if not (path / "scores.json").is_file():
                raise UserError(f"the board '{self.name}' has accepted the entry {path}, and it is not there.")
            if digest(path / "scores.json") != line.get("signature"):
                raise UserError(f"{path} is not the entry that the board '{self.name}' has accepted: it was changed.")
            found[name] = Entry.open(path)
        return found

    def accepted(self) -> dict[str, dict[str, Any]]:
        """The last line of the history about each entry, by name."""
        lines = {}
        for line in self.history():
            name = str(line.get("entry"))
            if line.get("what") in ("submitted", "rescored") and NAME.fullmatch(name):
                lines[name] = line
        return lines

    def folder(self, line: Mapping[str, Any]) -> Path:
        """Where the entry lies that a line of the history is about. Raises UserError where the line is none of ours."""
        name, to = str(line.get("entry")), str(line.get("grader_version"))
        if not NAME.fullmatch(name) or not NAME.fullmatch(to):
            raise UserError(f"{self.path / 'history.jsonl'}: '{name}' and '{to}' cannot name an entry and a grader.")
        return self.path / "rescored" / to / name if line["what"] == "rescored" else self.path / "entries" / name

    def history(self) -> list[dict[str, Any]]:
        """What has happened, oldest first."""
        path = self.path / "history.jsonl"
        return read_objects(path) if path.is_file() else []

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add a line to the history, with the time."""
        facts = {"when": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **facts}
        with writing(self.path), (self.path / "history.jsonl").open("a", encoding="utf-8") as f:
            f.write(json.dumps(facts, ensure_ascii=False) + "\n")


def boards_root() -> Path:
    """Folder that holds the boards: $HARNESS_BOARDS, or `leaderboards` in the working directory."""
    return Path(os.environ.get("HARNESS_BOARDS") or "leaderboards")


def all_boards() -> list[Board]:
    """Every board below the root, in alphabetical order."""
    root = boards_root()
    return [Board(p.parent) for p in sorted(root.glob(f"*/{CARD}"))] if root.is_dir() else []


def board_of(entry: Path) -> Board | None:
    """The board in whose folder an entry lies, or None."""
    folder = entry.resolve().parent
    home = folder.parent if folder.name == "entries" else folder.parent.parent
    return Board(home) if (home / CARD).is_file() else None


def expected_tasks(env: str, split: str, options: Mapping[str, Any], n: int | None) -> Sequence[Task]:
    """The first n tasks of a split, or all. Raises UserError where there are fewer than n, or no end of them."""
    tasks = tasks_of(world_class(env), split, options)
    if n is None and len(tasks) > ENDLESS_FROM:
        raise UserError(f"the split '{split}' of '{env}' has no end; say how many tasks (n).")
    if n is not None and n > len(tasks):
        raise UserError(f"the split '{split}' of '{env}' has {len(tasks)} tasks here, and {n} are asked for.")
    return [tasks[i] for i in range(len(tasks) if n is None else n)]


ENDLESS_FROM: Final = 1_000_000


def broken(card: Card, record: Any) -> Iterator[tuple[str, str]]:
    """Every rule that an entry's record breaks: the setting, and what is there and what should be."""
    exact = {
        "env": card.env,
        "split": card.split,
        "options": card.options,
        "max_steps": card.max_steps,
        "repeats": card.repeats,
    }
    for name, wanted in exact.items():
        if (said := getattr(record, name)) != wanted:
            yield name, f"is {said!r}, and the board wants {wanted!r}"
    for name in ("temperature", "top_p"):
        low, high = getattr(card, name)
        said = record.sampling.get(name)
        if not isinstance(said, (int, float)) or not low <= said <= high:
            yield f"sampling.{name}", f"is {said!r}, and the board wants {low:g} to {high:g}"
    said = record.sampling.get("max_tokens")
    if card.max_tokens is not None and not (isinstance(said, int) and said <= card.max_tokens):
        yield "sampling.max_tokens", f"is {said!r}, and the board wants at most {card.max_tokens}"
