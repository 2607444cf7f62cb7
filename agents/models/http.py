"""Calls of one HTTP server: a connection for each that is in flight, kept open for the next.

Own code, since every turn of every episode is such a call and a general client takes three times the CPU for it
(`benchmarks/eval.py --parts 2` plays through both); what an answer is and where it ends is llhttp's business. Knows
nothing of models. Invariant: a connection has one call at a time, and one whose call was cancelled, failed or said
more than it was asked is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httptools

from harness.envs.errors import UserError

PORTS = {"http": 80, "https": 443}


class Server:
    """Takes requests with JSON in them. All calls come from one event loop.

    The proxy is the one that the environment names for `url` (`HTTPS_PROXY`, `NO_PROXY` and so on). Raises UserError
    on an address that is none.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = _address(url, "an endpoint")
        if self._url.username is not None:
            raise UserError(f"{url}: a name or password in an endpoint's address would be ignored.")
        proxy = None if proxy_bypass(self._url.netloc) else getproxies().get(self._url.scheme)
        self._proxy = None if proxy is None else _address(proxy if "://" in proxy else f"http://{proxy}", "a proxy")
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        lines = {"Host": self._url.netloc, "Content-Type": "application/json", **headers}
        self._prefix = self._url.path.rstrip("/")
        if self._proxy is not None and self._tls is None:  # a proxy that reads along is told the whole address
            self._prefix = f"http://{self._url.netloc}{self._prefix}"
            lines |= _to_proxy(self._proxy)
        if not all((name + value).isprintable() and value.isascii() for name, value in lines.items()):
            raise UserError(f"a header for {self._url.netloc} has a line break or a letter that no header may have.")
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises OSError (ConnectionError, TLS and name resolution among it)."""
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        request = head.encode("ascii") + body
        while self._idle:
            try:
                return await self._ask(self._idle.pop(), request)
            except _WasClosed:  # between two calls, as servers may: no word of the request was heard
                continue
        return await self._ask(await self._connect(), request)

    async def close(self) -> None:
        """Break off all connections."""
        for connection in list(self._open):
            connection.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # transports tell their protocols in the loop's next round

    async def _ask(self, connection: _Connection, request: bytes) -> tuple[int, bytes]:
        try:
            answer = await connection.ask(request)
        except BaseException:
            connection.transport.abort()
            raise
        if connection.kept:
            self._idle.append(connection)
        else:
            connection.transport.abort()
        return answer

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        to = self._proxy or self._url
        tls = self._tls if self._proxy is None else ssl.create_default_context() if to.scheme == "https" else None
        host, port = str(to.hostname), to.port or PORTS[to.scheme]
        _, connection = await loop.create_connection(lambda: _Connection(self._open), host, port, ssl=tls)
        if self._proxy is None or self._tls is None:
            return connection
        behind = f"{self._url.hostname}:{self._url.port or PORTS['https']}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in _to_proxy(self._proxy).items())
        status, _ = await connection.ask(f"CONNECT {behind} HTTP/1.1\r\nHost: {behind}\r\n{lines}\r\n".encode())
        if status != 200:
            connection.transport.abort()
            raise ConnectionError(f"the proxy {host}:{port} answered {status}")
        through = _Connection(self._open)
        transport = await loop.start_tls(
            connection.transport, through, self._tls, server_hostname=str(self._url.hostname)
        )
        assert transport is not None
        through.connection_made(transport)
        return through


class _WasClosed(ConnectionError):
    """The server had closed a kept connection before a call was made on it."""


class _Connection(asyncio.Protocol):
    """One call at a time. Its `on_` methods are llhttp's."""

    transport: asyncio.Transport
    kept = False
    """The last answer leaves the connection open for the next call."""

    def __init__(self, everyone: set[_Connection]) -> None:
        self._everyone = everyone
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._everyone.add(self)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        if self.transport.is_closing():
            raise _WasClosed
        self._calls += 1
        self._parts: list[bytes] = []
        self._heard = self._begun = self.kept = False
        self._parser = httptools.HttpResponseParser(self)
        self._tunnel = request.startswith(b"CONNECT")
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.transport.abort()  # nothing was asked
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ConnectionError(f"what it answers is no HTTP ({error})"))

    def on_headers_complete(self) -> None:
        self._begun, self.kept = True, self._parser.should_keep_alive()
        if self._tunnel:
            self._end()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # those below only announce the answer
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._everyone.discard(self)
        if self._answer is None:
            return
        if self._begun and error is None and not self.kept:
            self._end()  # an answer without a length ends with the connection
        else:
            why = "it closed the connection before it had answered"
            lost = _WasClosed if self._calls > 1 and not self._heard else ConnectionError
            self._end(lost(str(error or why)))

    def _end(self, error: Exception | None = None) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():  # given up meanwhile
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result((self._parser.get_status_code(), b"".join(self._parts)))


def _address(url: str, what: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        good = parts.scheme in PORTS and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise UserError(f"'{url}' is no address of {what}; write http://host:port or https://host.")
    return parts


def _to_proxy(proxy: SplitResult) -> dict[str, str]:
    """Header by which a proxy knows who asks."""
    if proxy.username is None:
        return {}
    who = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(who.encode()).decode()}"}
