"""The tables of the SQL buffer, and the statements of its hot paths.

Knows columns, not what becomes of them. Whatever changes here or in `schema` raises `schema.VERSION`. Invariant of what
is written: a body never changes.
"""

from __future__ import annotations

import sqlalchemy as sa

from .base import LEASED, READY, TRAINED

TABLES = sa.MetaData()
SCHEMA = sa.Table("harness_schema", TABLES, sa.Column("version", sa.Integer, primary_key=True))
GROUPS = sa.Table(
    "groups",
    TABLES,
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
sa.Index("groups_in_order", GROUPS.c.state, GROUPS.c.priority.desc(), GROUPS.c.id)
sa.Index("groups_by_age", GROUPS.c.state, GROUPS.c.oldest)
sa.Index("groups_by_step", GROUPS.c.step)
BODIES = sa.Table(
    "bodies",
    TABLES,
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
REWARDS = sa.Table(  # of groups of which one was put without
    "rewards",
    TABLES,
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, primary_key=True, index=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("reward", sa.Float),
)
STEPS = sa.Table(
    "steps",
    TABLES,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, nullable=False, index=True),
    sa.Column("owner", sa.Text),  # of the lease; of a step that has been trained on, the receipt of who said so
    sa.Column("until", sa.Float),  # seconds of the clock
)
USES = sa.Table(
    "uses",
    TABLES,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("group_id", sa.Integer, primary_key=True, autoincrement=False),
)

# The statements of every take, made once: SQLAlchemy takes longer to put one together than a database to run it.
FIRST_READY = sa.select(GROUPS.c.id).where(GROUPS.c.state == READY)
FIRST_READY = FIRST_READY.order_by(GROUPS.c.priority.desc(), GROUPS.c.id).limit(sa.bindparam("count"))
COUNT_READY = sa.select(sa.func.count()).select_from(
    sa.select(GROUPS.c.id).where(GROUPS.c.state == READY).limit(sa.bindparam("count")).subquery()
)
STEP = sa.select(STEPS).where(STEPS.c.step == sa.bindparam("step"))
RUN_OUT = sa.select(STEPS.c.step).where(STEPS.c.state == LEASED, STEPS.c.until < sa.bindparam("now"))
RUN_OUT_OF_OTHERS = RUN_OUT.where(STEPS.c.owner != sa.bindparam("me"))
OF_STEP = sa.select(USES.c.group_id).where(USES.c.step == sa.bindparam("of_step"))
LEASE = sa.update(GROUPS).where(GROUPS.c.id.in_(OF_STEP))
LEASE = LEASE.values(state=LEASED, step=sa.bindparam("of_step"), uses=GROUPS.c.uses + 1, open=False)
ACKNOWLEDGE = sa.update(STEPS).where(STEPS.c.step == sa.bindparam("of_step"), STEPS.c.state == LEASED)
ACKNOWLEDGE = ACKNOWLEDGE.where(STEPS.c.owner == sa.bindparam("me"))
ACKNOWLEDGE = ACKNOWLEDGE.values(state=TRAINED, owner=sa.bindparam("receipt"), until=None)
GIVE_BACK = sa.update(GROUPS).where(GROUPS.c.id.in_(OF_STEP))
GIVE_BACK = GIVE_BACK.values(state=READY, step=None, uses=GROUPS.c.uses - 1)
WHOLE = sa.select(GROUPS.c.id, GROUPS.c.name, GROUPS.c.size, BODIES.c.data)
WHOLE = WHOLE.join(BODIES, BODIES.c.group_id == GROUPS.c.id, isouter=True)
LAGGED = sa.select(REWARDS.c.group_id, REWARDS.c.key, REWARDS.c.attempt, REWARDS.c.reward)
WHOLE_OF_STEP = WHOLE.where(GROUPS.c.id.in_(OF_STEP))
LAGGED_OF_STEP = LAGGED.where(REWARDS.c.group_id.in_(OF_STEP))
PRIORITY = sa.update(GROUPS).where(GROUPS.c.id == sa.bindparam("of")).values(priority=sa.bindparam("new"))
