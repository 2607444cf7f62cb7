"""One entry of a board: a folder with the record, every trajectory, and the scores.

    record.json           everything that moves the score, written before the first episode is played
    trajectories.jsonl    one attempt a line, appended and flushed as it ends; packed to .jsonl.gz at the end
    sessions.jsonl        where and when it was played, one line a sitting
    scores.json           the figures, and SHA-256 digests of the other files; its presence says "finished"

Invariant: an attempt is in the file once; a line torn by a crash is dropped when the entry is opened again. An entry
is only continued under the very same record.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from harness.agents.types import Trajectory
from harness.envs.errors import UserError

from .score import Scores, as_json, score

_TRAJECTORY = TypeAdapter(Trajectory)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Everything that moves a score. Two entries with equal records are draws from one distribution."""

    model: str
    """Name to show."""
    model_digest: str | None
    """SHA-256 over the checkpoint's files; None for an endpoint or a scripted player."""
    engine: str
    """What sampled: local, openai, expert, random."""
    engine_options: dict[str, Any] = field(default_factory=dict)
    """dtype, URL and the like."""
    tokenizer_hash: str | None = None
    """SHA-256 over vocabulary and chat template."""
    env: str
    world_version: str
    split: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the world's `tasks`."""
    task_ids: list[str]
    """All tasks of the entry, in the split's order."""
    success_at: float
    """Summed reward from which an episode is a success."""
    max_steps: int
    """Actions before an episode is cut."""
    agent: dict[str, Any] = field(default_factory=dict)
    """The `agent` section."""
    prompt_hash: str | None = None
    """SHA-256 over the prompt's text."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """The `sampling` section."""
    seed: int = 0
    """Seeds the sampler of each episode, together with the task."""
    seed_reaches_sampler: bool = True
    """False for endpoints that may ignore it."""
    limits: dict[str, Any] = field(default_factory=dict)
    """The `limits` section."""
    harness_version: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


_RECORD = TypeAdapter(Record)


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
        """Every attempt: in the order of the tasks where finished, else as they ended."""
        packed, plain = self.path / "trajectories.jsonl.gz", self.path / "trajectories.jsonl"
        if packed.is_file():
            with gzip.open(packed, "rb") as lines:
                yield from (_TRAJECTORY.validate_json(line) for line in lines)
        elif plain.is_file():
            with plain.open("rb") as lines:
                yield from (_TRAJECTORY.validate_json(line) for line in lines if line.endswith(b"\n"))

    def scores(self) -> Scores:
        """Computed from the trajectories, never read from a file."""
        return score(self.trajectories(), self.record.success_at)

    def sessions(self) -> list[dict[str, Any]]:
        """Where and when it was played."""
        path = self.path / "sessions.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def entries(folder: Path) -> list[Entry]:
    """Every finished entry in a folder, at any depth, in the order of their paths."""
    return [e for p in sorted(folder.rglob("record.json")) if (e := Entry(p.parent)).finished]


class EntryWriter:
    """Appends attempts to an entry, new or half played. A context manager; `finish` closes the books."""

    def __init__(self, path: Path, record: Record) -> None:
        """Raises UserError where another record, or a finished entry, is in the folder."""
        self.entry = Entry(path)
        self._record = record
        self._plain = path / "trajectories.jsonl"
        self.done: dict[str, Trajectory] = {}
        """What was played before, by task id."""
        path.mkdir(parents=True, exist_ok=True)
        if (path / "record.json").is_file():
            self._same_record()
        else:
            _write(path / "record.json", _RECORD.dump_json(record, indent=2) + b"\n")
        if self.entry.finished:
            raise UserError(f"the entry {path} is finished already.")
        self._file: IO[bytes] = self._plain.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UserError(f"the entry {path} is being played by another process.") from None
        self._mend()

    def __enter__(self) -> EntryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def add(self, trajectory: Trajectory) -> None:
        """Store one attempt; it survives a kill of this process from here on."""
        if trajectory.task.id in self.done:
            raise ValueError(f"{trajectory.task.key} has been played already")
        self._file.write(_line(trajectory))
        self._file.flush()
        self.done[trajectory.task.id] = trajectory

    def sitting(self, facts: Mapping[str, Any]) -> None:
        """Note where and when attempts were played."""
        with (self.entry.path / "sessions.jsonl").open("a", encoding="utf-8") as f:
            f.write(json.dumps(facts, ensure_ascii=False) + "\n")

    def finish(self) -> Entry:
        """Pack the trajectories, compute the scores, sign everything with digests."""
        missing = [i for i in self._record.task_ids if i not in self.done]
        if missing:
            raise ValueError(f"{len(missing)} tasks have not been played, {missing[0]} among them")
        self._file.close()
        path = self.entry.path
        packed = path / "trajectories.jsonl.gz"
        ordered = [self.done[i] for i in self._record.task_ids]
        body = b"".join(_line(t) for t in ordered)
        _write(packed, gzip.compress(body, mtime=0))
        signed = [p for n in ("record.json", "sessions.jsonl", packed.name) if (p := path / n).is_file()]
        digests = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in signed}
        figures = {**as_json(score(ordered, self._record.success_at)), "digests": digests}
        _write(path / "scores.json", json.dumps(figures, indent=2).encode() + b"\n")
        self._plain.unlink()
        return self.entry

    def _same_record(self) -> None:
        there = self.entry.record
        if there != self._record:
            differ = [f.name for f in fields(Record) if getattr(there, f.name) != getattr(self._record, f.name)]
            raise UserError(
                f"{self.entry.path} holds an entry made under other settings ({', '.join(differ)}). "
                "Choose another folder, or the same settings."
            )

    def _mend(self) -> None:
        """Read what is there, and cut off a line that a crash has torn."""
        good = 0
        with self._plain.open("rb") as lines:
            for line in lines:
                try:
                    trajectory = _TRAJECTORY.validate_json(line)
                except ValidationError:
                    break
                if not line.endswith(b"\n"):
                    break
                good += len(line)
                self.done[trajectory.task.id] = trajectory
        os.truncate(self._plain, good)


def _line(trajectory: Trajectory) -> bytes:
    return to_json(trajectory, inf_nan_mode="strings", fallback=dict) + b"\n"  # fallback: read-only mappings


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    part.replace(path)


def _first(e: ValidationError) -> str:
    error = e.errors(include_url=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
