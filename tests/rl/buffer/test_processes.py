"""Four writers and two readers in processes of their own, killed in mid-put, on every durable kind; lost servers."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from servers import Postgres, Redis, Server

from harness.envs.errors import UserError
from harness.rl.buffer.base import STATES, Buffer
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig
from harness.rl.experience import ExperienceGroup

pytest.importorskip("redis", reason="needs the extra [redis]")
pytest.importorskip("psycopg", reason="needs the extra [postgres]")
from harness.rl.buffer import redis as redis_buffer
from harness.rl.buffer.redis import RedisBuffer
from harness.rl.buffer.sql import SqlBuffer

PLAYERS = Path(__file__).with_name("players.py")
WRITERS, READERS, SLOTS = 4, 2, 40
STEPS = SLOTS // 2


def start(role: str, folder: Path, url: str, share: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(PLAYERS), role, str(folder), url, "never", share])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "redis"])
def test_many_writers_and_readers_lose_and_repeat_nothing(
    kind: str, tmp_path: Path, new_url: Callable[[str], str]
) -> None:
    """Writers are killed in the middle and started again; the store is bounded, so that they also wait for room."""
    url, chance = new_url(kind), random.Random(kind)
    writers = {i: start("writer", tmp_path, url, f"{i},{WRITERS},{SLOTS}") for i in range(WRITERS)}
    readers = [start("reader", tmp_path, url, f"{i},{READERS},{STEPS}") for i in range(READERS)]
    buffer = open_buffer(url, BufferConfig())
    kills = 0
    while any(r.poll() is None for r in readers):
        if kills < 3 and len(buffer.stored([str(i) for i in range(SLOTS)])) > 10 * kills:
            victim = chance.choice([i for i, w in writers.items()])
            writers[victim].kill()
            kills += 1
        for i, w in writers.items():
            if w.poll() is not None and w.returncode != 0:
                assert w.returncode == -signal.SIGKILL
                writers[i] = start("writer", tmp_path, url, f"{i},{WRITERS},{SLOTS}")
        if all(w.poll() == 0 for w in writers.values()):  # one that gave way to a full store has left a slot out
            stored = buffer.stored([str(i) for i in range(SLOTS)])
            for i in {int(n) % WRITERS for n in map(str, range(SLOTS)) if n not in stored}:
                writers[i] = start("writer", tmp_path, url, f"{i},{WRITERS},{SLOTS}")
        time.sleep(0.02)
    assert [r.returncode for r in readers] == [0, 0]
    assert [w.wait(60) for w in writers.values()] == [0] * WRITERS
    lines = [line.split() for i in range(READERS) for line in (tmp_path / f"read{i}").read_text().splitlines()]
    assert sorted(int(name) for name, _ in lines) == list(range(SLOTS))
    assert {size for _, size in lines} == {"8"}
    returned = {n for i in range(WRITERS) for n in (tmp_path / f"journal{i}").read_text().split()}
    assert returned <= {name for name, _ in lines}
    assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": SLOTS * 8}
    buffer.close()


@pytest.mark.parametrize("kind", [Postgres, Redis])
def test_a_server_that_is_killed_and_comes_back_has_lost_nothing(
    kind: type[Server], serve: Callable[..., Server], make: Any
) -> None:
    server = serve(kind)
    url = f"{server.url}{'&' if '?' in server.url else '?'}run=a"
    opened = SqlBuffer if kind is Postgres else RedisBuffer
    buffer: Buffer = opened(url, BufferConfig())
    buffer.put([make.group("0"), make.group("1")])
    buffer.take(0, 1, 0)
    server.stop(signal.SIGKILL)
    back = threading.Timer(0.5, server.start)
    back.start()
    buffer.put([make.group("2")])  # waits for it
    back.join()
    buffer.acknowledge(0)
    server.stop(signal.SIGKILL)
    server.start()
    with pytest.raises(ValueError, match="acknowledged already"):
        buffer.acknowledge(0)
    found = buffer.take(1, 2, 0)
    assert found is not None
    assert [g.group for g in found] == ["1", "2"]
    buffer.close()
    server.stop(signal.SIGKILL)
    with pytest.raises(UserError, match=r"no (PostgreSQL|Redis) server answers.*resume the run"):
        opened(url, BufferConfig(), patience=0.1)


def test_an_acknowledgement_whose_answer_was_lost_counts_once(new_url: Callable[[str], str], make: Any) -> None:
    """The transaction was made, and the connection broke before that was told: it is done again."""
    buffer = SqlBuffer(new_url("postgresql"))
    buffer.put([make.group("0")])
    buffer.take(0, 1, 0)
    lost = []

    def lose(connection: Any) -> None:
        if not lost:
            lost.append(True)
            raw = connection.connection.dbapi_connection
            raw.commit()
            raw.close()

    sa.event.listen(buffer.database.engine, "commit", lose)
    buffer.acknowledge(0)
    assert lost
    assert buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": 1}
    buffer.close()


def test_a_redis_server_that_would_forget_is_refused(serve: Callable[..., Server]) -> None:
    forgetful = serve(Redis, "--save", "")
    with pytest.raises(UserError, match="--appendonly yes"):
        open_buffer(f"{forgetful.url}?run=a", BufferConfig())


def test_a_redis_server_that_still_reads_its_log_is_waited_for(serve: Callable[..., Server], make: Any) -> None:
    """Meanwhile it answers what it is asked about itself, and says that it keeps no log."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    server = serve(Redis)
    url = f"{server.url}?run=a"
    buffer = open_buffer(url, BufferConfig())
    buffer.put([make.group("0")])
    buffer.close()
    at_once = Retry(NoBackoff(), 0)  # the client would wait for so long that the log is read
    with redis.Redis.from_url(server.url, retry=at_once) as client, client.pipeline() as log:
        for _ in range(20_000):  # it looks at its connections once in 1024
            log.set("other", 0)
        log.execute()
        server.stop(signal.SIGKILL)
        server.command += ["--key-load-delay", "100"]  # microseconds an entry
        starting = threading.Thread(target=server.start)
        starting.start()
        while True:
            try:
                loading = client.info("persistence")["loading"]
                break
            except redis.ConnectionError:
                time.sleep(0.01)
    buffer = open_buffer(url, BufferConfig())
    starting.join()
    assert loading
    assert buffer.counts()["ready"] == 1
    buffer.close()


