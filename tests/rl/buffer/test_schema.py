"""Rows come back exactly, or are refused."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.errors import UserError
from harness.rl.buffer.schema import Damaged, decode, encode
from harness.rl.experience import Experience, ExperienceGroup

number = st.floats(width=32)
text = st.text("a/#é☃\x00", max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def experiences(draw: st.DrawFn) -> Experience:
    mask = np.array(draw(st.lists(st.booleans(), max_size=8)), np.bool_)
    length = len(mask)

    def floats() -> Any:
        return np.array(draw(st.lists(number, min_size=length, max_size=length)), np.float32)

    return Experience(
        key=draw(text),
        task_key=draw(text),
        group=draw(text),
        attempt=draw(st.integers(0, 99)),
        versions=(draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))),
        reward=draw(st.none() | st.floats()),
        tokens=np.array(draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length)), np.int32),
        mask=mask,
        logprobs=np.where(mask, floats(), np.float32(0.0)),
        advantages=draw(st.sampled_from([None, floats()])),
        metrics=draw(st.dictionaries(text, st.floats(), max_size=3)),
        lineage=draw(st.dictionaries(text, plain, max_size=3)),
    )


def group_of(*members: Experience, dropped: dict[str, int] | None = None) -> ExperienceGroup:
    return ExperienceGroup(group="g", task_key="echo/train/0", experiences=members, dropped=dropped or {})


@given(st.lists(experiences(), max_size=3), st.dictionaries(text, st.integers(0, 9), max_size=2))
def test_everything_comes_back_exactly(members: list[Experience], dropped: dict[str, int]) -> None:
    back = decode(encode(group_of(*members, dropped=dropped)))
    assert (back.group, back.task_key, back.dropped) == ("g", "echo/train/0", dropped)
    for before, after in zip(members, back.experiences, strict=True):
        equal(before, after)


def equal(before: Experience, after: Experience) -> None:
    for name in ("tokens", "mask", "logprobs", "advantages"):
        a, b = getattr(before, name), getattr(after, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
            assert b.flags.writeable
    np.testing.assert_equal(dict(after.metrics), dict(before.metrics))
    np.testing.assert_equal(after.reward, before.reward)
    for name in ("key", "task_key", "group", "attempt", "versions", "lineage"):
        assert getattr(after, name) == getattr(before, name)


def example() -> Experience:
    return Experience(
        key="g#0.0",
        task_key="echo/train/0",
        group="g",
        attempt=0,
        versions=(1, 2),
        reward=1.0,
        tokens=np.arange(4, dtype=np.int32),
        mask=np.array([False, True, True, True]),
        logprobs=np.array([0, -1, -2, -3], np.float32),
        metrics={"turns": np.float32(2.0)},  # type: ignore[dict-item]
    )


def test_any_damage_of_one_byte_is_seen() -> None:
    row = encode(group_of(example()))
    for i in range(len(row)):
        damaged = row[:i] + bytes([row[i] ^ 0xFF]) + row[i + 1 :]
        with pytest.raises((Damaged, UserError)):
            decode(damaged)
    for i in range(len(row)):
        with pytest.raises((Damaged, UserError)):
            decode(row[:i])


def test_a_row_of_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"schema version 99, and this harness reads version 2.*start a new run"):
        decode(msgpack.packb((99, 0, b"")))


def test_a_row_with_other_fields_is_damaged() -> None:
    body = msgpack.packb({"key": "g"})
    with pytest.raises(Damaged, match="fields"):
        decode(msgpack.packb((2, crc32(body), body)))


def test_what_cannot_be_stored_is_named() -> None:
    for bad in (object(), 2**70, {1, 2}):
        held = Experience(**{**{f: getattr(example(), f) for f in Experience.__slots__}, "lineage": {"x": bad}})
        with pytest.raises(ValueError, match=r"g#0\.0: lineage"):
            encode(group_of(example(), held))
