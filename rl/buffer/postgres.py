"""What is PostgreSQL's own in the SQL buffer: postgresql://USER:PASSWORD@HOST/DATABASE?run=NAME.

Each run has a schema of its own, named after it. Writers take one advisory lock for the time of a transaction, so that
they meet as they do in SQLite; readers never wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from harness.envs.errors import UserError

from .database import Database


class Postgres(Database):
    """In one schema, made where it is missing (the database is not)."""

    def __init__(self, url: URL, lock_seconds: float) -> None:
        query = dict(url.query)
        run = str(query.pop("run", ""))
        self.where = f"{url.host or 'local'}/{url.database}"
        if not run:
            raise UserError(f"buffer.url: postgresql://{self.where}: say which run it is for: ...?run=NAME")
        self._schema = schema_name(run)
        self._lock = crc32(self._schema.encode())
        options = f"-csearch_path={self._schema} -clock_timeout={int(lock_seconds * 1000)} -csynchronous_commit=on"
        try:
            self.engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg", query=query),
                connect_args={"options": options, "connect_timeout": 5, "application_name": "harness"},
                pool_pre_ping=True,
            )
        except ModuleNotFoundError as error:
            raise UserError(f"{self.where}: {error}. Install the driver: pip install 'harness[postgres]'") from error

    def prepare(self, db: Connection) -> None:
        db.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Connection]:
        """Always durable: a server may end while the processes that use it go on."""
        with self.engine.begin() as db:
            db.execute(sa.select(sa.func.pg_advisory_xact_lock(self._lock)))
            yield db

    def insert(self, table: sa.Table, unique: str) -> Any:
        return insert(table).on_conflict_do_nothing(index_elements=[unique])

    def gone(self, error: Exception) -> bool:
        """No answer at all, or that of a server which is going down or coming up."""
        if not isinstance(error, OperationalError | InterfaceError):
            return False
        state = getattr(error.orig, "sqlstate", None)
        # What is refused while connecting comes as text alone.
        return str(state).startswith(("08", "57P")) or (state is None and _refusal(error) is None)

    def explain(self, error: DBAPIError) -> str | None:
        state = getattr(error.orig, "sqlstate", None)
        if state is None and isinstance(error, OperationalError | InterfaceError):
            refused = "the server refuses the connection. Mend buffer.url (user, password, database)."
            silent = "no PostgreSQL server answers. Start it, or mend buffer.url, then resume the run."
            return refused if _refusal(error) else silent
        found = (text for prefix, text in _EXPLANATIONS.items() if str(state).startswith(prefix))
        return next(found, None)


def _refusal(error: DBAPIError) -> str | None:
    """Why a server that runs does not take a connection, or None where none runs."""
    return next((t for t in str(error.orig).splitlines() if "FATAL" in t and "the database system is" not in t), None)


_KEPT = "Nothing that was stored before is lost."
_EXPLANATIONS = {
    "28": "user or password are not accepted. Mend buffer.url.",
    "3D": "there is no such database. Make it, or mend buffer.url.",
    "42501": "this user may not make or write the tables of a run. Give it the rights.",
    "53": f"the server is out of disk, memory or connections. Make room, then resume the run. {_KEPT}",
    "55P03": f"another process has held the lock for too long. End that process, then resume the run. {_KEPT}",
    "57P": f"the server is going down or coming up. Resume the run when it is there. {_KEPT}",
    "58": f"the server's disk does not take or give its bytes. Make room, then resume the run. {_KEPT}",
    "25006": f"the server is read-only. {_KEPT}",
}
"""Beginning of an SQLSTATE -> what to do."""


def schema_name(run: str) -> str:
    """A schema for a run: its name in small letters, with a checksum where that loses anything.

    >>> schema_name("alfworld-1"), schema_name("alfworld_1")
    ('harness_alfworld_1_dc2f7d49', 'harness_alfworld_1')
    """
    plain = re.sub(r"[^a-z0-9_]", "_", run.lower())[:40]
    return f"harness_{plain}" + (f"_{crc32(run.encode()):08x}" if plain != run else "")
