"""Whether an entry is what it says: every claim in it is made again from the answers, and compared.

| check      | what is made again                                                                            |
|------------|-----------------------------------------------------------------------------------------------|
| files      | the digests; in a board, the digest under which the entry was accepted                        |
| record     | world and grader versions, success mark, prompt and tokenizer hashes, step limit, tokenizer   |
| rules      | the settings against the board's card                                                         |
| tasks      | the ids of the split, in order; each stored task against the world's own                      |
| attempts   | every attempt once, numbered from 0; no more played than shown, by the sessions' own count    |
| answers    | ids against texts, numbers of ids, logprobs                                                   |
| replay     | thought, action, observation, reward and outcome of every turn, by playing the answers again  |
| figures    | all of `scores.json`                                                                          |

What it cannot know: whether the named model gave these answers (see `rerun.py`, which asks it again). Knows entries and
boards; writes nothing. Invariant: no code, path or world that the entry names is used unless the harness or the board
names it too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from harness.agents.registry import make as make_agent
from harness.envs.base import Task, TextEnv
from harness.envs.errors import UserError
from harness.envs.registry import names, world_class

from .. import __version__
from .audit import AGENT, Audit
from .board import Board, board_of, broken, expected_tasks
from .entry import Entry
from .intake import digest, inspect, read_object
from .record import Record, prompt_hash
from .replay import EXACT, Fault, Finding
from .score import Result, as_json, score
from .seal import plain
from .tokens import NAME as TOKENIZER
from .tokens import tokenizer_hash, unpack

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHECKS: Final = ("files", "record", "rules", "tasks", "attempts", "answers", "replay", "figures")
_UNSIGNED: Final = "scores.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One kind of claim, and what came of it."""

    name: str
    text: str
    """What was compared."""
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    """Why it could not be done, or empty."""


@dataclass(kw_only=True)
class Report:
    """What verifying an entry came to."""

    entry: Path
    checks: list[Check] = field(default_factory=list)
    results: Sequence[Result] = ()
    """What each attempt counts for, as stored."""

    @property
    def findings(self) -> list[Finding]:
        return [finding for check in self.checks for finding in check.findings]

    @property
    def ok(self) -> bool:
        """Everything was checked, and nothing found."""
        return not self.findings and not any(check.skipped for check in self.checks)


def verify(path: Path, board: Board | None = None, tokenizer: PreTrainedTokenizerBase | None = None) -> Report:
    """Check the entry in `path` against itself, its world, and the rules of `board` (default: the one it lies in).

    tokenizer: of the checkpoint, for an entry that does not hold its own. Raises UserError where the folder is no entry
    that may be read, or where this machine lacks what its world needs.
    """
    inspect(path)
    board = board or board_of(path)
    entry = Entry.open(path)
    record = entry.record
    report = Report(entry=path)
    add = report.checks.append

    add(Check(name="files", text="digests", findings=tuple(_files(path, board))))
    world = _world(record, board)
    found, tokenizer = _tokenizer(path, record, tokenizer)
    add(Check(name="record", text="versions, hashes and limits", findings=(*_record(record, world.world), *found)))
    if board is None:
        add(Check(name="rules", text="no board was named"))
    else:
        wrong = tuple(Finding(Fault.RULES, name, text) for name, text in broken(board.card, record))
        add(Check(name="rules", text=f"of the board '{board.name}'", findings=wrong))
    tasks = _tasks_here(path, record, board)
    audit = Audit(entry, board, tasks, tokenizer)
    found = tuple(_tasks(record.task_ids, [task.id for task in tasks]))
    if found or any(_other_game(finding) for finding in report.findings):
        add(Check(name="tasks", text="ids", findings=found))
        return report
    asyncio.run(audit.run())
    add(Check(name="tasks", text=f"{len(tasks)} of {record.env} {record.split}", findings=tuple(audit.swapped)))
    add(Check(name="attempts", text=f"{audit.seen} stored", findings=tuple(audit.attempts())))
    ids = f"{audit.ids} ids of {audit.answered} answers" if audit.ids else f"{audit.answered} answers, text only"
    add(Check(name="answers", text=ids, findings=tuple(audit.wrong_answers)))
    add(Check(name="replay", text=f"{audit.turns} turns of {audit.seen} episodes", findings=tuple(audit.differing)))
    add(Check(name="figures", text="scores.json", findings=tuple(_figures(path, audit.results))))
    report.results = audit.results
    return report


def _tasks_here(path: Path, record: Record, board: Board | None) -> Sequence[Task]:
    try:
        if board is not None:
            return board.tasks
        return expected_tasks(record.env, record.split, record.options, len(record.task_ids))
    except UserError as e:
        raise UserError(
            f"{path} is not verified: its episodes are played again on tasks that cannot be had here. {e}"
        ) from None


def _other_game(finding: Finding) -> bool:
    """Nothing can be played again: the entry is of other tasks, or of an agent that is not known here."""
    return (finding.fault, finding.where) in (
        (Fault.RULES, "env"),
        (Fault.RULES, "split"),
        (Fault.RULES, "options"),
        (Fault.RECORD, "agent"),
    )


