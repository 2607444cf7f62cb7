"""What disks and people do to an SQLite file."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from harness.envs.errors import UserError
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.config import BufferConfig


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'buffer.db'}"


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[SqlBuffer]:
    made = SqlBuffer(url(tmp_path), lock_seconds=0.2)
    yield made
    made.close()


def names(groups: list[Any] | None) -> list[str] | None:
    return None if groups is None else [g.group for g in groups]


def test_hot_statements_use_indexes_only(tmp_path: Path, make: Any) -> None:
    buffer = SqlBuffer(url(tmp_path), BufferConfig(bound=4, reward_seconds=60.0), staleness=1)
    seen: set[tuple[str, Any]] = set()

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            seen.add((statement, parameters))

    sa.event.listen(buffer.database.engine, "before_cursor_execute", note)
    buffer.put([make.group("0"), make.group("1", rewards=[None])])
    buffer.room()
    buffer.stored(["0", "5"])
    buffer.reward("1#0.0", 1.0)
    buffer.take(0, 2, 0)
    buffer.acknowledge(0)
    buffer.expire()
    buffer.close()
    assert len(seen) >= 18
    db = sqlite3.connect(tmp_path / "buffer.db")
    plans = {s: str(db.execute(f"EXPLAIN QUERY PLAN {s}", p).fetchall()) for s, p in seen}
    db.close()
    # The subquery that bounds a count is read whole, and is itself an index search.
    assert not {s: plan for s, plan in plans.items() if "SCAN" in plan.replace("SCAN anon_1", "")}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("mysql://host/db", "unknown database 'mysql'"),
        ("buffer.db", "not a database URL"),
        ("sqlite:////no/such/folder/buffer.db", "folder must exist"),
    ],
)
def test_a_url_that_cannot_serve_is_refused(bad: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SqlBuffer(bad)


def test_a_file_that_is_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "buffer.db").write_bytes(b"a diary, and a long one" * 100)
    with pytest.raises(UserError, match="not an SQLite file"):
        SqlBuffer(url(tmp_path))
    assert (tmp_path / "buffer.db").read_bytes() == b"a diary, and a long one" * 100


def test_a_store_of_another_version_is_refused(tmp_path: Path, buffer: SqlBuffer) -> None:
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        db.execute("UPDATE harness_schema SET version = 7")
    db.close()
    with pytest.raises(UserError, match="schema version 7"):
        SqlBuffer(url(tmp_path))


def test_a_damaged_row_is_named(tmp_path: Path, buffer: SqlBuffer, make: Any) -> None:
    buffer.put([make.group("a", 2), make.group("b", 2)])
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        db.execute("UPDATE bodies SET data = substr(data, 1, 40) WHERE group_id = 2")
    with pytest.raises(UserError, match=r"buffer\.db: group 'b' is damaged"):
        buffer.take(0, 2, 0)
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        db.execute("UPDATE bodies SET data = (SELECT data FROM bodies WHERE group_id = 1) WHERE group_id = 2")
    db.close()
    with pytest.raises(UserError, match="group 'b' is damaged: it is another one"):
        buffer.take(0, 2, 0)


def test_a_read_only_store_says_so(tmp_path: Path, buffer: SqlBuffer, make: Any) -> None:
    buffer.put([make.group("a")])
    reader = SqlBuffer(f"sqlite:///file:{tmp_path / 'buffer.db'}?mode=ro&uri=true")
    assert reader.stored(["a"]) == {"a"}
    with pytest.raises(UserError, match="write permission"):
        reader.put([make.group("b")])
    reader.close()


def test_a_locked_store_says_so_and_goes_on_afterwards(tmp_path: Path, buffer: SqlBuffer, make: Any) -> None:
    holder = sqlite3.connect(tmp_path / "buffer.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="locked for too long"):
        buffer.put([make.group("a")])
    assert buffer.stored(["a"]) == set()  # readers do not wait
    assert buffer.take(0, 1, 0) is None
    holder.execute("ROLLBACK")
    holder.close()
    buffer.put([make.group("a")])
    assert buffer.stored(["a"]) == {"a"}


def test_a_full_database_says_so_and_loses_nothing(tmp_path: Path, buffer: SqlBuffer, make: Any) -> None:
    buffer.put([make.group("a")])

    def shrink(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    full = SqlBuffer(url(tmp_path))
    sa.event.listen(full.database.engine, "connect", shrink)
    full.close()  # the next connection is the small one
    with pytest.raises(UserError, match="no room left"):
        full.put([make.group("b"), make.group("c", length=100_000)])
    assert full.stored(["a", "b", "c"]) == {"a"}
    full.put([make.group("b")])
    full.close()
    buffer.put([make.group("c", length=100_000)])
    assert buffer.stored(["a", "b", "c"]) == {"a", "b", "c"}


def test_a_disk_that_takes_no_more_says_so_and_loses_nothing(tmp_path: Path, buffer: SqlBuffer, make: Any) -> None:
    buffer.put([make.group("a")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        with pytest.raises(UserError, match="Make room"):
            buffer.put([make.group("b", length=1_000_000)])
        assert buffer.stored(["a", "b"]) == {"a"}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    buffer.put([make.group("b", length=1_000_000)])
    assert names(buffer.take(0, 2, 0)) == ["a", "b"]
