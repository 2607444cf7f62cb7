"""The durable buffer: groups of experiences in an SQL database, a file of SQLite by default.

Knows heads of groups and bytes of bodies, not what they mean; `leases` and `arrivals` say what becomes of groups,
`database` how a transaction is made. Invariant, whoever is killed whenever, servers too: each method is one
transaction, and comes to the same where it is done twice.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from harness.envs.errors import UserError

from ..config import BufferConfig
from ..experience import Experience, ExperienceGroup
from .arrivals import arrive, expire
from .base import EXPIRED, READY, STALE, STATES, WAITING, BufferFull, by_name
from .database import open_database, transaction
from .lagged import Rewards, enough, finite, rewards_of, settled, unrewarded
from .leases import Leases
from .patience import OPENING, RUNNING
from .sampling import priority, utilities_of
from .schema import VERSION, Damaged, decode, encode, unknown_version
from .tables import BODIES, GROUPS, LAGGED, LAGGED_OF_STEP, REWARDS, SCHEMA, TABLES, WHOLE, WHOLE_OF_STEP

_NAMES = 500
"""Names in one statement: databases bound the number of parameters."""


class SqlBuffer:
    """`Buffer` on one SQL store; see there for what each method promises. Threads may share one."""

    def __init__(
        self,
        url: str,
        config: BufferConfig = BufferConfig(),  # noqa: B008  (frozen)
        *,
        staleness: int | None = None,
        lock_seconds: float = 30.0,
        patience: float = RUNNING,
    ) -> None:
        """url: sqlite:///FILE or postgresql://...

        lock_seconds: how long to wait for other writers before giving up. patience: how long a server may be gone.
        Raises UserError.
        """
        self._config = config
        self._leases = Leases(config, staleness)
        self.database = open_database(url, lock_seconds)
        self.database.patience = min(OPENING, patience)
        try:
            self._create()
        except BaseException:
            self.close()
            raise
        self.database.patience = patience

    @transaction()
    def _create(self, db: Connection) -> None:
        self.database.prepare(db)
        SCHEMA.create(db, checkfirst=True)
        version = db.scalar(sa.select(SCHEMA.c.version))
        if version is None:
            db.execute(sa.insert(SCHEMA).values(version=VERSION))
        elif version != VERSION:
            raise unknown_version(version)
        TABLES.create_all(db)

    def put(self, groups: Sequence[ExperienceGroup]) -> None:
        unique = {g.group: g for g in reversed(groups)}
        if unique:
            self._put([self._head(g) for g in reversed(unique.values())], {n: encode(g) for n, g in unique.items()})

    def _head(self, group: ExperienceGroup) -> dict[str, Any]:
        weights = self._leases.weights
        utilities = utilities_of(group) if weights else {}
        rewards = rewards_of(group)
        return {
            "name": group.group,
            "state": READY if enough(rewards, self._config.reward_share) else WAITING,
            "oldest": min((e.versions[0] for e in group.experiences), default=None),
            "size": len(group.experiences),
            "uses": 0,
            "priority": priority(utilities, 0, weights),
            "utilities": utilities,
            "open": bool(rewards),
            "put_at": time.time(),
            "rewards": rewards,
        }

    @transaction()
    def _put(self, db: Connection, heads: Sequence[dict[str, Any]], bodies: Mapping[str, bytes]) -> None:
        insert = self.database.insert(GROUPS, "name").returning(GROUPS.c.id, GROUPS.c.name)
        columns = [{name: value for name, value in head.items() if name != "rewards"} for head in heads]
        ids = {name: id_ for id_, name in db.execute(insert, columns)}
        if not ids:
            return
        if self._config.bound is not None and self._queued(db) > self._config.bound:
            raise BufferFull(f"{len(ids)} groups do not fit beneath the bound of {self._config.bound}")
        db.execute(sa.insert(BODIES), [{"group_id": id_, "data": bodies[name]} for name, id_ in ids.items()])
        lagging = [
            {"group_id": ids[head["name"]], "key": key, "attempt": attempt, "reward": reward}
            for head in heads
            if head["name"] in ids
            for key, (attempt, reward) in head["rewards"].items()
        ]
        if lagging:
            db.execute(sa.insert(REWARDS), lagging)

    @transaction(write=False)
    def room(self, db: Connection) -> int:
        bound = self._config.bound
        return sys.maxsize if bound is None else max(0, bound - self._queued(db))

    def _queued(self, db: Connection) -> int:
        query = sa.select(sa.func.count()).where(GROUPS.c.state.in_((WAITING, READY)), GROUPS.c.uses == 0)
        return int(db.scalar(query) or 0)

    @transaction(write=False)
    def stored(self, db: Connection, names: Sequence[str]) -> set[str]:
        queries = (sa.select(GROUPS.c.name).where(GROUPS.c.name.in_(some)) for some in _parts(names))
        return {name for query in queries for name in db.scalars(query)}

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup] | None:
        if not self._promising(step, count) or not self._take(step, count, version):
            return None
        return sorted(self._taken(step), key=by_name)

    @transaction(write=False)
    def _promising(self, db: Connection, step: int, count: int) -> bool:
        return self._leases.promising(db, step, count)

    @transaction(durable=False)
    def _take(self, db: Connection, step: int, count: int, version: int) -> bool:
        return self._leases.take(db, step, count, version, self.database.where)

    @transaction(write=False)
    def _taken(self, db: Connection, step: int) -> list[ExperienceGroup]:
        return self._decoded(db, WHOLE_OF_STEP, LAGGED_OF_STEP, {"of_step": step})

    @transaction(write=False)
    def names(self, db: Connection) -> list[str]:
        whole = sa.select(GROUPS.c.name).join(BODIES, BODIES.c.group_id == GROUPS.c.id)
        return list(db.scalars(whole.where(sa.not_(GROUPS.c.open)).order_by(GROUPS.c.id)))

    @transaction(write=False)
    def read(self, db: Connection, names: Sequence[str]) -> list[ExperienceGroup]:
        found: dict[str, ExperienceGroup] = {}
        for some in _parts(names):
            ids = sa.select(GROUPS.c.id).where(GROUPS.c.name.in_(some))
            bodies, lagged = WHOLE.where(GROUPS.c.id.in_(ids)), LAGGED.where(REWARDS.c.group_id.in_(ids))
            found |= {g.group: g for g in self._decoded(db, bodies, lagged, {})}
        return [found[name] for name in names]

    def _decoded(
        self, db: Connection, bodies: sa.Select[Any], lagged: sa.Select[Any], which: dict[str, Any]
    ) -> list[ExperienceGroup]:
        return [settled(group, rewards) for group, rewards in self._groups(db, bodies, lagged, which)]

    def _groups(
        self, db: Connection, bodies: sa.Select[Any], lagged: sa.Select[Any], which: dict[str, Any]
    ) -> Iterator[tuple[ExperienceGroup, Rewards]]:
        """As they were put, and their rewards."""
        rewards: defaultdict[int, dict[str, tuple[int, float | None]]] = defaultdict(dict)
        for id_, key, attempt, reward in db.execute(lagged, which):
            rewards[id_][key] = (attempt, reward)
        for id_, name, size, data in db.execute(bodies, which, execution_options={"yield_per": 50}):
            try:
                group = decode(data or b"")
            except Damaged as e:
                raise self._damaged(f"group '{name}' is damaged: {e}") from e
            if (group.group, len(group.experiences)) != (name, size):
                raise self._damaged(f"group '{name}' is damaged: it is another one")
            yield group, rewards[id_]

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self.database.where}: {what}. Put back a copy of the store, or start a new run from the last "
            "checkpoint: checkpoints are not affected."
        )

    def acknowledge(self, step: int) -> None:
        self._acknowledge(step, uuid.uuid4().hex)

    @transaction()
    def _acknowledge(self, db: Connection, step: int, receipt: str) -> None:
        self._leases.acknowledge(db, step, receipt)

    @transaction()
    def rewind(self, db: Connection, step: int) -> int:
        return self._leases.rewind(db, step)

    @transaction()
    def reward(self, db: Connection, key: str, value: float) -> bool:
        return arrive(db, key, finite(value), self._config.reward_share)

    @transaction(write=False)
    def awaited(self, db: Connection, count: int) -> list[Experience]:
        waiting = sa.and_(GROUPS.c.open, GROUPS.c.state.in_((WAITING, READY)))
        oldest = sa.select(GROUPS.c.id).where(waiting).order_by(GROUPS.c.id).limit(count)
        found = []
        for group, rewards in self._groups(
            db, WHOLE.where(GROUPS.c.id.in_(oldest)), LAGGED.where(REWARDS.c.group_id.in_(oldest)), {}
        ):
            found += unrewarded(group, rewards)
        return found

    @transaction()
    def expire(self, db: Connection) -> int:
        return expire(db, self._config)

    @transaction()
    def update_priorities(self, db: Connection, utilities: Mapping[str, Mapping[str, float]]) -> None:
        for some in _parts(utilities):
            named = GROUPS.c.name.in_(some)
            for row in db.execute(sa.select(GROUPS.c.id, GROUPS.c.name, GROUPS.c.utilities).where(named)).all():
                merged = {**row.utilities, **utilities[row.name]}
                db.execute(sa.update(GROUPS).where(GROUPS.c.id == row.id).values(utilities=merged))
            self._leases.prioritise(db, named)

    @transaction(write=False)
    def counts(self, db: Connection) -> dict[str, int]:
        sizes = sa.select(GROUPS.c.state, sa.func.sum(GROUPS.c.size)).group_by(GROUPS.c.state)
        lost = sa.select(GROUPS.c.state, sa.func.count()).join_from(REWARDS, GROUPS, REWARDS.c.group_id == GROUPS.c.id)
        lost = lost.where(REWARDS.c.reward.is_(None), sa.not_(GROUPS.c.open)).group_by(GROUPS.c.state)
        found = dict.fromkeys(STATES, 0) | {state: int(n) for state, n in db.execute(sizes)}
        for state, n in db.execute(lost):
            found[state] -= n
            found[EXPIRED] += n
        return found

    @transaction(write=False)
    def dropped(self, db: Connection) -> int:
        return int(db.scalar(sa.select(sa.func.count()).where(GROUPS.c.state == STALE)) or 0)

    def close(self) -> None:
        self.database.engine.dispose()


def _parts(names: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while part := list(islice(rest, _NAMES)):
        yield part