def test_a_full_redis_server_says_so_and_loses_nothing(redis_url: str, make: Any) -> None:
    import redis

    buffer = open_buffer(f"{redis_url}?run=full", BufferConfig())
    buffer.put([make.group("0")])
    with redis.Redis.from_url(redis_url) as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(UserError, match="does not take it"):
                buffer.put([make.group("1", length=1000)])
        finally:
            client.config_set("maxmemory", "0")
    assert buffer.stored(["0", "1"]) == {"0"}
    buffer.put([make.group("1")])
    assert buffer.stored(["0", "1"]) == {"0", "1"}
    buffer.close()


def test_the_stream_of_a_redis_server_does_not_grow_for_ever(
    redis_url: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off where it has grown longer than what it says; who was behind, and who comes, read the rest."""
    import redis

    monkeypatch.setattr(redis_buffer, "_LONG", 20)
    monkeypatch.setattr(redis_buffer, "_PAGE", 7)
    url, config = f"{redis_url}?run=long", BufferConfig(keep=0)
    buffer, behind = open_buffer(url, config), open_buffer(url, config)
    behind.put([make.group("late", rewards=[None, 1.0])])
    for step in range(60):
        buffer.put([make.group(f"{step}/0")])
        assert names(buffer.take(step, 1, 0)) == [f"{step}/0"]
        buffer.acknowledge(step)
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("harness:{long}:log") <= 20 + 61 + 3
        assert len(client.keys("harness:{long}:body:*")) == 1
    assert behind.reward("late#0.0", 0.5)
    fresh = open_buffer(url, config)
    for other in (behind, fresh):
        assert other.counts() == buffer.counts() == dict.fromkeys(STATES, 0) | {"trained": 60, "ready": 2}
        assert other.stored(["0/0", "59/0", "60/0"]) == {"0/0", "59/0"}
    with pytest.raises(ValueError, match="acknowledged already"):
        fresh.acknowledge(59)
    (late,) = fresh.take(60, 1, 0) or []
    assert [e.reward for e in late.experiences] == [0.5, 1.0]
    for opened in (buffer, behind, fresh):
        opened.close()


def names(groups: list[ExperienceGroup] | None) -> list[str] | None:
    return None if groups is None else [g.group for g in groups]


def test_a_redis_server_that_lost_what_it_held_is_noticed(redis_url: str, make: Any) -> None:
    import redis

    buffer = open_buffer(f"{redis_url}?run=lost", BufferConfig())
    buffer.put([make.group("0")])
    with redis.Redis.from_url(redis_url) as client:
        client.delete(*client.keys("harness:{lost}*"))
    with pytest.raises(UserError, match="has lost what it held"):
        buffer.take(0, 1, 0)
    buffer.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://127.0.0.1:1/0?run=a", "no Redis server answers"),
        ("postgresql://nobody:secret@127.0.0.1:1/db?run=a", "no PostgreSQL server answers"),
        ("redis://127.0.0.1:1/0", r"\?run=NAME"),
        ("postgresql://127.0.0.1:1/db", r"\?run=NAME"),
        ("memory://", "needs a name"),
        ("ray://", "needs a name"),
    ],
)
def test_a_url_that_does_not_answer_is_told_without_its_secrets(url: str, message: str) -> None:
    opened = {"redis": RedisBuffer, "postgresql": SqlBuffer}.get(url.partition(":")[0])
    with pytest.raises(UserError, match=message) as told:
        opened(url, BufferConfig(), patience=0.1) if opened else open_buffer(url, BufferConfig())
    assert "secret" not in str(told.value)


def test_another_schema_version_is_refused_on_servers(new_url: Callable[[str], str]) -> None:
    import redis

    address = new_url("redis")
    server, _, run = address.partition("?run=")
    with redis.Redis.from_url(server) as client:
        client.set(f"harness:{{{run}}}:schema", "7 x")
    with pytest.raises(UserError, match="schema version 7"):
        open_buffer(address, BufferConfig())
    address = new_url("postgresql")
    first = SqlBuffer(address)
    with first.database.write() as db:
        db.execute(sa.text("UPDATE harness_schema SET version = 7"))
    first.close()
    with pytest.raises(UserError, match="schema version 7"):
        open_buffer(address, BufferConfig())
