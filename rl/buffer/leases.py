"""Who trains on what, in the SQL buffer: leases of steps, and what becomes of their groups.

Knows tables and the connection it is given, neither bodies nor databases. Invariant: only the holder of a lease can
acknowledge it, so of two trainers on one store at most one counts.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from harness.envs.errors import UserError

from ..config import BufferConfig
from .arrivals import expire, overdue, revise
from .base import LEASED, READY, STALE, TRAINED, WAITING
from .sampling import priority, weights_of
from .tables import (
    ACKNOWLEDGE,
    BODIES,
    COUNT_READY,
    FIRST_READY,
    GIVE_BACK,
    GROUPS,
    LEASE,
    OF_STEP,
    PRIORITY,
    REWARDS,
    RUN_OUT,
    RUN_OUT_OF_OTHERS,
    STEP,
    STEPS,
    USES,
)


class Leases:
    """Of one holder, who is told by `owner`."""

    def __init__(self, config: BufferConfig, staleness: int | None) -> None:
        self._config, self._staleness, self.weights = config, staleness, weights_of(config)
        again = sa.true() if config.reuse is None else GROUPS.c.uses < config.reuse
        settled = sa.update(GROUPS).where(GROUPS.c.id.in_(OF_STEP))
        self._settled = settled.values(state=sa.case((again, READY), else_=TRAINED))
        self.owner = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex})"

    def promising(self, db: Connection, step: int, count: int) -> bool:
        """Whether `take` may give anything; asked without the write lock, because a trainer that waits asks often."""
        return (
            (db.scalar(COUNT_READY, {"count": count}) or 0) >= count
            or db.execute(STEP, {"step": step}).first() is not None
            or db.scalar(RUN_OUT, {"now": time.time()}) is not None
            or db.scalar(sa.select(GROUPS.c.id).where(overdue(self._config)).limit(1)) is not None
        )

    def take(self, db: Connection, step: int, count: int, version: int, where: str) -> bool:
        """Whether the step is ours now. Raises as `Buffer.take`; `where` is for its message."""
        now = time.time()
        lease = {"state": LEASED, "owner": self.owner, "until": now + self._config.lease_seconds}
        found = db.execute(STEP, {"step": step}).first()
        if found is not None and found.state == TRAINED:
            raise ValueError(f"step {step} has been trained on already")
        if found is not None and found.owner == self.owner:
            db.execute(sa.update(STEPS).where(STEPS.c.step == step).values(lease))
            return True
        if found is not None and found.until >= now:
            raise UserError(
                f"{where}: step {step} is being trained on by another trainer, {found.owner}. Two trainers "
                "cannot share one run: stop this one, or, where the other is gone, resume the run."
            )
        self._give_back(db, db.scalars(RUN_OUT_OF_OTHERS, {"now": now, "me": self.owner}).all())
        expire(db, self._config)
        if self._staleness is not None:
            for state in (READY, WAITING):
                old = sa.and_(GROUPS.c.state == state, GROUPS.c.oldest < version - self._staleness)
                db.execute(sa.update(GROUPS).where(old).values(state=STALE, step=step))
        ids = db.scalars(FIRST_READY, {"count": count}).all()
        if len(ids) < count:
            return False
        if ids:
            db.execute(sa.insert(USES), [{"step": step, "group_id": i} for i in ids])
        db.execute(LEASE, {"of_step": step})
        self._reweigh(db, step)
        db.execute(sa.insert(STEPS), {"step": step, **lease})
        return True

    def acknowledge(self, db: Connection, step: int, receipt: str) -> None:
        """receipt: of this call, so that it is known again where the answer to it was lost."""
        if not db.execute(ACKNOWLEDGE, {"of_step": step, "me": self.owner, "receipt": receipt}).rowcount:
            found = db.execute(STEP, {"step": step}).first()
            if found is not None and found.owner == receipt:
                return
            already = found is not None and found.state == TRAINED
            why = "has been acknowledged already" if already else "is not leased to this trainer"
            raise ValueError(f"step {step} {why}")
        self._settle(db, step)
        if self._config.keep is not None:
            forgotten = step - self._config.keep
            old = sa.and_(GROUPS.c.step == forgotten, GROUPS.c.state.in_((TRAINED, STALE)))
            db.execute(sa.delete(BODIES).where(BODIES.c.group_id.in_(sa.select(GROUPS.c.id).where(old))))

    def rewind(self, db: Connection, step: int) -> int:
        """As `Buffer.rewind`."""
        earlier = sa.and_(STEPS.c.step < step, STEPS.c.state == LEASED)
        done = db.scalars(sa.select(STEPS.c.step).where(earlier)).all()
        db.execute(sa.update(STEPS).where(earlier).values(state=TRAINED, owner=None, until=None))
        for number in done:
            self._settle(db, number)
        lost = sa.and_(GROUPS.c.step >= step, GROUPS.c.id.not_in(sa.select(BODIES.c.group_id)))
        for table in (USES, REWARDS):
            db.execute(sa.delete(table).where(table.c.group_id.in_(sa.select(GROUPS.c.id).where(lost))))
        db.execute(sa.delete(GROUPS).where(lost))  # to be played again
        later = db.scalars(sa.select(STEPS.c.step).where(STEPS.c.step >= step)).all()
        self._give_back(db, later)
        fresh = sa.and_(GROUPS.c.state == STALE, GROUPS.c.step >= step)
        back = sa.case((GROUPS.c.open, WAITING), else_=READY)
        db.execute(sa.update(GROUPS).where(fresh).values(state=back, step=None))
        waiting = db.scalars(sa.select(GROUPS.c.id).where(GROUPS.c.state == WAITING)).all()
        revise(db, waiting, self._config.reward_share)
        return len(later)

    def prioritise(self, db: Connection, which: sa.ColumnElement[bool], *, step: int | None = None) -> None:
        """Priorities of groups whose uses or utilities have changed."""
        if self.weights:
            heads = sa.select(GROUPS.c.id, GROUPS.c.uses, GROUPS.c.utilities).where(which)
            rows = db.execute(heads, {} if step is None else {"of_step": step}).all()
            if rows:
                new = [{"of": r.id, "new": priority(r.utilities, r.uses, self.weights)} for r in rows]
                db.execute(PRIORITY, new)

    def _reweigh(self, db: Connection, step: int) -> None:
        self.prioritise(db, GROUPS.c.id.in_(OF_STEP), step=step)

    def _settle(self, db: Connection, step: int) -> None:
        """Leased groups of a step that has been trained on: ready where they may be used again."""
        db.execute(self._settled, {"of_step": step})

    def _give_back(self, db: Connection, steps: Iterable[int]) -> None:
        """Steps as if they had never been taken."""
        for step in steps:
            db.execute(GIVE_BACK, {"of_step": step})
            self._reweigh(db, step)
            for table in (USES, STEPS):
                db.execute(sa.delete(table).where(table.c.step == step))
