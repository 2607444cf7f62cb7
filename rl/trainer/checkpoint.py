"""Checkpoints on disk: folders that are there whole or not at all.

Knows files and names, not what is in them. Invariant: a folder with a checkpoint's name holds a complete checkpoint,
whatever was killed and whenever; all others are drafts, which nobody reads and the next `write` clears away.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from harness.envs.errors import UserError

STATE = "trainer.json"
FORMAT = 1
_STEP = re.compile(r"step-(\d{6,})")
_DRAFT = ".draft-"


def name_of(step: int) -> str:
    """
    >>> name_of(10)
    'step-000010'
    """
    return f"step-{step:06d}"


def write(folder: Path, name: str, fill: Callable[[Path], None], state: Mapping[str, Any]) -> Path:
    """Make the checkpoint `name` in `folder`: what `fill` writes into the empty folder it is given, and `state`.

    It appears under its name when all of it is on the disk. One of the same name is replaced. One process at a time
    may write here. Raises UserError where the disk does not take it; older checkpoints are then as they were.
    """
    final, draft = folder / name, folder / f"{_DRAFT}{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        draft.mkdir()
        fill(draft)
        (draft / STATE).write_text(json.dumps({"format": FORMAT, **state}, indent=1), encoding="utf-8")
        for path in (*draft.rglob("*"), draft):
            _to_disk(path)
        if final.exists():
            # A folder cannot replace a full one in one move; a kill between these two costs only this name.
            final.rename(folder / f"{_DRAFT}old-{name}")
        draft.rename(final)
        _to_disk(folder)
        _clear(folder)
    except (OSError, SafetensorError, RuntimeError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        number = _errno(error)
        if number is None:
            raise
        raise UserError(
            f"could not save the checkpoint {final}: {os.strerror(number)}. {_advice(folder, number)} "
            "Older checkpoints are untouched, and the run can be resumed from them."
        ) from error
    return final


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What `write` was given as `state`. Raises UserError where it is not one of ours, or of a later format."""
    try:
        state = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{checkpoint} is no checkpoint of a run: {STATE} cannot be read ({error}).") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise UserError(f"{checkpoint} has format {found}, this version reads {FORMAT}. Use the version that wrote it.")
    return state


def latest(folder: Path) -> Path | None:
    """The checkpoint of most steps, or None."""
    found = _steps(folder)
    return found[-1] if found else None


def prune(folder: Path, keep: int) -> list[Path]:
    """Delete all numbered checkpoints but the `keep` newest, at least one; returns those deleted."""
    old = _steps(folder)[: -max(1, keep)]
    for path in old:
        # Under another name first: a half-deleted checkpoint must not look like one.
        draft = folder / f"{_DRAFT}pruned-{path.name}"
        path.rename(draft)
        shutil.rmtree(draft)
    return old


def _steps(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    numbered = [(int(m[1]), p) for p in folder.iterdir() if (m := _STEP.fullmatch(p.name)) and p.is_dir()]
    return [p for _, p in sorted(numbered)]


def _clear(folder: Path) -> None:
    for draft in folder.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _errno(error: BaseException) -> int | None:
    """The operating system's number for what went wrong, also where a library has wrapped it."""
    for e in _chain(error):
        if isinstance(e, OSError) and e.errno:
            return e.errno
        if isinstance(e, SafetensorError) and (found := re.search(r"os error (\d+)", str(e))):
            return int(found[1])
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _advice(folder: Path, number: int) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        return f"{free / 1e6:.0f} MB are free there: make room, or keep fewer (trainer.keep)."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make the folder writable."
    return "Check the disk."
