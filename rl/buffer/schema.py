"""How an experience becomes bytes: msgpack with raw array bytes, a version and a checksum. Nothing is ever unpickled.

A row is the msgpack array [version, crc32 of body, body]; version 1's body is a msgpack map with Experience's field
names, arrays as little-endian bytes of the types in `ARRAYS`. Invariant: what does not read back exactly is refused,
never guessed. Tuples inside `lineage` come back as lists.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from zlib import crc32

import msgpack
import numpy as np

from harness.envs.errors import UserError

from ..experience import Experience

VERSION = 1
"""Of rows and tables together; raised whenever either changes."""

ARRAYS = {"tokens": "<i4", "mask": "|b1", "logprobs": "<f4", "advantages": "<f4"}
_NAMES = {f.name for f in fields(Experience)}


class Damaged(Exception):
    """Bytes that are not what `encode` made; the message says why."""


def encode(experience: Experience) -> bytes:
    """Raises ValueError where lineage holds what is no plain value (text, numbers, None, lists and mappings)."""
    body: dict[str, Any] = {name: getattr(experience, name) for name in _NAMES}
    for name, dtype in ARRAYS.items():
        if body[name] is not None:
            body[name] = body[name].astype(dtype, copy=False).tobytes()
    body["metrics"] = {name: float(value) for name, value in experience.metrics.items()}
    body["lineage"] = dict(experience.lineage)
    try:
        packed = msgpack.packb(body)
    except (TypeError, OverflowError) as e:
        raise ValueError(f"{experience.key}: lineage holds what cannot be stored: {e}") from e
    row: bytes = msgpack.packb((VERSION, crc32(packed), packed))
    return row


def decode(row: bytes) -> Experience:
    """The experience, in arrays of its own. Raises Damaged, and UserError for another version's row."""
    try:
        version, checksum, packed = msgpack.unpackb(row)
    except (ValueError, TypeError, msgpack.UnpackException) as e:
        raise Damaged(f"not a row at all ({type(e).__name__})") from e
    if version != VERSION:
        raise unknown_version(version)
    if not isinstance(packed, bytes) or crc32(packed) != checksum:
        raise Damaged("its checksum differs")
    body = msgpack.unpackb(packed)
    if body.keys() != _NAMES:
        raise Damaged(f"its fields are {sorted(body)}")
    for name, dtype in ARRAYS.items():
        if body[name] is not None:
            body[name] = np.frombuffer(body[name], dtype).astype(dtype[1:])  # a writable copy, in this machine's order
    body["versions"] = tuple(body["versions"])
    return Experience(**body)


def unknown_version(version: object) -> UserError:
    """What to say about a store or a row of another version."""
    return UserError(
        f"experiences were stored in schema version {version}, and this harness reads version {VERSION}. "
        "Go on with the harness that wrote them, or start a new run; checkpoints are not affected."
    )
