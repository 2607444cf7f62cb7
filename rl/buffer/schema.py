"""How a group becomes bytes: msgpack with raw array bytes, a version and a checksum. Nothing is ever unpickled.

A body is the msgpack array [version, crc32 of packed, packed]; version 2's `packed` is a msgpack map of the group's
fields, in which `experiences` is a list of maps and the arrays of all experiences stand one after the other, as
little-endian bytes of the types in `ARRAYS`. Invariant: what does not read back exactly is refused, never guessed.
Tuples inside `lineage` come back as lists. (Version 1 had one body for each experience.)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from zlib import crc32

import msgpack
import numpy as np

from harness.envs.errors import UserError

from ..experience import Experience, ExperienceGroup

VERSION = 2
"""Of bodies and tables together; raised whenever either changes."""

ARRAYS = {"tokens": "<i4", "mask": "|b1", "logprobs": "<f4", "advantages": "<f4"}
_PLAIN = tuple(f.name for f in fields(Experience) if f.name not in ARRAYS)
_HEAD = {*_PLAIN, "length", "judged"}
_BODY = {"group", "task_key", "dropped", "experiences", *ARRAYS}


class Damaged(Exception):
    """Bytes that are not what `encode` made; the message says why."""


def encode(group: ExperienceGroup) -> bytes:
    """Raises ValueError where lineage holds what is no plain value (text, numbers, None, lists and mappings)."""
    heads = []
    for e in group.experiences:
        head: dict[str, Any] = {name: getattr(e, name) for name in _PLAIN}
        head["metrics"] = {name: float(value) for name, value in e.metrics.items()}
        head["lineage"] = dict(e.lineage)
        head["length"], head["judged"] = len(e), e.advantages is not None
        heads.append(head)
    body: dict[str, Any] = {
        "group": group.group,
        "task_key": group.task_key,
        "dropped": dict(group.dropped),
        "experiences": heads,
    }
    for name, dtype in ARRAYS.items():
        arrays = [a for e in group.experiences if (a := getattr(e, name)) is not None]
        body[name] = b"".join(a.astype(dtype, copy=False).tobytes() for a in arrays)
    try:
        packed = msgpack.packb(body)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{_culprit(group)}: lineage holds what cannot be stored: {error}") from error
    stored: bytes = msgpack.packb((VERSION, crc32(packed), packed))
    return stored


def decode(stored: bytes) -> ExperienceGroup:
    """The group, in arrays of its own. Raises Damaged, and UserError for another version's bytes."""
    try:
        version, checksum, packed = msgpack.unpackb(stored)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise Damaged(f"not a body at all ({type(e).__name__})") from e
    if version != VERSION:
        raise unknown_version(version)
    if not isinstance(packed, bytes) or crc32(packed) != checksum:
        raise Damaged("its checksum differs")
    body = msgpack.unpackb(packed)
    if body.keys() != _BODY:
        raise Damaged(f"its fields are {sorted(body)}")
    # Writable copies in this machine's order, of which each experience holds its stretch.
    arrays = {name: np.frombuffer(body[name], dtype).astype(dtype[1:]) for name, dtype in ARRAYS.items()}
    experiences = []
    start = judged_start = 0
    for head in body["experiences"]:
        if head.keys() != _HEAD:
            raise Damaged(f"the fields of an experience are {sorted(head)}")
        length, judged = head.pop("length"), head.pop("judged")
        end, judged_end = start + length, judged_start + length * judged
        head["versions"] = tuple(head["versions"])
        experiences.append(
            Experience(
                **head,
                tokens=arrays["tokens"][start:end],
                mask=arrays["mask"][start:end],
                logprobs=arrays["logprobs"][start:end],
                advantages=arrays["advantages"][judged_start:judged_end] if judged else None,
            )
        )
        start, judged_start = end, judged_end
    return ExperienceGroup(
        group=body["group"], task_key=body["task_key"], dropped=body["dropped"], experiences=tuple(experiences)
    )


def _culprit(group: ExperienceGroup) -> str:
    for e in group.experiences:
        try:
            msgpack.packb(dict(e.lineage))
        except (TypeError, OverflowError):
            return e.key
    return group.group


def unknown_version(version: object) -> UserError:
    """What to say about a store or bytes of another version."""
    return UserError(
        f"experiences were stored in schema version {version}, and this harness reads version {VERSION}. "
        "Go on with the harness that wrote them, or start a new run; checkpoints are not affected."
    )
