"""What is SQLite's own in the SQL buffer: how it is opened, locked and written, and what its faults mean.

Writers take the database's one write lock for the time of a transaction, readers never wait (WAL). A durable commit
reaches the disk with all before it (synchronous=FULL), so that it survives a power cut as every one does kill -9.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError

from harness.envs.errors import UserError

from .database import Database


class Sqlite(Database):
    """On one file, made where it is missing (its folder is not)."""

    def __init__(self, url: URL, lock_seconds: float) -> None:
        if url.database in (None, "", ":memory:") or url.query.get("mode") == "memory":
            raise UserError(
                f"buffer.url: '{url}' lives in memory and would not survive the process; name a file, or say "
                "memory://NAME where that is meant"
            )
        self.where = str(url.database)
        self.engine = sa.create_engine(url, connect_args={"timeout": lock_seconds})
        sa.event.listen(self.engine, "connect", self._set_up)
        sa.event.listen(self.engine, "begin", self._begin)
        self._writers = {
            durable: self.engine.execution_options(begin="BEGIN IMMEDIATE", durable=durable)
            for durable in (False, True)
        }
        self._lock_seconds = lock_seconds

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Connection]:
        with self._writers[durable].begin() as db:
            yield db

    def insert(self, table: sa.Table, unique: str) -> Any:
        return insert(table).on_conflict_do_nothing(index_elements=[unique])

    def explain(self, error: DBAPIError) -> str | None:
        name = getattr(error.orig, "sqlite_errorname", "")  # an extended code begins with the name of the plain one
        return next((text for prefix, text in _EXPLANATIONS.items() if name.startswith(prefix)), None)

    def _set_up(self, connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say so, not where the driver guesses
        deadline = time.monotonic() + self._lock_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as e:
                # SQLite's own waiting does not cover the switch to WAL, in which two processes may meet.
                if not e.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @staticmethod
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if "durable" in options:
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if options['durable'] else 'NORMAL'}")
        connection.exec_driver_sql(options.get("begin", "BEGIN"))


_KEPT = "Nothing that was stored before is lost."
_EXPLANATIONS = {
    "SQLITE_FULL": f"there is no room left to write it. Free some space, then resume the run. {_KEPT}",
    "SQLITE_IOERR": "the disk did not take or give its bytes (full, over quota, or failing). Make room or move the run "
    f"to another disk, then resume it. {_KEPT}",
    "SQLITE_READONLY": f"it cannot be written. Give write permission to the file and its folder. {_KEPT}",
    "SQLITE_CANTOPEN": "it cannot be opened. Its folder must exist and be writable.",
    "SQLITE_BUSY": f"another process has held it locked for too long. End that process, then resume the run. {_KEPT}",
    "SQLITE_CORRUPT": "the file is damaged. Put back a copy, or start a new run from the last checkpoint.",
    "SQLITE_NOTADB": "this is not an SQLite file. Name another in buffer.url.",
}
