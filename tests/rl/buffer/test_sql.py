"""The SQL buffer against a model of its contract, and in the face of what disks and people do to it."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.envs.errors import UserError
from harness.rl.buffer.base import Buffer
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.experience import Experience, ExperienceGroup

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # spares the disk thousands of flushes


def experience(key: str, group: str = "g", *, length: int = 4, lineage: Any = None) -> Experience:
    mask = np.arange(length) > 1
    return Experience(
        key=key,
        task_key="echo/train/0",
        group=group,
        attempt=0,
        versions=(0, 0),
        reward=1.0,
        tokens=np.arange(length, dtype=np.int32),
        mask=mask,
        logprobs=np.where(mask, -0.25, 0.0).astype(np.float32),
        lineage=lineage or {},
    )


def group(name: str, *keys: str, dropped: dict[str, int] | None = None, length: int = 4) -> ExperienceGroup:
    found = tuple(experience(k, name, length=length) for k in keys or (f"{name}#0.0",))
    return ExperienceGroup(group=name, task_key="echo/train/0", experiences=found, dropped=dropped or {})


def contents(groups: list[ExperienceGroup] | None) -> dict[str, list[str]] | None:
    return None if groups is None else {g.group: [e.key for e in g.experiences] for g in groups}


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'buffer.db'}"


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[SqlBuffer]:
    made = SqlBuffer(url(tmp_path), lock_seconds=0.2)
    yield made
    made.close()


def test_it_is_a_buffer(buffer: Buffer) -> None:
    assert buffer.completed() == 0
    assert buffer.counts() == {"ready": 0, "leased": 0, "trained": 0}
    assert buffer.groups_of(0) == set()
    assert buffer.take(0) is None


def test_a_step_is_handed_out_whole_and_only_once_it_is_complete(buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/b", "b0", "b1", dropped={"timeout": 2})])
    assert buffer.take(0) is None
    buffer.put(
        0, [group("s0/c"), ExperienceGroup(group="s0/a", task_key="t", experiences=(), dropped={"env_error": 4})]
    )
    buffer.put(1, [group("s1/a")])
    buffer.complete(0)
    found = buffer.take(0)
    assert contents(found) == {"s0/a": [], "s0/b": ["b0", "b1"], "s0/c": ["s0/c#0.0"]}
    assert found is not None
    assert [g.group for g in found] == ["s0/a", "s0/b", "s0/c"]
    assert [g.dropped for g in found] == [{"env_error": 4}, {"timeout": 2}, {}]
    (e,) = found[2].experiences
    assert (e.tokens.tolist(), e.mask.tolist()) == ([0, 1, 2, 3], [False, False, True, True])
    assert buffer.counts() == {"ready": 1, "leased": 3, "trained": 0}
    assert buffer.groups_of(0) == {"s0/a", "s0/b", "s0/c"}


def test_what_is_there_already_is_left_alone(buffer: SqlBuffer) -> None:
    first = group("s0/a", "k", length=4)
    buffer.put(0, [first])
    again = group("s0/a", "k", "other", length=9)
    buffer.put(0, [again, again])
    buffer.put(1, [group("s1/b", "k", "new")])
    for step in (0, 1):
        buffer.complete(step)
    buffer.put(0, [again])  # an explorer that did not hear of its first put
    (kept,) = buffer.take(0) or []
    assert [(e.key, len(e)) for e in kept.experiences] == [("k", 4)]
    assert contents(buffer.take(1)) == {"s1/b": ["new"]}
    with pytest.raises(ValueError, match="step 0 is complete"):
        buffer.put(0, [group("s0/late")])


def test_a_put_that_fails_stores_nothing(buffer: SqlBuffer) -> None:
    bad = ExperienceGroup(group="s0/b", task_key="t", experiences=(experience("x", lineage={"a": object()}),))
    with pytest.raises(ValueError, match="x: lineage"):
        buffer.put(0, [group("s0/a"), bad])
    assert buffer.groups_of(0) == set()
    assert buffer.counts()["ready"] == 0


def test_completed_counts_leading_steps(buffer: SqlBuffer) -> None:
    for step, expected in ((0, 1), (2, 1), (4, 1), (1, 3), (1, 3), (3, 5)):
        buffer.complete(step)
        assert buffer.completed() == expected
    assert buffer.take(2) == []


def test_a_step_is_acknowledged_once_and_only_by_who_holds_it(tmp_path: Path, buffer: SqlBuffer) -> None:
    other = SqlBuffer(url(tmp_path))
    buffer.put(0, [group("s0/a")])
    buffer.complete(0)
    with pytest.raises(ValueError, match="not leased"):
        buffer.acknowledge(0)
    assert contents(buffer.take(0)) == contents(buffer.take(0))
    with pytest.raises(UserError, match=r"another trainer, .* process \d+"):
        other.take(0)
    with pytest.raises(ValueError, match="not leased"):
        other.acknowledge(0)
    buffer.acknowledge(0)
    for who in (buffer, other):
        with pytest.raises(ValueError, match="acknowledged already"):
            who.acknowledge(0)
        with pytest.raises(ValueError, match="trained on already"):
            who.take(0)
    other.close()


def test_a_trainer_that_was_replaced_can_acknowledge_nothing(tmp_path: Path, buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/a")])
    buffer.complete(0)
    buffer.take(0)
    successor = SqlBuffer(url(tmp_path))
    assert successor.rewind(0) == 1
    assert contents(successor.take(0)) == {"s0/a": ["s0/a#0.0"]}
    with pytest.raises(ValueError, match="not leased"):
        buffer.acknowledge(0)
    successor.acknowledge(0)
    successor.close()


def test_rewinding_counts_what_the_checkpoint_holds_as_trained(buffer: SqlBuffer) -> None:
    for step in range(4):
        buffer.put(step, [group(f"s{step}/a")])
        buffer.complete(step)
    for step in (0, 1, 2):
        buffer.take(step)
    buffer.acknowledge(0)
    buffer.acknowledge(2)
    assert buffer.rewind(2) == 1  # step 2; step 1 was leased, and is in the checkpoint made after two steps
    assert buffer.counts() == {"ready": 2, "leased": 0, "trained": 2}
    with pytest.raises(ValueError, match="acknowledged already"):
        buffer.acknowledge(1)
    assert buffer.rewind(0) == 2
    assert buffer.counts() == {"ready": 4, "leased": 0, "trained": 0}


class Contract(RuleBasedStateMachine):
    """Two trainers and an explorer on one store, which are closed and opened again, against plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.buffers = [SqlBuffer(url(self.folder)) for _ in range(2)]
        self.groups: dict[int, dict[str, list[str]]] = {}
        self.complete: set[int] = set()
        self.state: dict[int, str] = {}
        self.owner: dict[int, int] = {}
        self.keys: set[str] = set()

    def teardown(self) -> None:
        for b in self.buffers:
            b.close()
        shutil.rmtree(self.folder)

    steps = st.integers(0, 3)
    who = st.integers(0, 1)

    @rule(step=steps, who=who, names=st.lists(st.sampled_from("abc"), max_size=3), keys=st.integers(0, 3))
    def put(self, step: int, who: int, names: list[str], keys: int) -> None:
        groups = [group(f"s{step}/{n}", *(f"s{step}/{n}#{k}.0" for k in range(keys + 1))) for n in names]
        stored = self.groups.get(step, {})
        new = {g.group: [e.key for e in g.experiences] for g in groups if g.group not in stored}
        if new and step in self.complete:
            with pytest.raises(ValueError, match="complete"):
                self.buffers[who].put(step, groups)
            return
        self.buffers[who].put(step, groups)
        self.groups.setdefault(step, {}).update(new)
        self.state.setdefault(step, "ready")

    @rule(step=steps, who=who)
    def finish(self, step: int, who: int) -> None:
        self.buffers[who].complete(step)
        self.groups.setdefault(step, {})
        self.state.setdefault(step, "ready")
        self.complete.add(step)

    @rule(step=steps, who=who)
    def take(self, step: int, who: int) -> None:
        if step not in self.complete:
            assert self.buffers[who].take(step) is None
        elif self.state[step] == "trained":
            with pytest.raises(ValueError, match="trained"):
                self.buffers[who].take(step)
        elif self.state[step] == "leased" and self.owner[step] != who:
            with pytest.raises(UserError, match="another trainer"):
                self.buffers[who].take(step)
        else:
            assert contents(self.buffers[who].take(step)) == dict(sorted(self.groups[step].items()))
            self.state[step], self.owner[step] = "leased", who

    @rule(step=steps, who=who)
    def acknowledge(self, step: int, who: int) -> None:
        if self.state.get(step) == "leased" and self.owner[step] == who:
            self.buffers[who].acknowledge(step)
            self.state[step] = "trained"
        else:
            with pytest.raises(ValueError, match="already" if self.state.get(step) == "trained" else "not leased"):
                self.buffers[who].acknowledge(step)

    @rule(step=st.integers(0, 4), who=who)
    def rewind(self, step: int, who: int) -> None:
        back = [s for s, state in self.state.items() if s >= step and state != "ready"]
        assert self.buffers[who].rewind(step) == len(back)
        self.state |= dict.fromkeys(back, "ready")
        self.state |= {s: "trained" for s in self.complete if s < step}

    @rule(who=who)
    def reopen(self, who: int) -> None:
        self.buffers[who].close()
        self.buffers[who] = SqlBuffer(url(self.folder))
        self.owner = {step: -1 if owner == who else owner for step, owner in self.owner.items()}

    @invariant()
    def agrees(self) -> None:
        for b in self.buffers:
            assert b.completed() == next(s for s in range(5) if s not in self.complete)
            expected = dict.fromkeys(("ready", "leased", "trained"), 0)
            for step, groups in self.groups.items():
                assert b.groups_of(step) == set(groups)
                expected[self.state[step]] += sum(map(len, groups.values()))
            assert b.counts() == expected


