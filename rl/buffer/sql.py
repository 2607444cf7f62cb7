"""The durable buffer: groups of experiences in an SQL database, a file of SQLite by default.

Knows states of groups and bytes of bodies, not what they mean; what is one database's own stands in its file (see
`DATABASES`). Invariants, whoever is killed whenever: a group changes its state in one transaction; a body never
changes; only the holder of a lease can acknowledge it, so of two trainers on one store at most one counts.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from harness.envs.errors import UnknownName, UserError

from ..config import BufferConfig
from ..experience import ExperienceGroup
from .base import EXPIRED, LEASED, READY, STALE, STATES, TRAINED, WAITING, BufferFull, by_name
from .lagged import enough, finite, missing, rewards_of, settled
from .sampling import priority, utilities_of, weights_of
from .schema import VERSION, Damaged, decode, encode, unknown_version

T = TypeVar("T")

DATABASES = {"sqlite": "harness.rl.buffer.sqlite:Sqlite", "postgresql": "harness.rl.buffer.postgres:Postgres"}
"""Name in a URL -> class of its `Database`."""


class Database(Protocol):
    """One kind of database, opened."""

    @property
    def engine(self) -> Engine: ...
    @property
    def where(self) -> str:
        """For messages; without secrets."""

    def write(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """A transaction beside which there is no other that writes; where it is not durable, a power cut may undo it,
        but no transaction before it."""

    def insert(self, table: sa.Table, unique: str) -> Any:
        """An insert that leaves rows alone whose value in the column `unique` is there already."""

    def explain(self, error: DBAPIError) -> str | None:
        """What a person can do about it, or None."""


_tables = sa.MetaData()
_schema = sa.Table("harness_schema", _tables, sa.Column("version", sa.Integer, primary_key=True))
_groups = sa.Table(
    "groups",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),  # order of arrival
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("step", sa.Integer),  # the last one that leased it or dropped it as stale
    sa.Column("oldest", sa.BigInteger),  # policy version; null where nothing was sampled
    sa.Column("size", sa.Integer, nullable=False),  # experiences
    sa.Column("uses", sa.Integer, nullable=False),
    sa.Column("priority", sa.Float, nullable=False),
    sa.Column("utilities", sa.JSON, nullable=False),
    sa.Column("open", sa.Boolean, nullable=False),  # to rewards
    sa.Column("put_at", sa.Float, nullable=False),  # seconds of the clock
)
sa.Index("groups_in_order", _groups.c.state, _groups.c.priority.desc(), _groups.c.id)
sa.Index("groups_by_age", _groups.c.state, _groups.c.oldest)
sa.Index("groups_by_step", _groups.c.step)
_bodies = sa.Table(
    "bodies",
    _tables,
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
_rewards = sa.Table(  # of groups of which one was put without
    "rewards",
    _tables,
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, primary_key=True, index=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("reward", sa.Float),
)
_steps = sa.Table(
    "steps",
    _tables,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, nullable=False, index=True),
    sa.Column("owner", sa.Text),  # of the lease
    sa.Column("until", sa.Float),  # seconds of the clock
)
_uses = sa.Table(
    "uses",
    _tables,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
)

# The statements of every take, made once: SQLAlchemy takes longer to put one together than a database to run it.
_FIRST_READY = sa.select(_groups.c.id).where(_groups.c.state == READY)
_FIRST_READY = _FIRST_READY.order_by(_groups.c.priority.desc(), _groups.c.id).limit(sa.bindparam("count"))
_COUNT_READY = sa.select(sa.func.count()).select_from(
    sa.select(_groups.c.id).where(_groups.c.state == READY).limit(sa.bindparam("count")).subquery()
)
_STEP = sa.select(_steps).where(_steps.c.step == sa.bindparam("step"))
_RUN_OUT = sa.select(_steps.c.step).where(_steps.c.state == LEASED, _steps.c.until < sa.bindparam("now"))
_RUN_OUT_OF_OTHERS = _RUN_OUT.where(_steps.c.owner != sa.bindparam("owner"))
_OF_STEP = sa.select(_uses.c.group_id).where(_uses.c.step == sa.bindparam("of_step"))
_LEASE = sa.update(_groups).where(_groups.c.id.in_(_OF_STEP))
_LEASE = _LEASE.values(state=LEASED, step=sa.bindparam("of_step"), uses=_groups.c.uses + 1, open=False)
_TRAINED = sa.update(_steps).where(_steps.c.step == sa.bindparam("of_step"), _steps.c.state == LEASED)
_TRAINED = _TRAINED.where(_steps.c.owner == sa.bindparam("leased_to")).values(state=TRAINED, owner=None, until=None)
_BODIES = sa.select(_groups.c.id, _groups.c.name, _groups.c.size, _bodies.c.data)
_BODIES = _BODIES.join(_bodies, _bodies.c.group_id == _groups.c.id, isouter=True)
_LAGGED = sa.select(_rewards.c.group_id, _rewards.c.key, _rewards.c.attempt, _rewards.c.reward)
_BODIES_OF_STEP = _BODIES.where(_groups.c.id.in_(_OF_STEP))
_LAGGED_OF_STEP = _LAGGED.where(_rewards.c.group_id.in_(_OF_STEP))

_CHUNK = 500
"""Values in one statement: databases bound the number of parameters."""


class SqlBuffer:
    """`Buffer` on one SQL store; see there for what each method promises. Threads may share one."""

    def __init__(
        self,
        url: str,
        config: BufferConfig = BufferConfig(),  # noqa: B008  (frozen)
        *,
        staleness: int | None = None,
        lock_seconds: float = 30.0,
    ) -> None:
        """url: sqlite:///FILE or postgresql://...

        lock_seconds: how long to wait for other writers before giving up. Raises UserError.
        """
        self._config, self._staleness, self._weights = config, staleness, weights_of(config)
        self._db = _database(url, lock_seconds)
        self._owner = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex})"
        self._hungry = True  # the last take gave nothing: the next one looks before it locks
        again = sa.true() if config.reuse is None else _groups.c.uses < config.reuse
        self._settled = sa.update(_groups).where(_groups.c.id.in_(_OF_STEP))
        self._settled = self._settled.values(state=sa.case((again, READY), else_=TRAINED))
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

    def put(self, groups: Sequence[ExperienceGroup]) -> None:
        unique = {g.group: g for g in reversed(groups)}
        heads, bodies, rewards = [], {}, {}
        for group in reversed(unique.values()):
            bodies[group.group] = encode(group)
            rewards[group.group] = lagged = rewards_of(group)
            heads.append(self._head(group, enough(lagged, self._config.reward_share)))
        with self._write() as db:
            insert = self._db.insert(_groups, "name").returning(_groups.c.id, _groups.c.name)
            ids = {name: id_ for chunk in _chunks(heads) for id_, name in db.execute(insert, chunk)}
            if ids and self._config.bound is not None and self._queued(db) > self._config.bound:
                raise BufferFull(f"{len(ids)} groups do not fit beneath the bound of {self._config.bound}")
            for chunk in _chunks([{"group_id": id_, "data": bodies[name]} for name, id_ in ids.items()]):
                db.execute(sa.insert(_bodies), chunk)
            lagging = [
                {"group_id": id_, "key": key, "attempt": attempt, "reward": reward}
                for name, id_ in ids.items()
                for key, (attempt, reward) in rewards[name].items()
            ]
            for chunk in _chunks(lagging):
                db.execute(sa.insert(_rewards), chunk)

    def _head(self, group: ExperienceGroup, ready: bool) -> dict[str, Any]:
        utilities = utilities_of(group) if self._weights else {}
        return {
            "name": group.group,
            "state": READY if ready else WAITING,
            "oldest": min((e.versions[0] for e in group.experiences), default=None),
            "size": len(group.experiences),
            "uses": 0,
            "priority": priority(utilities, 0, self._weights),
            "utilities": utilities,
            "open": any(e.reward is None for e in group.experiences),
            "put_at": time.time(),
        }

    def room(self) -> int:
        if self._config.bound is None:
            return sys.maxsize
        with self._read() as db:
            return max(0, self._config.bound - self._queued(db))

    def _queued(self, db: Connection) -> int:
        query = sa.select(sa.func.count()).where(_groups.c.state.in_((WAITING, READY)), _groups.c.uses == 0)
        return int(db.scalar(query) or 0)

    def stored(self, names: Sequence[str]) -> set[str]:
        with self._read() as db:
            queries = (sa.select(_groups.c.name).where(_groups.c.name.in_(chunk)) for chunk in _chunks(names))
            return {name for query in queries for name in db.scalars(query)}

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        if self._hungry and not self._promising(step, count):
            return None
        with self._write(durable=False) as db:
            self._hungry = not self._lease(db, step, count, version)
        return None if self._hungry else self._stored(step)

    def _promising(self, step: int, count: int) -> bool:
        """Whether taking may give anything; asked without the write lock by a trainer that waits, which asks often."""
        with self._read() as db:
            return (
                (db.scalar(_COUNT_READY, {"count": count}) or 0) >= count
                or db.execute(_STEP, {"step": step}).first() is not None
                or db.scalar(_RUN_OUT, {"now": time.time()}) is not None
                or db.scalar(sa.select(_groups.c.id).where(*self._overdue()).limit(1)) is not None
            )

    def _lease(self, db: Connection, step: int, count: int, version: int) -> bool:
        now = time.time()
        lease = {"state": LEASED, "owner": self._owner, "until": now + self._config.lease_seconds}
        found = db.execute(_STEP, {"step": step}).first()
        if found is not None and found.state == TRAINED:
            raise ValueError(f"step {step} has been trained on already")
        if found is not None and found.owner == self._owner:
            db.execute(sa.update(_steps).where(_steps.c.step == step).values(lease))
            return True
        if found is not None and found.until >= now:
            raise UserError(
                f"{self._db.where}: step {step} is being trained on by another trainer, {found.owner}. Two trainers "
                "cannot share one run: stop this one, or, where the other is gone, resume the run."
            )
        self._give_back(db, db.scalars(_RUN_OUT_OF_OTHERS, {"now": now, "owner": self._owner}).all())
        self._expire(db)
        self._drop_stale(db, step, version)
        ids = db.scalars(_FIRST_READY, {"count": count}).all()
        if len(ids) < count:
            return False
        for chunk in _chunks([{"step": step, "group_id": i} for i in ids]):
            db.execute(sa.insert(_uses), chunk)
        db.execute(_LEASE, {"of_step": step})
        self._prioritise(db, ids)
        db.execute(sa.insert(_steps), {"step": step, **lease})
        return True

    def _drop_stale(self, db: Connection, step: int, version: int) -> None:
        if self._staleness is not None:
            for state in (READY, WAITING):
                old = sa.and_(_groups.c.state == state, _groups.c.oldest < version - self._staleness)
                db.execute(sa.update(_groups).where(old).values(state=STALE, step=step))

    def names(self) -> list[str]:
        whole = sa.select(_groups.c.name).join(_bodies, _bodies.c.group_id == _groups.c.id)
        with self._read() as db:
            return list(db.scalars(whole.where(sa.not_(_groups.c.open)).order_by(_groups.c.id)))

    def read(self, names: Sequence[str]) -> list[ExperienceGroup]:
        found: dict[str, ExperienceGroup] = {}
        for chunk in _chunks(names):
            ids = sa.select(_groups.c.id).where(_groups.c.name.in_(chunk))
            bodies = _BODIES.where(_groups.c.id.in_(ids))
            found |= {g.group: g for g in self._decoded(bodies, _LAGGED.where(_rewards.c.group_id.in_(ids)), {})}
        return [found[name] for name in names]

    def _stored(self, step: int) -> list[ExperienceGroup]:
        return sorted(self._decoded(_BODIES_OF_STEP, _LAGGED_OF_STEP, {"of_step": step}), key=by_name)

    def _decoded(self, bodies: sa.Select[Any], lagged: sa.Select[Any], which: dict[str, Any]) -> list[ExperienceGroup]:
        rewards: defaultdict[int, dict[str, tuple[int, float | None]]] = defaultdict(dict)
        groups = []
        with self._read() as db:
            for id_, key, attempt, reward in db.execute(lagged, which):
                rewards[id_][key] = (attempt, reward)
            for id_, name, size, data in db.execute(bodies, which, execution_options={"yield_per": 50}):
                try:
                    group = decode(data or b"")
                except Damaged as e:
                    raise self._damaged(f"group '{name}' is damaged: {e}") from e
                if (group.group, len(group.experiences)) != (name, size):
                    raise self._damaged(f"group '{name}' is damaged: it is another one")
                groups.append(settled(group, rewards[id_]))
        return groups

    def acknowledge(self, step: int) -> None:
        with self._write() as db:
            if not db.execute(_TRAINED, {"of_step": step, "leased_to": self._owner}).rowcount:
                state = db.scalar(sa.select(_steps.c.state).where(_steps.c.step == step))
                why = "has been acknowledged already" if state == TRAINED else "is not leased to this trainer"
                raise ValueError(f"step {step} {why}")
            self._settle(db, [step])
            if self._config.keep is not None:
                self._forget(db, step - self._config.keep)

    def _forget(self, db: Connection, step: int) -> None:
        """Delete the bodies whose last step was `step`; their heads stay."""
        done = sa.select(_groups.c.id).where(_groups.c.step == step, _groups.c.state.in_((TRAINED, STALE)))
        db.execute(sa.delete(_bodies).where(_bodies.c.group_id.in_(done)))

    def _settle(self, db: Connection, steps: Sequence[int]) -> None:
        """Leased groups of steps that have been trained on: ready where they may be used again."""
        for step in steps:
            db.execute(self._settled, {"of_step": step})

    def rewind(self, step: int) -> int:
        earlier = sa.and_(_steps.c.step < step, _steps.c.state == LEASED)
        with self._write() as db:
            done = db.scalars(sa.select(_steps.c.step).where(earlier)).all()
            db.execute(sa.update(_steps).where(earlier).values(state=TRAINED, owner=None, until=None))
            self._settle(db, done)
            later = db.scalars(sa.select(_steps.c.step).where(_steps.c.step >= step)).all()
            lost = sa.and_(_groups.c.step >= step, _groups.c.id.not_in(sa.select(_bodies.c.group_id)))
            for table in (_uses, _rewards):
                db.execute(sa.delete(table).where(table.c.group_id.in_(sa.select(_groups.c.id).where(lost))))
            db.execute(sa.delete(_groups).where(lost))  # to be played again
            self._give_back(db, later)
            fresh = sa.and_(_groups.c.state == STALE, _groups.c.step >= step)
            back = sa.case((_groups.c.open, WAITING), else_=READY)
            db.execute(sa.update(_groups).where(fresh).values(state=back, step=None))
            self._revise(db, db.scalars(sa.select(_groups.c.id).where(_groups.c.state == WAITING)).all())
        return len(later)

    def _give_back(self, db: Connection, steps: Sequence[int]) -> None:
        """Steps as if they had never been taken."""
        for step in steps:
            ids = db.scalars(sa.select(_uses.c.group_id).where(_uses.c.step == step)).all()
            db.execute(sa.delete(_uses).where(_uses.c.step == step))
            db.execute(sa.delete(_steps).where(_steps.c.step == step))
            back = {"state": READY, "step": None, "uses": _groups.c.uses - 1}
            for chunk in _chunks(ids):
                db.execute(sa.update(_groups).where(_groups.c.id.in_(chunk)).values(back))
            self._prioritise(db, ids)

    def _prioritise(self, db: Connection, ids: Sequence[int]) -> None:
        """Priorities of groups whose uses or utilities have changed."""
        if not self._weights:
            return
        for chunk in _chunks(ids):
            rows = db.execute(
                sa.select(_groups.c.id, _groups.c.uses, _groups.c.utilities).where(_groups.c.id.in_(chunk))
            )
            new = [{"of": r.id, "p": priority(r.utilities, r.uses, self._weights)} for r in rows]
            with_p = sa.update(_groups).where(_groups.c.id == sa.bindparam("of")).values(priority=sa.bindparam("p"))
            db.execute(with_p, new)

    def reward(self, key: str, value: float) -> bool:
        value = finite(value)
        with self._write() as db:
            asked = sa.select(_rewards.c.group_id, _rewards.c.attempt, _rewards.c.reward, _groups.c.open)
            asked = asked.join(_groups, _groups.c.id == _rewards.c.group_id).where(_rewards.c.key == key)
            found = db.execute(asked).first()
            if found is None or (found.reward is None and not found.open):
                return False
            if found.reward is not None:
                return bool(found.reward == value)
            of_attempt = sa.and_(_rewards.c.group_id == found.group_id, _rewards.c.attempt == found.attempt)
            db.execute(sa.update(_rewards).where(of_attempt).values(reward=value))
            self._revise(db, [found.group_id])
        return True

    def _revise(self, db: Connection, ids: Sequence[int]) -> None:
        """Waiting groups whose rewards may have become enough."""
        for id_ in ids:
            rows = db.execute(sa.select(_rewards).where(_rewards.c.group_id == id_))
            rewards = {r.key: (r.attempt, r.reward) for r in rows}
            whole = not missing(rewards)
            if enough(rewards, self._config.reward_share):
                waiting = sa.and_(_groups.c.id == id_, _groups.c.state == WAITING)
                db.execute(sa.update(_groups).where(waiting).values(state=READY))
            if whole:
                db.execute(sa.update(_groups).where(_groups.c.id == id_).values(open=False))

    def _overdue(self) -> tuple[sa.ColumnElement[bool], ...]:
        if self._config.reward_seconds is None:
            return (sa.false(),)
        return (_groups.c.state == WAITING, _groups.c.put_at < time.time() - self._config.reward_seconds)

    def expire(self) -> int:
        with self._write() as db:
            return self._expire(db)

    def _expire(self, db: Connection) -> int:
        if self._config.reward_seconds is None:
            return 0
        ids = db.scalars(sa.select(_groups.c.id).where(*self._overdue())).all()
        lost = 0
        for chunk in _chunks(ids):
            attempts = sa.select(_rewards.c.group_id, _rewards.c.attempt).distinct()
            attempts = attempts.where(_rewards.c.group_id.in_(chunk), _rewards.c.reward.is_(None))
            lost += int(db.scalar(sa.select(sa.func.count()).select_from(attempts.subquery())) or 0)
            db.execute(sa.update(_groups).where(_groups.c.id.in_(chunk)).values(state=READY, open=False))
        return lost

    def update_priorities(self, utilities: Mapping[str, Mapping[str, float]]) -> None:
        with self._write() as db:
            for chunk in _chunks(list(utilities)):
                heads = sa.select(_groups.c.id, _groups.c.name, _groups.c.utilities).where(_groups.c.name.in_(chunk))
                rows = db.execute(heads).all()
                for row in rows:
                    merged = {**row.utilities, **utilities[row.name]}
                    db.execute(sa.update(_groups).where(_groups.c.id == row.id).values(utilities=merged))
                self._prioritise(db, [row.id for row in rows])

    def counts(self) -> dict[str, int]:
        sizes = sa.select(_groups.c.state, sa.func.sum(_groups.c.size)).group_by(_groups.c.state)
        lost = sa.select(_groups.c.state, sa.func.count()).join_from(
            _rewards, _groups, _rewards.c.group_id == _groups.c.id
        )
        lost = lost.where(_rewards.c.reward.is_(None), sa.not_(_groups.c.open)).group_by(_groups.c.state)
        with self._read() as db:
            found = dict.fromkeys(STATES, 0) | {state: int(n) for state, n in db.execute(sizes)}
            for state, n in db.execute(lost):
                found[state] -= n
                found[EXPIRED] += n
        return found

    def dropped(self) -> int:
        with self._read() as db:
            return int(db.scalar(sa.select(sa.func.count()).where(_groups.c.state == STALE)) or 0)

    def close(self) -> None:
        self._db.engine.dispose()

    @contextmanager
    def _write(self, *, durable: bool = True) -> Iterator[Connection]:
        with self._explained(), self._db.write(durable=durable) as db:
            yield db

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._explained(), self._db.engine.begin() as db:
            yield db

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as e:
            if explained := self._db.explain(e):
                raise UserError(f"{self._db.where}: {explained} ({e.orig})") from e
            raise

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self._db.where}: {what}. Put back a copy of the store, or start a new run from the last checkpoint: "
            "checkpoints are not affected."
        )


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _database(url: str, lock_seconds: float) -> Database:
    try:
        parsed = make_url(url)
    except ArgumentError as e:
        raise UserError(f"buffer.url: '{url}' is not a database URL such as sqlite:////path/buffer.db") from e
    if (name := parsed.get_backend_name()) not in DATABASES:
        raise UnknownName("database", name, DATABASES, hint="In buffer.url.")
    module, _, cls = DATABASES[name].partition(":")
    opened: Database = getattr(importlib.import_module(module), cls)(parsed, lock_seconds)
    return opened
