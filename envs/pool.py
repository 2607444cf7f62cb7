"""A few child processes that answer questions for all threads of this one: graders, generators.

Knows `Child` and nothing of what is asked. Invariant: a question is bounded in time, and a child that was late or died
is replaced before the next question.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from .child import Child, ChildDied, ChildLate

_POOLS: weakref.WeakSet[ChildPool] = weakref.WeakSet()


class ChildPool:
    """At most `workers` processes `python -m module`; each starts when it is first needed.

    Their first question is an empty list, answered once they are ready, within `start_seconds`.
    """

    def __init__(
        self, module: str, *, workers: int, start_seconds: float, env: Mapping[str, str] | None = None
    ) -> None:
        """`env` goes on top of this process's environment."""
        self._module, self._workers, self._start, self._env = module, workers, start_seconds, env
        self.forget()
        _POOLS.add(self)

    def forget(self) -> None:
        """Start anew, without touching the processes there were: they belong to the parent after a fork."""
        self._idle: list[Child] = []
        self._ready: set[Child] = set()  # have answered, and answer at once
        self._slots = threading.Semaphore(self._workers)
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether a process has started, so that a question waits for none to start."""
        return bool(self._ready)

    def warm(self) -> None:
        """Wait until one has. Raises ChildLate, ChildDied."""
        if not self.ready:
            self.ask([], self._start)

    def ask(self, message: Any, seconds: float) -> Any:
        """Raises ChildLate, ChildDied. Waits for a free process as long as it takes: each answer is bounded."""
        with self._slots:
            with self._lock:
                child = self._idle.pop() if self._idle else self._new()
            try:
                if child not in self._ready:
                    child.ask([], self._start)
                    self._ready.add(child)
                answer = child.ask(message, seconds)
            except (ChildLate, ChildDied):
                self._ready.discard(child)
                with self._lock:
                    self._idle.insert(0, self._new())  # starts while others work; used last
                raise
            with self._lock:
                self._idle.append(child)
            return answer

    def close(self) -> None:
        """End all that wait for a question; harmless when repeated."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                self._ready.discard(child)
                child.kill()

    def _new(self) -> Child:
        return Child(self._module, env=self._env)


def _all(what: str) -> None:
    for pool in list(_POOLS):
        getattr(pool, what)()


atexit.register(_all, "close")
os.register_at_fork(after_in_child=lambda: _all("forget"))
