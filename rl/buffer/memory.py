"""Buffers in memory: groups live as long as the process that holds them, and are gone with it.

Knows where books and bodies are kept, not what the books say (`ledger`). Bodies are the bytes that every other buffer
stores, so that nobody can change what was put, and memory is what the bodies weigh.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from harness.envs.errors import UserError

from ..config import BufferConfig
from ..experience import Experience, ExperienceGroup
from .base import by_name
from .lagged import finite, settled, unrewarded
from .ledger import Head, Ledger, Taken, Terms
from .schema import decode, encode


class Books(Protocol):
    """A ledger and the bodies that it speaks of, wherever they are."""

    def change(self, terms: Terms, method: str, args: Sequence[Any], bodies: Mapping[str, bytes]) -> Any:
        """The ledger's method; of `bodies`, those stay that it takes into use."""

    def look(self, terms: Terms, method: str, args: Sequence[Any]) -> Any:
        """A method of the ledger that changes nothing."""

    def bodies(self, keys: Sequence[str]) -> list[bytes]: ...

    def close(self) -> None: ...


class BooksBuffer:
    """`Buffer` on books; see there for what each method promises. Threads may share one."""

    def __init__(self, books: Books, config: BufferConfig, staleness: int | None) -> None:
        owner = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex})"
        self._terms = Terms.of(owner, config, staleness)
        self._books = books
        self._numbers = itertools.count()

    def put(self, groups: Sequence[ExperienceGroup]) -> None:
        unique = {g.group: g for g in reversed(groups)}
        heads, bodies = [], {}
        for group in reversed(unique.values()):
            key = f"{self._terms.owner} {next(self._numbers)}"
            bodies[key] = encode(group)
            heads.append(Head.of(group, key, self._terms.weights, time.time()))
        self._books.change(self._terms, "put", (heads,), bodies)

    def room(self) -> int:
        return int(self._look("room"))

    def stored(self, names: Sequence[str]) -> set[str]:
        return set(self._look("stored", list(names)))

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        if not self._look("promising", time.time(), step, count):
            return None
        taken: Taken | None = self._change("take", time.time(), step, count, version)
        return None if taken is None else sorted(self._read(taken), key=by_name)

    def _read(self, taken: Taken) -> list[ExperienceGroup]:
        bodies = self._books.bodies([body for _, body, _, _ in taken])
        return [settled(decode(b), rewards) for b, (_, _, _, rewards) in zip(bodies, taken, strict=True)]

    def names(self) -> list[str]:
        return list(self._look("names"))

    def read(self, names: Sequence[str]) -> list[ExperienceGroup]:
        return self._read(self._look("read", list(names)))

    def acknowledge(self, step: int) -> None:
        self._change("acknowledge", step)

    def rewind(self, step: int) -> int:
        return int(self._change("rewind", step))

    def reward(self, key: str, value: float) -> bool:
        return bool(self._change("reward", key, finite(value)))

    def awaited(self, count: int) -> list[Experience]:
        taken: Taken = self._look("awaited", count)
        bodies = self._books.bodies([body for _, body, _, _ in taken])
        return [e for b, (_, _, _, r) in zip(bodies, taken, strict=True) for e in unrewarded(decode(b), r)]

    def expire(self) -> int:
        return int(self._change("expire", time.time()))

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        self._change("update_priorities", {name: dict(values) for name, values in utilities.items()})

    def counts(self) -> dict[str, int]:
        return dict(self._look("counts"))

    def dropped(self) -> int:
        return int(self._look("dropped"))

    def close(self) -> None:
        self._books.close()

    def _change(self, method: str, *args: Any) -> Any:
        return self._books.change(self._terms, method, args, {})

    def _look(self, method: str, *args: Any) -> Any:
        return self._books.look(self._terms, method, args)


class MemoryBooks:
    """Books in this process."""

    def __init__(self, where: str) -> None:
        self._ledger = Ledger(where)
        self._bodies: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def change(self, terms: Terms, method: str, args: Sequence[Any], bodies: Mapping[str, bytes]) -> Any:
        with self._lock:
            result = getattr(self._ledger, method)(terms, *args)
            if method == "put":
                self._bodies.update((key, bodies[key]) for key in result)
            elif method == "acknowledge":
                for key in result:
                    del self._bodies[key]
            return result

    def look(self, terms: Terms, method: str, args: Sequence[Any]) -> Any:
        with self._lock:
            return getattr(self._ledger, method)(terms, *args)

    def bodies(self, keys: Sequence[str]) -> list[bytes]:
        return [self._bodies[key] for key in keys]

    def close(self) -> None:
        """They are let go when nobody holds them any more."""


_OPEN: WeakValueDictionary[str, MemoryBooks] = WeakValueDictionary()
_OPENING = threading.Lock()


class MemoryBuffer(BooksBuffer):
    """A queue in this process: memory://NAME. Whoever opens the same name shares it, as long as one is open."""

    def __init__(self, url: str, config: BufferConfig, *, staleness: int | None = None) -> None:
        name = url.removeprefix("memory://")
        if not name:
            raise UserError("buffer.url: 'memory://' needs a name that explorer and trainer share: memory://NAME")
        with _OPENING:
            books = _OPEN.get(name) or MemoryBooks(url)
            _OPEN[name] = books
        super().__init__(books, config, staleness)
