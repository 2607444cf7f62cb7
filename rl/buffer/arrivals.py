"""Rewards that come later, in the SQL buffer: what arrives, what is enough, and what is overdue.

Knows tables and the connection it is given; `lagged` says what is enough. Invariant: a group is open to rewards until
all have come, it is leased, or its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ..config import BufferConfig
from .base import READY, WAITING
from .lagged import enough, missing
from .tables import GROUPS, REWARDS


def arrive(db: Connection, key: str, value: float, share: float) -> bool:
    """As `Buffer.reward`; share: `buffer.reward_share`."""
    asked = sa.select(REWARDS.c.group_id, REWARDS.c.attempt, REWARDS.c.reward, GROUPS.c.open)
    asked = asked.join(GROUPS, GROUPS.c.id == REWARDS.c.group_id).where(REWARDS.c.key == key)
    found = db.execute(asked).first()
    if found is None or (found.reward is None and not found.open):
        return False
    if found.reward is not None:
        return bool(found.reward == value)
    of_attempt = sa.and_(REWARDS.c.group_id == found.group_id, REWARDS.c.attempt == found.attempt)
    db.execute(sa.update(REWARDS).where(of_attempt).values(reward=value))
    revise(db, [found.group_id], share)
    return True


def revise(db: Connection, ids: Iterable[int], share: float) -> None:
    """Groups whose rewards may have become enough, or all."""
    for id_ in ids:
        rows = db.execute(sa.select(REWARDS).where(REWARDS.c.group_id == id_))
        rewards = {r.key: (r.attempt, r.reward) for r in rows}
        if enough(rewards, share):
            waiting = sa.and_(GROUPS.c.id == id_, GROUPS.c.state == WAITING)
            db.execute(sa.update(GROUPS).where(waiting).values(state=READY))
        if not missing(rewards):
            db.execute(sa.update(GROUPS).where(GROUPS.c.id == id_).values(open=False))


def overdue(config: BufferConfig) -> sa.ColumnElement[bool]:
    """Groups that have waited for longer than they may."""
    if config.reward_seconds is None:
        return sa.false()
    return sa.and_(GROUPS.c.state == WAITING, GROUPS.c.put_at < time.time() - config.reward_seconds)


def expire(db: Connection, config: BufferConfig) -> int:
    """As `Buffer.expire`."""
    if config.reward_seconds is None:
        return 0
    late = overdue(config)
    attempts = sa.select(REWARDS.c.group_id, REWARDS.c.attempt).distinct()
    attempts = attempts.where(REWARDS.c.group_id.in_(sa.select(GROUPS.c.id).where(late)), REWARDS.c.reward.is_(None))
    lost = int(db.scalar(sa.select(sa.func.count()).select_from(attempts.subquery())) or 0)
    db.execute(sa.update(GROUPS).where(late).values(state=READY, open=False))
    return lost
