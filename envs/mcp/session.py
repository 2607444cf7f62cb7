"""Talking to MCP servers: the one file that imports the client.

Knows declarations, tools and calls; not tasks, not grading. Each session lives in an asyncio task of its own, on one
background loop of the process, because a server that dies over HTTP cancels the task it is used in. Invariant: every
call comes back within its deadline, as a result, a late notice, or the server's death; a dead or closed session
leaves no process behind.

| what the server does                      | what the caller gets                                    |
|-------------------------------------------|---------------------------------------------------------|
| answers, or says that the tool failed     | Result                                                  |
| is late, and still answers to other asks  | Result, an error: the tool is slow, the agent may go on |
| is late, and answers to nothing           | WorldTimeout; the session is ended                      |
| exits, closes, breaks the protocol        | WorldError; the session is ended                        |
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import anyio

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

from ..errors import WorldError, WorldTimeout, one_line
from .servers import Secrets, Server

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.types import CallToolResult

    Asked = tuple[Callable[[Client], Awaitable[Any]], Future[Any]]

ALIVE_SECONDS = 3.0
"""What a server that was late with a call may take to list its tools, before it counts as hanging."""
GRACE_SECONDS = 2.0
"""On top of a call's own deadline, before the session itself is given up."""
END_SECONDS = 10.0
"""What ending a session may take: a server is asked, then told, then killed."""
STDERR_BYTES = 2000
"""Of a dead server's last words, what is looked at for the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call gave."""

    text: str
    error: bool
    """The tool says that it failed, or it was late."""


