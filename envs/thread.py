"""A thread that an event loop gives work to, and may leave behind.

Knows functions, not worlds. Invariant: each call's future is settled in the loop that asked, or given up by it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

from .errors import WorldError, one_line


class Thread:
    """A daemon thread that runs one function at a time; unlike an executor's it does not hold up the exit."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():  # given up meanwhile
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as caught:  # a future refuses to carry it
                error = WorldError(one_line(caught))
            except BaseException as caught:  # the thread's boundary: carried over to the caller
                error = caught
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._work.put(work)
        return future

    def stop(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
