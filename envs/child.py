"""One child process that answers questions, one at a time, and is killed when it is late.

Knows neither worlds nor grading: messages are plain values (msgpack, never pickle), over a socket of their own, so
that whatever the child prints goes to stderr and harms nobody. Invariant: a child that was late, that died, or whose
question was cancelled is dead once `ask` returns; it never answers the next question with the last one's answer.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgpack
import numpy as np

_HEAD = struct.Struct("!I")


class ChildLate(Exception):
    """No answer within the deadline; the child was killed."""


class ChildDied(Exception):
    """The child is gone; the message says how it ended."""


class Child:
    """`python -m module ARGUMENTS... FD`, started at once. Use either `ask` or `ask_async` at a time."""

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """`env` goes on top of this process's environment."""
        mine, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", module, *arguments, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # prints of the child must not mix with this process's output
                pass_fds=(theirs.fileno(),),
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,  # Ctrl-C is the parent's to handle; a kill reaches grandchildren too
            )
        self._socket = mine
        # Also run when nobody holds this child any more, and at the interpreter's exit.
        self._end = weakref.finalize(self, _end, self._process, mine, os.getpid())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: Any, seconds: float) -> Any:
        """Send a message and wait for the answer. Raises ChildLate, ChildDied."""
        deadline = time.monotonic() + seconds
        with self._answering(seconds):
            self._socket.settimeout(seconds)
            self._socket.sendall(packed(message))
            (size,) = _HEAD.unpack(self._read(_HEAD.size, deadline))
            return _unpacked(self._read(size, deadline))

    async def ask_async(self, message: Any, seconds: float) -> Any:
        """The same without blocking the event loop; a cancelled question kills the child."""
        loop = asyncio.get_running_loop()
        with self._answering(seconds):
            self._socket.setblocking(False)
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(self._socket, packed(message))
                (size,) = _HEAD.unpack(await self._read_async(loop, _HEAD.size))
                body = await self._read_async(loop, size)
            return _unpacked(body)

    @contextmanager
    def _answering(self, seconds: float) -> Iterator[None]:
        """A question under way: a child that does not answer it as it should is ended, and the reason said."""
        try:
            yield
        except TimeoutError:
            self.kill()
            raise ChildLate(f"no answer within {seconds:g} s") from None
        except OSError:
            raise self._died() from None
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it and whatever it started, now; harmless when repeated."""
        self._end()

    def _read(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)

    async def _read_async(self, loop: asyncio.AbstractEventLoop, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = await loop.sock_recv(self._socket, min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError
            parts += part
        return bytes(parts)

    def _died(self) -> ChildDied:
        try:
            code = self._process.wait(timeout=1.0)  # the socket closes a moment before the process is gone
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        if code is None:
            return ChildDied("process closed its connection")
        if code < 0:
            return ChildDied(f"process was killed by signal {signal.Signals(-code).name}")
        return ChildDied(f"process exited with code {code}")


def _end(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner's process exits; the child is not its own
        return
    connection.close()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # its session's group has the same number
    except (ProcessLookupError, PermissionError):  # already gone (macOS says PermissionError for a zombie)
        process.kill()
    process.wait()


def serve(answer: Callable[[Any], bytes], fd: int) -> None:
    """The child's side: answers (`packed`) what comes in on the socket `fd` until the parent closes it or dies.

    Reading happens in a thread of its own, so that a child stuck in `answer` still ends when its parent is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as connection:
        questions: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def listen() -> None:
            try:
                with connection.makefile("rb") as stream:
                    while head := stream.read(_HEAD.size):
                        body = stream.read(_HEAD.unpack(head)[0])
                        questions.put(_unpacked(body))
            except ConnectionResetError:  # it died with an answer unread
                pass
            finally:
                os._exit(0)

        threading.Thread(target=listen, daemon=True).start()
        while True:
            said = answer(questions.get())
            with suppress(BrokenPipeError):  # nobody listens any more, and `listen` ends us
                connection.sendall(said)


def packed(message: Any) -> bytes:
    """A message as it is sent. Raises TypeError on what is not plain data, OverflowError on huge whole numbers."""
    body: bytes = msgpack.packb(message, default=_plain, unicode_errors="surrogatepass")
    return _HEAD.pack(len(body)) + body


def _unpacked(body: bytes) -> Any:
    return msgpack.unpackb(body, strict_map_key=False, unicode_errors="surrogatepass")


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Sequence):
        return list(value)
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"{type(value).__name__} is not plain data (text, numbers, lists, mappings)")
