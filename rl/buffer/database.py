"""One SQL database, opened: transactions that outlast a server which is started again, and faults in plain words.

Knows how to begin and repeat a transaction, not what is in it; what is one database's own stands in its file (see
`DATABASES`). Invariant: a transaction whose outcome is not known is done again, so each must come to the same when it
is done twice.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.envs.errors import UnknownName, UserError

from .patience import RUNNING, until_it_answers

T = TypeVar("T")
P = ParamSpec("P")

DATABASES = {"sqlite": "harness.rl.buffer.sqlite:Sqlite", "postgresql": "harness.rl.buffer.postgres:Postgres"}
"""Name in a URL -> class, called with (URL, seconds to wait for a lock)."""


class Database(ABC):
    """What all kinds share."""

    engine: Engine
    where: str
    """For messages; without secrets."""
    patience = RUNNING
    """Seconds that its server may be gone."""

    def prepare(self, db: Connection) -> None:  # noqa: B027  (most need nothing)
        """Make what tables need, before they are made."""

    @abstractmethod
    def write(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """A transaction beside which there is no other that writes; where it need not be durable, a power cut may undo
        it, but no transaction before it."""

    @abstractmethod
    def insert(self, table: sa.Table, unique: str) -> Any:
        """An insert that leaves rows alone whose value in the column `unique` is there already."""

    @abstractmethod
    def explain(self, error: DBAPIError) -> str | None:
        """What a person can do about it, or None."""

    def gone(self, error: Exception) -> bool:
        """There was no answer, and one may come later."""
        return False

    def run(self, job: Callable[[Connection], T], *, write: bool = True, durable: bool = True) -> T:
        """What `job` returns, in one transaction. Raises UserError where the database does not take it."""

        def once() -> T:
            with self.write(durable=durable) if write else self.engine.begin() as db:
                return job(db)

        try:
            return until_it_answers(once, self.gone, self.patience)
        except DBAPIError as error:
            if explained := self.explain(error):
                raise UserError(f"{self.where}: {explained} ({str(error.orig).strip()})") from error
            raise


def transaction(
    *, write: bool = True, durable: bool = True
) -> Callable[[Callable[Concatenate[Any, Connection, P], T]], Callable[Concatenate[Any, P], T]]:
    """Makes a method (self, connection, ...) one transaction on `self.database`, called without the connection."""

    def decorate(method: Callable[Concatenate[Any, Connection, P], T]) -> Callable[Concatenate[Any, P], T]:
        def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            database: Database = self.database
            return database.run(lambda db: method(self, db, *args, **kwargs), write=write, durable=durable)

        update_wrapper(run, method)
        return run

    return decorate


def open_database(url: str, lock_seconds: float) -> Database:
    """Raises UserError where the URL names none."""
    try:
        parsed = make_url(url)
    except ArgumentError as e:
        raise UserError(f"buffer.url: '{url}' is not a database URL such as sqlite:////path/buffer.db") from e
    if (name := parsed.get_backend_name()) not in DATABASES:
        raise UnknownName("database", name, DATABASES, hint="In buffer.url.")
    module, _, cls = DATABASES[name].partition(":")
    opened: Database = getattr(importlib.import_module(module), cls)(parsed, lock_seconds)
    return opened
