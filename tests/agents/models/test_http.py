"""The HTTP client against servers that do what servers do: keep, close, announce, cut off, hang, tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from harness.agents.models.http import Server
from harness.envs.errors import UserError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def heard(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body. Raises IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


def against(talk: Talk, ask: Callable[[Server], Awaitable[None]], path: str = "/v1") -> int:
    """Run `ask` with a client of a server that talks as `talk` does. Returns how many connections were made."""
    made = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def go() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        client = Server(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", {"X-Key": "k"})
        try:
            await ask(client)
        finally:
            await client.close()
            server.close()
            await server.wait_closed()

    asyncio.run(go())
    return made


def saying(*answers: bytes, close: bool = False) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await heard(reader)
            writer.write(answer)
            await writer.drain()
        if not close:
            await reader.read()

    return talk


def test_calls_in_turn_share_a_connection_and_calls_at_once_do_not() -> None:
    async def ask(client: Server) -> None:
        for _ in range(3):
            assert await client.post("/chat", b"{}") == (200, b"hi")
        assert await asyncio.gather(*(client.post("/chat", b"{}") for _ in range(3))) == [(200, b"hi")] * 3

    assert against(saying(*[OK] * 9), ask) == 3


def test_what_is_sent() -> None:
    requests: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await heard(reader))
        writer.write(OK)

    async def ask(client: Server) -> None:
        await client.post("/chat", b'{"a":1}')

    against(talk, ask, path="/v1/")
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    line, *lines = head.split(b"\r\n")
    assert line == b"POST /v1/chat HTTP/1.1"
    assert {b"X-Key: k", b"Content-Type: application/json", b"Content-Length: 7"} <= {*lines}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ],
    ids=["in chunks", "announced", "until the end", "an old server"],
)
def test_where_an_answer_ends(answer: bytes) -> None:
    async def ask(client: Server) -> None:
        assert await client.post("/chat", b"{}") == (200, b"hi")
        assert await client.post("/chat", b"{}") == (200, b"hi")

    against(saying(answer, close=True), ask)


def test_a_connection_that_was_closed_between_calls_is_replaced() -> None:
    async def ask(client: Server) -> None:
        for _ in range(3):
            assert await client.post("/chat", b"{}") == (200, b"hi")
            await asyncio.sleep(0.01)

    assert against(saying(OK, close=True), ask) == 3


def test_a_kept_connection_that_closes_on_the_next_call_is_replaced_once_it_said_nothing() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(OK)
        await heard(reader)  # and goes, without a word

    async def ask(client: Server) -> None:
        assert [await client.post("/chat", b"{}") for _ in range(2)] == [(200, b"hi")] * 2

    assert against(talk, ask) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "closed the connection"),
        (b"SSH-2.0\r\n\r\n", "no HTTP"),
    ],
    ids=["nothing", "cut off", "another protocol"],
)
def test_no_answer_is_a_connection_error(answer: bytes, why: str) -> None:
    async def ask(client: Server) -> None:
        with pytest.raises(ConnectionError, match=why):
            await client.post("/chat", b"{}")

    against(saying(answer, close=True), ask)


def test_a_call_that_is_given_up_takes_its_connection_with_it() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"late" in await heard(reader):
            await asyncio.sleep(0.1)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
        else:
            writer.write(OK)
        await reader.read()

    async def ask(client: Server) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.post("/late", b"{}")
        await asyncio.sleep(0.15)
        assert await client.post("/chat", b"{}") == (200, b"hi")

    assert against(talk, ask) == 2


def test_what_was_not_asked_for_ends_the_connection() -> None:
    async def ask(client: Server) -> None:
        for _ in range(2):
            assert await client.post("/chat", b"{}") == (200, b"hi")
            await asyncio.sleep(0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(OK)
        await asyncio.sleep(0.01)
        writer.write(OK.replace(b"hi", b"ho"))
        await reader.read()

    assert against(talk, ask) == 2


def test_a_proxy_is_told_the_whole_address_and_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await heard(reader))
        writer.write(OK if requests[-1].startswith(b"POST") else b"HTTP/1.1 403 No\r\n\r\n")

    async def ask(client: Server) -> None:
        port = client._url.port
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{port}")
        through = Server("http://models.test/v1", {})
        assert await through.post("/chat", b"{}") == (200, b"hi")
        await through.close()
        with pytest.raises(ConnectionError, match="answered 403"):
            await Server("https://models.test/v1", {}).post("/chat", b"{}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert Server(f"http://127.0.0.1:{port}", {})._proxy is None

    against(talk, ask)
    assert requests[0].startswith(b"POST http://models.test/v1/chat HTTP/1.1\r\nHost: models.test\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in requests[0]  # me:p@ss
    assert requests[1].startswith(b"CONNECT models.test:443 HTTP/1.1\r\nHost: models.test:443\r\n")


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a:0x", "http://a b", "a:8000", "http://me:secret@a", "http://a\r\nX: y"]
)
def test_what_is_no_address_is_the_users_to_mend(url: str) -> None:
    with pytest.raises(UserError):
        Server(url, {})


def test_a_key_with_a_line_break_is_refused() -> None:
    with pytest.raises(UserError, match="line break"):
        Server("http://a", {"Authorization": "Bearer x\r\nHost: b"})