def _files(path: Path, board: Board | None) -> Iterator[Finding]:
    signed = read_object(path / _UNSIGNED).get("digests")
    signed = signed if isinstance(signed, dict) else {}
    there = sorted(p.name for p in path.iterdir() if p.name != _UNSIGNED)
    for name in there:
        if name not in signed:
            yield Finding(Fault.DIGEST, name, "has no digest in scores.json")
        elif (is_now := digest(path / name)) != signed[name]:
            yield Finding(
                Fault.DIGEST, name, f"was changed: its SHA-256 is {is_now[:12]}..., not {signed[name]!s:.12}..."
            )
    for name in sorted(map(str, signed.keys() - {*there})):
        yield Finding(Fault.DIGEST, name, "has a digest in scores.json, and is not there")
    if board is not None and board_of(path) is not None:
        lines = [x for x in board.history() if x.get("what") in ("submitted", "rescored")]
        line = next((x for x in reversed(lines) if board.folder(x).resolve() == path.resolve()), None)
        if line is None:
            yield Finding(Fault.DIGEST, path.name, f"the history of the board '{board.name}' knows no such entry")
        elif line.get("signature") != digest(path / _UNSIGNED):
            yield Finding(Fault.DIGEST, _UNSIGNED, "was changed since the board accepted the entry")


def _world(record: Record, board: Board | None) -> type[TextEnv]:
    """The world to replay in. An entry may name one of the harness' own; any other must be named by its board."""
    if board is not None and record.env == board.card.env:
        return world_class(board.card.env)
    if record.env not in {row.name for row in names()}:
        raise UserError(
            f"the entry was made in the world '{record.env}', which is none of `harness env list`; an entry does not "
            "choose what code is run. Verify it against a board whose card names that world (--board)."
        )
    return world_class(record.env)


def _tokenizer(
    path: Path, record: Record, given: PreTrainedTokenizerBase | None
) -> tuple[tuple[Finding, ...], PreTrainedTokenizerBase | None]:
    """The tokenizer to read the ids with, of the entry or the caller. Raises UserError where there is none."""
    packed = path / TOKENIZER
    if record.tokenizer_hash is None:
        extra = (Finding(Fault.RECORD, TOKENIZER, "is there, and the record names no tokenizer"),)
        return extra if packed.is_file() else (), None
    if given is None and not packed.is_file():
        raise UserError(
            f"the entry {path} was sampled through a tokenizer that it does not hold, so its ids cannot be read. "
            "Name the checkpoint: --model FOLDER."
        )
    tokenizer = unpack(packed) if given is None else given
    if tokenizer_hash(tokenizer) != record.tokenizer_hash:
        return (Finding(Fault.RECORD, "tokenizer_hash", "is not that of the tokenizer"),), tokenizer
    return (), tokenizer


def _record(record: Record, world: Any) -> Iterator[Finding]:
    try:
        agent = AGENT.validate_python(record.agent)
        steps = make_agent(agent, world).max_steps
        prompt = prompt_hash(agent, world)
    except (ValidationError, UserError) as e:
        yield Finding(Fault.RECORD, "agent", f"is no agent of this harness: {' '.join(str(e).split())[:200]}")
        return
    true = {
        "world_version": world.version,
        "grader_version": world.grader_version,
        "success_at": world.success,
        "max_steps": steps,
        "prompt_hash": prompt,
    }
    for name, value in true.items():
        if (said := getattr(record, name)) != value:
            yield Finding(Fault.RECORD, name, f"is {said!r}, and here it is {value!r}")
    if _parts(record.harness_version) is None or _parts(record.harness_version) > _parts(__version__):  # type: ignore[operator]  # ours has parts
        yield Finding(
            Fault.RECORD, "harness_version", f"is {record.harness_version!r}, and this harness is {__version__}"
        )


def _parts(version: str) -> tuple[int, ...] | None:
    """The numbers at the head of a version, or None."""
    numbers = version.split("+")[0].split(".")[:3]
    return tuple(int(n) for n in numbers if n.isdecimal()) if numbers[0].isdecimal() else None


def _tasks(said: Sequence[str], wanted: Sequence[str]) -> Iterator[Finding]:
    """How the ids of an entry are not those of the split."""
    twice = [i for i, n in Counter(said).items() if n > 1]
    missing, strange = [i for i in wanted if i not in set(said)], [i for i in said if i not in set(wanted)]
    for ids, what in ((twice, "named twice"), (missing, "missing"), (strange, "none of the split's first")):
        if ids:
            yield Finding(Fault.TASKS, "task_ids", f"{len(ids)} of {len(wanted)} are {what}, {ids[0]} among them")
    if not (twice or missing or strange) and list(said) != list(wanted):
        yield Finding(Fault.TASKS, "task_ids", "are in another order than the split's")


def _figures(path: Path, results: Sequence[Result]) -> Iterator[Finding]:
    said = {k: v for k, v in read_object(path / _UNSIGNED).items() if k != "digests"}
    true = plain(as_json(score(results)))
    yield from (Finding(Fault.FIGURES, where, text) for where, text in _unequal(said, true, ""))


def _unequal(said: Any, true: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(said, dict) and isinstance(true, dict):
        for key in sorted(said.keys() | true.keys()):
            at = f"{where}.{key}" if where else key
            if key not in said or key not in true:
                yield at, "is not in scores.json" if key in true else "is no figure of this harness"
            else:
                yield from _unequal(said[key], true[key], at)
    elif isinstance(said, list) and isinstance(true, list) and len(said) == len(true):
        for i, (a, b) in enumerate(zip(said, true, strict=True)):
            yield from _unequal(a, b, f"{where}[{i}]")
    elif isinstance(said, (int, float)) and isinstance(true, (int, float)):
        if not abs(said - true) <= EXACT * max(1.0, abs(true)):
            yield where, f"the file says {said:g}, the attempts say {true:g}"
    elif said != true:
        yield where, f"the file says {said!r:.60}, the attempts say {true!r:.60}"