TestContract = Contract.TestCase
TestContract.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


def test_hot_statements_use_indexes_only(tmp_path: Path, buffer: SqlBuffer) -> None:
    seen: set[tuple[str, Any]] = set()

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE")):
            seen.add((statement, parameters))

    sa.event.listen(buffer._engine, "before_cursor_execute", note)
    buffer.put(0, [group("s0/a"), group("s0/b")])
    buffer.complete(0)
    buffer.take(0)
    buffer.acknowledge(0)
    buffer.groups_of(0)
    assert len(seen) >= 9
    db = sqlite3.connect(tmp_path / "buffer.db")
    plans = {s: str(db.execute(f"EXPLAIN QUERY PLAN {s}", p).fetchall()) for s, p in seen}
    db.close()
    assert not {statement: plan for statement, plan in plans.items() if "SCAN" in plan}


# What disks and people do.


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("postgresql://host/db", "not SQLite"),
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


def test_a_damaged_row_is_named(tmp_path: Path, buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/a", "a0", "a1"), group("s0/b", "b0", "b1")])
    buffer.complete(0)
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        db.execute("UPDATE experiences SET data = substr(data, 1, 40) WHERE key = 'b1'")
    with pytest.raises(UserError, match=r"buffer\.db: experience 'b1' of step 0 is damaged"):
        buffer.take(0)
    with sqlite3.connect(tmp_path / "buffer.db") as db:
        db.execute("DELETE FROM experiences WHERE key = 'b1'")
    db.close()
    with pytest.raises(UserError, match="group 's0/b' of step 0 had 2 experiences and now has 1"):
        buffer.take(0)


def test_a_read_only_store_says_so(tmp_path: Path, buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/a")])
    reader = SqlBuffer(f"sqlite:///file:{tmp_path / 'buffer.db'}?mode=ro&uri=true")
    assert reader.groups_of(0) == {"s0/a"}
    with pytest.raises(UserError, match="write permission"):
        reader.put(0, [group("s0/b")])
    reader.close()


def test_a_locked_store_says_so_and_goes_on_afterwards(tmp_path: Path, buffer: SqlBuffer) -> None:
    holder = sqlite3.connect(tmp_path / "buffer.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="locked for too long"):
        buffer.put(0, [group("s0/a")])
    assert buffer.groups_of(0) == set()  # readers do not wait
    holder.execute("ROLLBACK")
    holder.close()
    buffer.put(0, [group("s0/a")])
    assert buffer.groups_of(0) == {"s0/a"}


def test_a_full_database_says_so_and_loses_nothing(tmp_path: Path, buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/a")])

    def shrink(connection: sqlite3.Connection, record: object) -> None:
        connection.execute("PRAGMA max_page_count = 20")

    full = SqlBuffer(url(tmp_path))
    sa.event.listen(full._engine, "connect", shrink)
    full.close()  # the next connection is the small one
    with pytest.raises(UserError, match="no room left"):
        full.put(0, [group("s0/b"), group("s0/c", length=100_000)])
    assert full.groups_of(0) == {"s0/a"}
    full.put(0, [group("s0/b")])
    full.close()
    buffer.put(0, [group("s0/c", length=100_000)])
    assert buffer.groups_of(0) == {"s0/a", "s0/b", "s0/c"}


def test_a_disk_that_takes_no_more_says_so_and_loses_nothing(tmp_path: Path, buffer: SqlBuffer) -> None:
    buffer.put(0, [group("s0/a")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        with pytest.raises(UserError, match="Make room"):
            buffer.put(0, [group("s0/b", length=1_000_000)])
        assert buffer.groups_of(0) == {"s0/a"}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    buffer.put(0, [group("s0/b", length=1_000_000)])
    buffer.complete(0)
    assert contents(buffer.take(0)) == {"s0/a": ["s0/a#0.0"], "s0/b": ["s0/b#0.0"]}
