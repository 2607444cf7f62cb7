"""The buffer on a Redis server: redis://HOST:PORT/DB?run=NAME (rediss:// with TLS).

Every change is an entry of one stream, and every process that holds the buffer replays the stream into a ledger of its
own: all reach the same state, because the ledger is a function of the entries alone, and what a change gave is known
once it has come back in the stream. Bodies stand beside it, one key each. Where the stream has grown longer than the
ledger, whoever notices writes its ledger down and cuts the stream off there. Invariants: a body is there before the
entry that speaks of it (one transaction); an entry sent twice, because the answer to the first was lost, counts once;
what is cut off is in the ledger that was written down with it (one transaction).
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgpack
import redis
from redis.exceptions import NoPermissionError

from harness.envs.errors import UserError

from ..config import BufferConfig
from .base import BufferFull
from .ledger import Head, Ledger, Terms
from .memory import BooksBuffer
from .patience import OPENING, RUNNING, until_it_answers
from .schema import VERSION, unknown_version

T = TypeVar("T")

_PAGE = 1000
"""Entries that are replayed at once."""
_LONG = 4096
"""Entries, beyond one for each group, at which the stream is cut off."""


class RedisBooks:
    """Books on a server, and the replica that this process keeps of them."""

    def __init__(self, url: str, patience: float) -> None:
        plain, run = _split(url)
        self._where = _without_secrets(url)
        self._patience = min(OPENING, patience)
        self._key = f"harness:{{{run}}}"  # in braces: one slot of a cluster
        self._ledger = Ledger(self._where)
        self._log, self._written = f"{self._key}:log", f"{self._key}:written"
        self._seen = b"0-0"
        self._last: dict[str, int] = {}  # number of each owner's last entry
        self._outcomes: dict[int, Callable[[], Any]] = {}  # of our own entries, by number
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        try:
            self._redis = redis.Redis.from_url(plain, socket_connect_timeout=5.0, socket_timeout=30.0)
        except ValueError as error:
            raise UserError(f"buffer.url: {self._where}: {error}") from error
        self._schema = self._retried(self._open)
        self._patience = patience
        if self._schema.split()[0] != str(VERSION).encode():
            raise unknown_version(self._schema.split()[0].decode())

    def _open(self) -> bytes:
        _check(self._redis, self._where)
        self._redis.set(f"{self._key}:schema", f"{VERSION} {uuid.uuid4().hex}", nx=True)
        schema: Any = self._redis.get(f"{self._key}:schema")
        return bytes(schema)

    def change(self, terms: Terms, method: str, args: Sequence[Any], bodies: Mapping[str, bytes]) -> Any:
        with self._lock:
            number = next(self._numbers)
            entry = msgpack.packb((terms.owner, number, asdict(terms), method, [_plain(a) for a in args]))
            self._retried(lambda: self._send(terms.owner, entry, bodies))
            unused = set(bodies)
            try:
                result = self._outcomes.pop(number, self._missed)()
                if method == "put":
                    unused -= set(result)
                elif method == "acknowledge":
                    unused = set(result)
            finally:
                if unused:
                    self._retried(lambda: self._redis.delete(*map(self._body, unused)))
            return result

    def look(self, terms: Terms, method: str, args: Sequence[Any]) -> Any:
        with self._lock:
            self._retried(lambda: self._send(terms.owner, None, {}))
            return getattr(self._ledger, method)(terms, *args)

    def bodies(self, keys: Sequence[str]) -> list[bytes]:
        found: Any = self._retried(lambda: self._redis.mget([self._body(k) for k in keys])) if keys else []
        if None in found:
            raise UserError(f"{self._where}: bodies of groups are missing; did somebody delete keys? Start a new run.")
        return list(found)

    def close(self) -> None:
        self._redis.close()

    def _body(self, key: str) -> str:
        return f"{self._key}:body:{key}"

    def _send(self, owner: str, entry: bytes | None, bodies: Mapping[str, bytes]) -> None:
        """Append the entry, with its bodies, and replay up to the end."""
        while True:
            pipe = self._redis.pipeline(transaction=True)
            if entry is not None:
                for key, body in bodies.items():
                    pipe.set(self._body(key), body)
                pipe.xadd(self._log, {b"e": entry})
                entry = None
            pipe.get(f"{self._key}:schema")
            pipe.hget(self._written, "last")
            pipe.xlen(self._log)
            pipe.xrange(self._log, min=b"(" + self._seen, count=_PAGE)
            *_, schema, last, length, entries = pipe.execute()
            if schema != self._schema:
                raise UserError(f"{self._where}: the server has lost what it held. Resume the run from its checkpoint.")
            if last is not None and _order(last) > _order(self._seen):
                self._catch_up()
                continue
            for id_, fields in entries:
                self._seen = id_
                self._replay(owner, fields[b"e"])
            if len(entries) < _PAGE:
                if length > _LONG + len(self._ledger):
                    self._cut_off()
                return

    def _catch_up(self) -> None:
        """Begin anew with the ledger that was written down: entries after ours have been cut off."""
        written: Any = self._redis.hgetall(self._written)
        dumped = msgpack.unpackb(written[b"ledger"], strict_map_key=False)
        self._ledger = Ledger.load(self._where, dumped)
        self._last, self._seen = msgpack.unpackb(written[b"numbers"]), written[b"last"]

    def _cut_off(self) -> None:
        """Write the ledger down, and drop the entries that it is made of."""
        written = {
            "last": self._seen,
            "numbers": msgpack.packb(self._last),
            "ledger": msgpack.packb(self._ledger.dump()),
        }
        time, number = _order(self._seen)

        def change(pipe: Any) -> None:
            last = pipe.hget(self._written, "last")
            pipe.multi()
            if last is None or _order(last) < _order(self._seen):
                pipe.hset(self._written, mapping=written)
                pipe.xtrim(self._log, minid=f"{time}-{number + 1}", approximate=False)

        self._redis.transaction(change, self._written)

    def _missed(self) -> Any:
        raise UserError(f"{self._where}: the server is too busy to follow. Resume the run from its checkpoint.")

    def _replay(self, owner: str, entry: bytes) -> None:
        """Apply one entry, and keep what came of it where it is ours."""
        of, number, terms, method, args = msgpack.unpackb(entry, strict_map_key=False)
        if number <= self._last.get(of, 0):
            return
        self._last[of] = number
        if method == "put":
            args = [[Head.load(h) for h in args[0]]]
        try:
            result = getattr(self._ledger, method)(Terms(**terms), *args)
        except (BufferFull, UserError, ValueError) as error:  # for whoever asked; nothing has changed
            outcome = partial(_raise, error)
        else:
            outcome = partial(_return, result)
        if of == owner:
            self._outcomes[number] = outcome

    def _retried(self, action: Callable[[], T]) -> T:
        with self._explained():
            return until_it_answers(action, _gone, self._patience)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (redis.AuthenticationError, NoPermissionError) as error:
            raise UserError(f"{self._where}: user or password are not accepted ({error}).") from error
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise UserError(
                f"{self._where}: no Redis server answers ({error}). Start it, or mend buffer.url, then resume the run."
            ) from error
        except redis.RedisError as error:
            raise UserError(
                f"{self._where}: the server does not take it ({error}). Give it memory or disk, then resume the run. "
                "Nothing that was stored before is lost."
            ) from error


class RedisBuffer(BooksBuffer):
    """See the module. Raises UserError where the server does not answer or would lose what it is given."""

    def __init__(
        self, url: str, config: BufferConfig, *, staleness: int | None = None, patience: float = RUNNING
    ) -> None:
        """patience: seconds that a server may be gone before it is given up."""
        super().__init__(RedisBooks(url, patience), config, staleness)


def _gone(error: Exception) -> bool:
    """There was no answer, and one may come later. (The client calls a wrong password a lost connection too.)"""
    silent = isinstance(error, redis.ConnectionError | redis.TimeoutError | redis.BusyLoadingError)
    return silent and not isinstance(error, redis.AuthenticationError)


def _raise(error: Exception) -> Any:
    raise error


def _return(result: Any) -> Any:
    return result


def _plain(argument: Any) -> Any:
    heads = isinstance(argument, list) and argument and isinstance(argument[0], Head)
    return [asdict(h) for h in argument] if heads else argument


def _order(id_: bytes) -> tuple[int, int]:
    """Of a stream's entry: its time and number."""
    time, _, number = id_.partition(b"-")
    return int(time), int(number)


def _check(server: Any, where: str) -> None:
    """Refuse a server that would forget: without a log on disk, or one that throws keys away."""
    persistence = server.info("persistence")
    if persistence.get("loading"):  # while it reads its log it says that it keeps none
        raise redis.BusyLoadingError(f"{where} is starting")
    if not persistence.get("aof_enabled"):
        raise UserError(
            f"{where}: this server keeps nothing on disk, so experiences would not survive it. Start it with "
            "`redis-server --appendonly yes --appendfsync always`."
        )
    if server.info("memory").get("maxmemory_policy", "noeviction") != "noeviction":
        raise UserError(f"{where}: this server deletes keys when memory is short; set `maxmemory-policy noeviction`.")


def _split(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    run = query.pop("run", "")
    if not run:
        raise UserError(f"buffer.url: {_without_secrets(url)}: say which run it is for: ...?run=NAME")
    return urlunsplit(parts._replace(query=urlencode(query))), run


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
