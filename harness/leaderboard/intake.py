"""Reading a folder that somebody else made.

Knows which files an entry may hold and how large each may be; not what they mean. Invariant: nothing outside of the
folder is read, nothing is read without a bound, and whatever is wrong is a UserError that names the file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from harness.envs.errors import UserError

MIB: Final = 1 << 20
FILES: Final[Mapping[str, int]] = {
    "record.json": 16 * MIB,
    "scores.json": 16 * MIB,
    "sessions.jsonl": 16 * MIB,
    "trajectories.jsonl.gz": 512 * MIB,
    "tokenizer.json.gz": 8 * MIB,
}
"""The files of a finished entry, and the most bytes each may have."""
LINE: Final = 64 * MIB
"""Longest line of an unpacked file: one attempt."""
UNPACKED: Final = 4096 * MIB
"""Most bytes that one packed file may become."""


def inspect(folder: Path) -> None:
    """Raises UserError where a folder is no finished entry, or holds anything that an entry does not.

    A link, a folder, a device, an unknown or an oversized file is refused before a byte of it is read.
    """
    if folder.is_symlink():
        raise UserError(f"{folder} is a symbolic link; an entry is a folder of its own. Copy what it points at.")
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder, so no entry. Make one with `harness eval`.")
    with os.scandir(folder) as items:
        for item in sorted(items, key=lambda i: i.name):
            state = item.stat(follow_symlinks=False)
            if not stat.S_ISREG(state.st_mode):
                kind = "a symbolic link" if item.is_symlink() else "no regular file"
                raise UserError(f"{item.path} is {kind}; an entry holds plain files only: {', '.join(FILES)}.")
            if item.name not in FILES:
                if item.name == "trajectories.jsonl":
                    raise UserError(f"the entry {folder} is not finished: go on with the `harness eval` that began it.")
                raise UserError(f"{item.path} belongs to no entry. One holds: {', '.join(FILES)}.")
            if state.st_size > FILES[item.name]:
                raise UserError(f"{item.path} has {state.st_size} bytes; at most {FILES[item.name]} are read.")
    for name in ("record.json", "scores.json", "trajectories.jsonl.gz"):
        if not (folder / name).is_file():
            raise UserError(f"{folder} holds no finished entry (no {name} in it).")


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def unpacked_lines(path: Path, longest: int = LINE, most: int = UNPACKED) -> Iterator[bytes]:
    """Lines of a gzip file. Raises UserError on a line or a whole beyond bounds, and where it is no gzip file."""
    total = 0
    try:
        with gzip.open(path, "rb") as lines:
            while line := lines.readline(longest + 1):
                total += len(line)
                if len(line) > longest:
                    raise UserError(f"{path}: a line is longer than {longest} bytes unpacked; it is not read on.")
                if total > most:
                    raise UserError(f"{path}: becomes more than {most} bytes unpacked; it is not read on.")
                yield line
    except (gzip.BadGzipFile, EOFError, zlib.error) as e:
        raise UserError(f"{path} is damaged, or no gzip file: {e}.") from None


def unpacked(path: Path, most: int) -> bytes:
    """A whole gzip file of at most `most` bytes unpacked. Raises UserError."""
    return b"".join(unpacked_lines(path, longest=most, most=most))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UserError where there is none."""
    return as_object(path.read_bytes(), str(path))


def read_objects(path: Path) -> list[dict[str, Any]]:
    """One JSON object a line. Raises UserError, with the line."""
    lines = path.read_bytes().split(b"\n")
    return [as_object(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1) if line.strip()]


def as_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` says. Raises UserError."""
    try:
        found = from_json(data)  # unlike json.loads, bounded in depth
    except ValueError as e:
        raise UserError(f"{where}: not JSON: {e}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(found).__name__}.")
    return found
