"""One entry of a board: a folder with the record, every trajectory, and the scores.

    record.json           everything that moves the score, written before the first episode is played
    trajectories.jsonl    one attempt a line, appended and flushed as it ends; packed to .jsonl.gz at the end
    tokenizer.json.gz     what the ids mean, where there are any and it is small (see tokens.py)
    sessions.jsonl        where and when it was played, one line a sitting
    scores.json           the figures, and SHA-256 digests of the other files; its presence says "finished"

An attempt is known by (task id, number): a task is played `repeats` times, numbered from 0. Invariant: an attempt is in
the file once; a line torn by a crash is dropped when the entry is opened again; what a writer keeps in memory does not
grow with the length of episodes. An entry is only continued under the very same record.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from harness.agents.types import Trajectory
from harness.envs.errors import UserError

from ..disk import whole, write_atomically
from . import tokens
from .intake import digest, read_objects, unpacked_lines
from .record import Record
from .score import Result, Scores, as_json, result_of, score
from .seal import is_sealed, sealed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.envs.base import Task

_TRAJECTORY = TypeAdapter(Trajectory)
_RECORD = TypeAdapter(Record)

PACKED = "trajectories.jsonl.gz"
SIGNED = ("record.json", "sessions.jsonl", PACKED, tokens.NAME)


@dataclass(frozen=True)
class Entry:
    """An entry on disk, finished or not."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Entry:
        """Raises UserError where there is no entry."""
        if not (path / "record.json").is_file():
            raise UserError(f"{path} holds no entry (no record.json in it).")
        return cls(path)

    @cached_property
    def record(self) -> Record:
        try:
            return _RECORD.validate_json((self.path / "record.json").read_bytes())
        except ValidationError as e:
            raise UserError(f"{self.path / 'record.json'} is no record of this version: {_first(e)}") from None

    @property
    def finished(self) -> bool:
        return (self.path / "scores.json").is_file()

    def trajectories(self) -> Iterator[Trajectory]:
        """Every attempt: in the order of tasks and numbers where finished, else as they ended.

        Raises UserError where a file is damaged, or made to grow beyond all bounds when it is read.
        """
        packed, plain = self.path / PACKED, self.path / "trajectories.jsonl"
        if packed.is_file():
            for i, line in enumerate(unpacked_lines(packed), start=1):
                yield _read(line, f"{packed}, line {i}")
        elif plain.is_file():
            with plain.open("rb") as lines:
                for i, line in enumerate(lines, start=1):
                    if line.endswith(b"\n"):
                        yield _read(line, f"{plain}, line {i}")

    def scores(self) -> Scores:
        """Computed from the trajectories, never read from a file."""
        return score(result_of(t, self.record.success_at) for t in self.trajectories())

    def sessions(self) -> list[dict[str, Any]]:
        """Where and when it was played."""
        path = self.path / "sessions.jsonl"
        return read_objects(path) if path.is_file() else []

    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The one that lies here, or None. Raises UserError where it cannot be read."""
        return tokens.unpack(self.path / tokens.NAME) if (self.path / tokens.NAME).is_file() else None


def entries(folder: Path) -> list[Entry]:
    """Every finished entry in a folder, at any depth, in the order of their paths."""
    return [e for p in sorted(folder.rglob("record.json")) if (e := Entry(p.parent)).finished]


def copy(entry: Entry, folder: Path, borrowed: Callable[[Task], bool]) -> Entry:
    """A finished entry in a new folder: without its logprobs, which are most of its bytes and in no figure, and without
    texts that are not ours to copy, where its world says so (`TextEnv.borrowed`).

    Raises UserError where the folder is there already.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already. Choose another name (--name).")
    part = folder.with_name(f".{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    for name in ("record.json", "sessions.jsonl", tokens.NAME):
        if (entry.path / name).is_file():
            write_atomically(part / name, (entry.path / name).read_bytes())
    with whole(part / PACKED) as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as pack:
        for trajectory in entry.trajectories():
            pack.write(_line(_lean(_kept(trajectory, borrowed))))
    sign(part, entry.scores())
    part.replace(folder)
    return Entry.open(folder)


def sign(folder: Path, scores: Scores) -> None:
    """Write the figures, with the digests of all other files."""
    digests = {p.name: digest(p) for p in sorted(folder.iterdir()) if p.name in SIGNED}
    write_atomically(
        folder / "scores.json", json.dumps({**as_json(scores), "digests": digests}, indent=2).encode() + b"\n"
    )


class EntryWriter:
    """Appends attempts to an entry, new or half played. A context manager; `finish` closes the books."""

    def __init__(self, path: Path, record: Record) -> None:
        """Raises UserError where another record, or a finished entry, is in the folder."""
        self.entry = Entry(path)
        self._record = record
        self._wanted = frozenset(record.attempts())
        self._plain = path / "trajectories.jsonl"
        self.done: dict[tuple[str, int], Result] = {}
        """What was played, by task id and number."""
        self._lines: dict[tuple[str, int], tuple[int, int]] = {}  # where its line is: offset and length
        path.mkdir(parents=True, exist_ok=True)
        if (path / "record.json").is_file():
            self._same_record()
        else:
            write_atomically(path / "record.json", _RECORD.dump_json(record, indent=2) + b"\n")
        if self.entry.finished:
            raise UserError(f"the entry {path} is finished already.")
        self._file: IO[bytes] = self._plain.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UserError(
                f"the entry {path} is being played by another process. Wait for it, or take another folder (--out)."
            ) from None
        self._end = self._mend()

    def __enter__(self) -> EntryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def add(self, trajectory: Trajectory) -> Result:
        """Store one attempt; it survives a kill of this process from here on. Returns what it counts for."""
        key = _key(trajectory)
        if key in self.done:
            raise ValueError(f"attempt {key[1]} at {trajectory.task.key} has been played already")
        if key not in self._wanted:
            raise ValueError(f"attempt {key[1]} at {trajectory.task.key} is none of the entry's")
        line = _line(trajectory)
        self._file.write(line)
        self._file.flush()
        self._note(trajectory, self._end, len(line))
        self._end += len(line)
        return self.done[key]

    def sitting(self, facts: Mapping[str, Any]) -> None:
        """Note where and when attempts were played."""
        with (self.entry.path / "sessions.jsonl").open("a", encoding="utf-8") as f:
            f.write(json.dumps(facts, ensure_ascii=False) + "\n")

    def finish(self) -> Entry:
        """Pack the trajectories, compute the scores, sign everything with digests."""
        missing = [key for key in self._record.attempts() if key not in self.done]
        if missing:
            task, number = missing[0]
            raise ValueError(f"{len(missing)} attempts have not been played, number {number} at {task} among them")
        self._file.close()
        path = self.entry.path
        with (
            whole(path / PACKED) as f,
            self._plain.open("rb") as lines,
            gzip.GzipFile("", "wb", 6, f, mtime=0) as pack,
        ):
            for key in self._record.attempts():
                offset, length = self._lines[key]
                lines.seek(offset)
                pack.write(lines.read(length))
        sign(path, score(self.done[key] for key in self._record.attempts()))
        self._plain.unlink()
        return self.entry

    def keep(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        """Put the tokenizer beside the ids, where there is one and it is small enough."""
        path = self.entry.path / tokens.NAME
        if tokenizer is not None and not path.is_file() and (data := tokens.pack(tokenizer)) is not None:
            write_atomically(path, data)

    def _same_record(self) -> None:
        there = self.entry.record
        if there != self._record:
            differ = [f.name for f in fields(Record) if getattr(there, f.name) != getattr(self._record, f.name)]
            raise UserError(
                f"{self.entry.path} holds an entry made under other settings ({', '.join(differ)}). "
                "Choose another folder, or the same settings."
            )

    def _mend(self) -> int:
        """Read what is there, and cut off a line that a crash has torn. Returns the file's length."""
        good = 0
        with self._plain.open("rb") as lines:
            for line in lines:
                try:
                    trajectory = _TRAJECTORY.validate_json(line)
                except ValidationError:
                    break
                if not line.endswith(b"\n"):
                    break
                self._note(trajectory, good, len(line))
                good += len(line)
        os.truncate(self._plain, good)
        return good

    def _note(self, trajectory: Trajectory, offset: int, length: int) -> None:
        key = _key(trajectory)
        self.done[key] = result_of(trajectory, self._record.success_at)
        self._lines[key] = offset, length


def _key(trajectory: Trajectory) -> tuple[str, int]:
    return trajectory.task.id, trajectory.attempt


def _read(line: bytes, where: str) -> Trajectory:
    try:
        return _TRAJECTORY.validate_json(line)
    except ValidationError as e:
        raise UserError(f"{where}: no attempt of this version: {_first(e)}") from None


def _kept(trajectory: Trajectory, borrowed: Callable[[Task], bool]) -> Trajectory:
    return sealed(trajectory) if not is_sealed(trajectory) and borrowed(trajectory.task) else trajectory


def _lean(trajectory: Trajectory) -> Trajectory:
    turns = (replace(turn, completion=replace(turn.completion, logprobs=())) for turn in trajectory.turns)
    return replace(trajectory, turns=tuple(turns))


def _line(trajectory: Trajectory) -> bytes:
    return to_json(trajectory, inf_nan_mode="strings", fallback=dict) + b"\n"  # fallback: read-only mappings


def _first(e: ValidationError) -> str:
    error = e.errors(include_url=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
