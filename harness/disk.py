"""Writing files so that a crash leaves the old one or the new one, and a full disk is said in words.

Knows files only. Invariant: a file that `whole` or `write_atomically` has made holds all that was meant for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.envs.errors import UserError


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Turn the faults of a disk that a person can mend into a UserError."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "Set $HARNESS_RUNS to a folder you may write in."
            raise UserError(f"no permission to write {e.filename or what}. {hint}") from e
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"the disk is full: {what} could not be written. Free some space, then resume.") from e
        if e.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
            raise UserError(
                f"{e.filename or what} is in the way: {e.strerror}. Move it, or choose another name."
            ) from e
        raise


@contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there with all that is written in the block, or not at all, also through a crash."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as f:
        yield f
        f.flush()
        os.fsync(f.fileno())
    part.replace(path)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file whole or not at all. Raises UserError."""
    with writing(path), whole(path) as f:
        f.write(data.encode() if isinstance(data, str) else data)