class Session:
    """One running server. Opened by the constructor; methods may be called from any thread but the background loop's.

    `target` is a declaration with everything filled in, or a server object of this process. Raises WorldError or
    WorldTimeout where it does not start within `start_seconds`.
    """

    def __init__(
        self, name: str, target: Server | MCPServer, secrets: Secrets, *, start_seconds: float, call_seconds: float
    ) -> None:
        self.name = name
        self._target, self._secrets = target, secrets
        self._call_seconds = call_seconds
        self._words: IO[str] | None = None
        self._ended = threading.Event()
        self._ready: Future[list[dict[str, Any]]] = Future()
        self._current: Future[Any] | None = None
        self._loop = _background()
        self._asked: asyncio.Queue[Asked | None] = asyncio.Queue()
        self._scope: anyio.CancelScope | None = None
        self._given_up = False
        self._task: Future[None] = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        _OPEN.add(self)
        try:
            self.tools = self._ready.result(start_seconds)
        except FutureTimeout:
            self.close(wait=False)
            raise WorldTimeout(f"the MCP server '{name}' did not start within {start_seconds:g} s") from None
        except WorldError:
            self.close(wait=False)
            raise

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool. Raises WorldError where the server is gone, WorldTimeout where it hangs."""

        async def ask(client: Client) -> Result:
            try:
                return self._result(await client.call_tool(name, dict(arguments), self._call_seconds))
            except MCPError as error:
                if error.code == REQUEST_TIMEOUT:
                    return await self._late(client, name)
                if error.code == CONNECTION_CLOSED:
                    raise
                return Result(text=self._secrets.hide(error.message), error=True)

        answer: Future[Result] = Future()
        self._loop.call_soon_threadsafe(self._asked.put_nowait, (ask, answer))
        if self._ended.is_set():  # it may have ended before the question was seen
            self._fail(answer)
        try:
            return answer.result(self._call_seconds + ALIVE_SECONDS + GRACE_SECONDS)
        except FutureTimeout:
            self.close(wait=False)
            raise WorldTimeout(self._hangs(name)) from None
        except WorldError:
            self.close(wait=False)
            raise

    def close(self, *, wait: bool = True) -> None:
        """End the server; harmless when repeated. With `wait`, it is gone when this returns."""
        if not self._ended.is_set():
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._asked.put_nowait, None)
                if self._current is not None or not self._ready.done():
                    self._loop.call_soon_threadsafe(self._give_up)
        if wait:
            self._ended.wait(END_SECONDS)

    # -- in the background loop -------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        why: BaseException | None = None
        try:
            with anyio.CancelScope() as self._scope:
                if self._given_up:
                    self._scope.cancel()
                async with self._connected() as client:
                    self._ready.set_result(await _listed(client))
                    while (asked := await self._asked.get()) is not None:
                        await self._answer(client, *asked)
        except BaseException as error:  # the task's boundary: over HTTP a crash comes as CancelledError, then a group
            why = error
        finally:
            self._ended.set()
            _OPEN.discard(self)
            self._fail(self._ready, why)
            while not self._asked.empty():
                if (asked := self._asked.get_nowait()) is not None:
                    self._fail(asked[1], why)
            if self._words is not None:
                self._words.close()

    def _give_up(self) -> None:
        """Stop waiting. By anyio's scope, not by cancelling the task: a server is stopped in a shield which only the
        former respects."""
        self._given_up = True
        if self._scope is not None:
            self._scope.cancel()

    async def _answer(self, client: Client, ask: Callable[[Client], Awaitable[Any]], answer: Future[Any]) -> None:
        self._current = answer
        try:
            _settle(answer, result=await ask(client))
        except BaseException as error:  # said at once: stopping the server takes longer than anybody should wait
            self._fail(answer, error)
            raise
        finally:
            self._current = None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        target = self._target
        if not isinstance(target, Server):
            async with Client(target, cache=None) as client:
                yield client
        elif target.url:
            async with create_mcp_http_client(headers=dict(target.headers)) as http:
                transport = streamable_http_client(target.url, http_client=http)
                async with Client(transport, cache=None) as client:
                    yield client
        else:
            # What a server says beside the protocol is kept for the reason of its death, and shown nowhere else.
            self._words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - _serve closes
            program, *arguments = target.command
            parameters = StdioServerParameters(
                command=program, args=arguments, env=dict(target.env), cwd=target.cwd or None
            )
            async with Client(stdio_client(parameters, self._words), cache=None) as client:
                yield client

    async def _late(self, client: Client, name: str) -> Result:
        """Whether the tool is slow or the server hangs."""
        try:
            with anyio.fail_after(ALIVE_SECONDS):
                await _listed(client)
        except (TimeoutError, MCPError):
            raise WorldTimeout(self._hangs(name)) from None
        return Result(text=f"{name} did not answer within {self._call_seconds:g} s", error=True)

    def _hangs(self, tool: str) -> str:
        return f"the MCP server '{self.name}' hangs: no answer to {tool} within {self._call_seconds:g} s"

    def _result(self, result: CallToolResult) -> Result:
        parts = [block.text if block.type == "text" else f"[{block.type} left out]" for block in result.content or ()]
        if not parts and result.structured_content is not None:
            parts = [json.dumps(result.structured_content, ensure_ascii=False, sort_keys=True)]
        return Result(text=self._secrets.hide("\n".join(parts)), error=bool(result.is_error))

    def _fail(self, waiting: Future[Any], why: BaseException | None = None) -> None:
        _settle(waiting, error=why if isinstance(why, WorldTimeout) else WorldError(self._reason(why)))

    def _reason(self, why: BaseException | None) -> str:
        """One line on why the server is gone, without secrets."""
        text = f"the MCP server '{self.name}' is gone"
        while isinstance(why, BaseExceptionGroup):
            why = why.exceptions[0]
        if why is not None and not isinstance(why, asyncio.CancelledError):
            text += f": {one_line(why)}"
        if self._words is not None and not self._words.closed:
            size = os.fstat(self._words.fileno()).st_size
            start = max(0, size - STDERR_BYTES)
            said = os.pread(self._words.fileno(), STDERR_BYTES, start).decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "")
            text += f" (its last words: {last[:300]})" if last else ""
        return self._secrets.hide(text)


def _settle(waiting: Future[Any], *, result: Any = None, error: BaseException | None = None) -> None:
    if waiting.done():  # nobody waits any more
        return
    if error is None:
        waiting.set_result(result)
    else:
        waiting.set_exception(error)


async def _listed(client: Client) -> list[dict[str, Any]]:
    """The server's tools, each with name, description and parameters."""
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(100):  # a server whose list has no end gets no further
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += [
            {
                "name": tool.name,
                "description": (tool.description or tool.title or "").strip(),
                "parameters": dict(tool.input_schema),
            }
            for tool in page.tools
        ]
        if (cursor := page.next_cursor) is None:
            break
    return tools


_OPEN: set[Session] = set()
"""Sessions whose server may be running."""
_LOCK = threading.Lock()
_LOOP: tuple[int, asyncio.AbstractEventLoop] | None = None


def _background() -> asyncio.AbstractEventLoop:
    """This process's loop for all sessions, in a thread of its own; made at first use, and anew after a fork."""
    global _LOOP
    with _LOCK:
        if _LOOP is None or _LOOP[0] != os.getpid():
            logging.getLogger("mcp").propagate = False  # it logs what servers write, which may hold secrets
            logging.getLogger("mcp").addHandler(logging.NullHandler())
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
            _OPEN.clear()
            _LOOP = os.getpid(), loop
            atexit.register(_close_all)
        return _LOOP[1]


def _close_all() -> None:
    """At the exit of the process: no server stays behind."""
    left = list(_OPEN)
    for session in left:
        session.close(wait=False)
    for session in left:
        session.close()
