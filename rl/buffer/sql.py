"""The durable buffer: groups of experiences in an SQL database, a file of SQLite by default.

Knows states of steps and bytes of rows, not what they mean. Invariants, whoever is killed whenever: a step is ready,
leased or trained, and changes in one transaction; rows of a complete step never change; only the holder of a lease can
acknowledge it, so of two trainers on one store at most one counts. What is SQLite's own stands in `_engine` and
`_explain`; all else is portable SQL.

Writers take the database's one write lock for the time of a transaction, readers never wait (WAL). Every commit reaches
the disk (synchronous=FULL), so that it survives a power cut as it does kill -9.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.envs.errors import UserError

from ..experience import Experience, ExperienceGroup
from .schema import VERSION, Damaged, decode, encode, unknown_version

READY, LEASED, TRAINED = "ready", "leased", "trained"

_tables = sa.MetaData()
_schema = sa.Table("harness_schema", _tables, sa.Column("version", sa.Integer, primary_key=True))
_steps = sa.Table(
    "steps",
    _tables,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("complete", sa.Boolean, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("owner", sa.Text),  # of the lease
)
_groups = sa.Table(
    "groups",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("step", sa.ForeignKey("steps.step"), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("task_key", sa.Text, nullable=False),
    sa.Column("dropped", sa.JSON, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
)
_experiences = sa.Table(
    "experiences",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("group_id", sa.ForeignKey("groups.id"), nullable=False, index=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_CHUNK = 500
"""Names in one question: databases bound the number of parameters."""


class SqlBuffer:
    """`Buffer` on one SQL store; see there for what each method promises. Threads may share one.

    Groups of a step come back sorted by name, whoever put them first, so that training does not depend on which
    episode ended when. Methods raise UserError where the store cannot be written or read, having changed nothing.
    """

    def __init__(self, url: str, *, lock_seconds: float = 30.0) -> None:
        """url: an SQLAlchemy SQLite URL of a file, made where it is missing (its folder is not).

        lock_seconds: how long to wait for other writers before giving up.
        """
        self.url = url
        self._engine = _engine(url, lock_seconds)
        self._file = self._engine.url.database
        self._owner = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex})"
        try:
            with self._write() as db:
                _schema.create(db, checkfirst=True)
                version = db.scalar(sa.select(_schema.c.version))
                if version is None:
                    db.execute(sa.insert(_schema).values(version=VERSION))
                elif version != VERSION:
                    raise unknown_version(version)
                _tables.create_all(db)
        except BaseException:
            self.close()
            raise

    def put(self, step: int, groups: Sequence[ExperienceGroup]) -> None:
        """As promised by `Buffer`; a group is stored whole, once: one of the same name is left alone.

        Raises ValueError where a group is new but the step is already complete: nobody would train on it.
        """
        with self._write() as db:
            complete = db.scalar(sa.select(_steps.c.complete).where(_steps.c.step == step))
            if complete is None:
                db.execute(sa.insert(_steps).values(step=step, complete=False, state=READY))
            stored = _known(db, _groups.c.name, [g.group for g in groups])
            fresh = {g.group: g for g in reversed(groups) if g.group not in stored}
            if fresh and complete:
                raise ValueError(f"step {step} is complete, so it cannot take new groups: {sorted(fresh)[:3]}")
            if fresh:
                _insert(db, step, list(reversed(fresh.values())))

    def complete(self, step: int) -> None:
        with self._write() as db:
            if not db.execute(sa.update(_steps).where(_steps.c.step == step).values(complete=True)).rowcount:
                db.execute(sa.insert(_steps).values(step=step, complete=True, state=READY))

    def completed(self) -> int:
        with self._read() as db:
            query = sa.select(_steps.c.step).where(_steps.c.complete).order_by(_steps.c.step)
            count = 0
            for step in db.scalars(query):
                if step != count:
                    break
                count += 1
            return count

    def groups_of(self, step: int) -> set[str]:
        with self._read() as db:
            return set(db.scalars(sa.select(_groups.c.name).where(_groups.c.step == step)))

    def take(self, step: int) -> list[ExperienceGroup] | None:
        """As promised by `Buffer`; taking again what is leased to this very object gives it again.

        Raises ValueError where `step` has been trained on, and UserError where another trainer holds it (`rewind`
        ends that lease), or where a stored row is damaged (it is named).
        """
        with self._write() as db:
            found = db.execute(sa.select(_steps).where(_steps.c.step == step)).first()
            if found is None or not found.complete:
                return None
            if found.state == TRAINED:
                raise ValueError(f"step {step} has been trained on already")
            if found.state == LEASED and found.owner != self._owner:
                raise UserError(
                    f"{self._file}: step {step} is being trained on by another trainer, {found.owner}. Two trainers "
                    "cannot share one run: stop this one, or, where the other is gone, resume the run."
                )
            leased = {"state": LEASED, "owner": self._owner}
            db.execute(sa.update(_steps).where(_steps.c.step == step).values(leased))
        return self._stored(step)

    def _stored(self, step: int) -> list[ExperienceGroup]:
        groups = sa.select(_groups).where(_groups.c.step == step).order_by(_groups.c.name)
        rows = sa.select(_experiences.c.group_id, _experiences.c.key, _experiences.c.data).join(_groups)
        rows = rows.where(_groups.c.step == step).order_by(_experiences.c.group_id, _experiences.c.id)
        found: dict[int, list[Experience]] = defaultdict(list)
        with self._read() as db:
            heads = db.execute(groups).all()
            for group_id, key, data in db.execute(rows, execution_options={"yield_per": _CHUNK}):
                found[group_id].append(self._decode(step, key, data))
        for head in heads:
            if len(found[head.id]) != head.size:
                had = f"had {head.size} experiences and now has {len(found[head.id])}"
                raise self._damaged(f"group '{head.name}' of step {step} {had}")
        return [
            ExperienceGroup(
                group=head.name, task_key=head.task_key, experiences=tuple(found[head.id]), dropped=head.dropped
            )
            for head in heads
        ]

    def _decode(self, step: int, key: str, data: bytes) -> Experience:
        try:
            return decode(data)
        except Damaged as e:
            raise self._damaged(f"experience '{key}' of step {step} is damaged: {e}") from e

    def acknowledge(self, step: int) -> None:
        """As promised by `Buffer`; raises ValueError too where this object holds no lease on `step`."""
        mine = sa.and_(_steps.c.step == step, _steps.c.state == LEASED, _steps.c.owner == self._owner)
        with self._write() as db:
            if not db.execute(sa.update(_steps).where(mine).values(state=TRAINED, owner=None)).rowcount:
                state = db.scalar(sa.select(_steps.c.state).where(_steps.c.step == step))
                why = "has been acknowledged already" if state == TRAINED else "is not leased to this trainer"
                raise ValueError(f"step {step} {why}")

    def rewind(self, step: int) -> int:
        """As promised by `Buffer`: the number of steps, leased or trained, that are ready again.

        Complete steps before `step` are in the checkpoint, so they count as trained, even where a kill came between
        the checkpoint and `acknowledge`. Ends every lease: a trainer that lives on can acknowledge nothing.
        """
        later = sa.and_(_steps.c.step >= step, _steps.c.state != READY)
        earlier = sa.and_(_steps.c.step < step, _steps.c.complete)
        with self._write() as db:
            db.execute(sa.update(_steps).where(earlier).values(state=TRAINED, owner=None))
            return db.execute(sa.update(_steps).where(later).values(state=READY, owner=None)).rowcount

    def counts(self) -> dict[str, int]:
        """As promised by `Buffer`; ready are also those of steps that are not complete yet."""
        query = sa.select(_steps.c.state, sa.func.sum(_groups.c.size)).join(_groups).group_by(_steps.c.state)
        with self._read() as db:
            return {READY: 0, LEASED: 0, TRAINED: 0} | {state: int(n) for state, n in db.execute(query)}

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._explained(), self._engine.execution_options(begin="BEGIN IMMEDIATE").begin() as db:
            yield db

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._explained(), self._engine.begin() as db:
            yield db

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as e:
            if explained := _explain(e, self._file):
                raise explained from e
            raise

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self._file}: {what}. Put back a copy of the file, or start a new run from the last checkpoint: "
            "checkpoints are not affected."
        )


def _known(db: Connection, column: sa.Column[str], names: Sequence[str]) -> set[str]:
    """Those of `names` that are in the column."""
    known: set[str] = set()
    for i in range(0, len(names), _CHUNK):
        known.update(db.scalars(sa.select(column).where(column.in_(names[i : i + _CHUNK]))))
    return known


def _insert(db: Connection, step: int, groups: Sequence[ExperienceGroup]) -> None:
    taken = _known(db, _experiences.c.key, [e.key for g in groups for e in g.experiences])
    fresh: dict[str, list[Experience]] = {g.group: [] for g in groups}
    for group in groups:
        for e in group.experiences:
            if e.key not in taken:
                taken.add(e.key)
                fresh[group.group].append(e)
    heads = [
        {"step": step, "name": g.group, "task_key": g.task_key, "dropped": dict(g.dropped), "size": len(fresh[g.group])}
        for g in groups
    ]
    ids = {name: id_ for id_, name in db.execute(sa.insert(_groups).returning(_groups.c.id, _groups.c.name), heads)}
    rows = ((ids[name], e) for name, es in fresh.items() for e in es)
    while chunk := [{"group_id": i, "key": e.key, "data": encode(e)} for i, e in islice(rows, _CHUNK)]:
        db.execute(sa.insert(_experiences), chunk)


def _engine(url: str, lock_seconds: float) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as e:
        raise UserError(f"buffer.url: '{url}' is not a database URL such as sqlite:////path/buffer.db") from e
    if parsed.get_backend_name() != "sqlite":
        raise UserError(
            f"buffer.url: '{url}' is not SQLite, the one database supported; e.g. sqlite:////path/buffer.db"
        )
    if parsed.database in (None, "", ":memory:") or parsed.query.get("mode") == "memory":
        raise UserError(f"buffer.url: '{url}' lives in memory and would not survive the process; name a file")
    engine = sa.create_engine(parsed, connect_args={"timeout": lock_seconds})

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say so, not where the driver guesses
        deadline = time.monotonic() + lock_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as e:
                # SQLite's own waiting does not cover the switch to WAL, in which two processes may meet.
                if not e.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


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


def _explain(error: DBAPIError, file: str | None) -> UserError | None:
    """A mistake that a person can mend, or None; SQLite's extended codes begin with the name of the plain one."""
    name = getattr(error.orig, "sqlite_errorname", "")
    for prefix, text in _EXPLANATIONS.items():
        if name.startswith(prefix):
            return UserError(f"{file}: {text} ({error.orig})")
    return None
