"""The memory of a run's figures: one JSON line a step in `metrics.jsonl`, and the same as TensorBoard scalars.

Knows names and numbers, not what they mean. A phase ("warmup", "train", "eval") counts its own steps; `step` is the
number of steps done when the figures were taken. Invariants: within a phase steps rise, so no step is heard twice; a
line is whole or not there; after `rewind`, nothing is left of steps that will be done again. The lines are the truth:
each process makes the event files anew from them.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.envs.errors import UserError

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

FILE = "metrics.jsonl"
EVENTS = "tensorboard"
_FIELDS = {"phase", "step", "time"}


def read(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics, in the order of writing; [] where there are none yet.

    Each has `phase`, `step`, `time` (Unix seconds) and the figures, None for those that were not finite. Raises
    UserError where a line cannot be read. A last line that a kill cut short is left out.
    """
    file = folder / FILE
    return list(_parse(file, _whole(file)))


class Monitor:
    """Hears of each step once. One process at a time may hold it open."""

    def __init__(self, folder: Path) -> None:
        """Goes on with what is in `folder`, without a last line that a kill cut short. Raises UserError."""
        self._file = folder / FILE
        self._events = folder / EVENTS
        self._writers: dict[str, EventFileWriter] = {}
        with _explained(self._file):
            kept = _whole(self._file)
            self._last = _last_steps(_parse(self._file, kept))
            self._lines = open(self._file, "ab", buffering=0)  # noqa: SIM115 - open as long as the monitor is
            self._lines.truncate(len(kept))

    def log(self, phase: str, step: int, figures: Mapping[str, float]) -> None:
        """Append one line and one point to each curve; what is not finite is null there and no point here.

        The line has reached the operating system on return. Raises ValueError where `step` does not follow the phase's
        last one or a figure has the name of a line's own fields, and UserError, with nothing appended, where the disk
        does not take it.
        """
        if taken := _FIELDS & figures.keys():
            raise ValueError(f"figures cannot be named {sorted(taken)}")
        if step <= self._last.get(phase, -1):
            raise ValueError(f"{phase} step {step} was heard before: the last one was {self._last[phase]}")
        numbers = {name: float(value) for name, value in figures.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        line = {"phase": phase, "step": step, "time": round(time.time(), 3), **finite}
        writer = self._writer(phase)
        self._append(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._last[phase] = step
        _draw(writer, line)
        writer.flush()

    def rewind(self, phase: str, step: int) -> None:
        """The phase goes on after `step` steps: forget its later ones. All at once, whenever it is killed."""
        kept = [line for line in read(self._file.parent) if line["phase"] != phase or line["step"] <= step]
        draft = self._file.with_suffix(".draft")
        with _explained(self._file):
            with open(draft, "wb") as out:
                out.writelines(json.dumps(line).encode() + b"\n" for line in kept)
                out.flush()
                os.fsync(out.fileno())
            self._lines.close()
            os.replace(draft, self._file)
            self._lines = open(self._file, "ab", buffering=0)  # noqa: SIM115 - open as long as the monitor is
        if writer := self._writers.pop(phase, None):
            writer.close()
        self._last = _last_steps(kept)

    def close(self) -> None:
        self._lines.close()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _append(self, line: bytes) -> None:
        before = os.fstat(self._lines.fileno()).st_size
        try:
            with _explained(self._file):
                written = self._lines.write(line)
                if written != len(line):
                    raise OSError(f"only {written} of {len(line)} bytes were taken")
        except UserError:
            self._lines.truncate(before)
            raise

    def _writer(self, phase: str) -> EventFileWriter:
        if phase not in self._writers:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter  # torch's own, without torch

            folder = self._events / phase
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            self._writers[phase] = EventFileWriter(str(folder))
            for line in read(self._file.parent):
                if line["phase"] == phase:
                    _draw(self._writers[phase], line)
        return self._writers[phase]


def _draw(writer: EventFileWriter, line: Mapping[str, Any]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [
        Summary.Value(tag=name, simple_value=value)
        for name, value in line.items()
        if name not in _FIELDS and value is not None
    ]
    writer.add_event(Event(wall_time=line["time"], step=line["step"], summary=Summary(value=values)))


def _whole(file: Path) -> bytes:
    """The file up to its last line's end."""
    text = file.read_bytes() if file.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def _parse(file: Path, text: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = json.loads(line)
            yield {"phase": str(found["phase"]), "step": int(found["step"]), "time": float(found["time"]), **found}
        except (ValueError, KeyError, TypeError) as e:
            raise UserError(f"{file}, line {number}: not a line of metrics. Mend or delete that line.") from e


def _last_steps(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {line["phase"]: line["step"] for line in lines}


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        why = e.strerror or str(e)
        raise UserError(f"{file}: metrics cannot be written ({why}). Give it room and permission, then resume.") from e
