"""Lazy lists of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.base import Task
from harness.envs.errors import UnknownName, UserError
from harness.envs.tasks import LazyTasks, check_choice, read_jsonl


def make(i: int) -> Task:
    return Task(env="echo", split="train", id=str(i), seed=i)


@given(length=st.integers(0, 30), cut=st.slices(30), index=st.integers(-40, 40))
def test_it_behaves_as_the_list_of_its_tasks(length: int, cut: slice, index: int) -> None:
    lazy, real = LazyTasks(length, make), [make(i) for i in range(length)]
    assert list(lazy) == real
    assert list(lazy[cut]) == real[cut]
    assert list(lazy[cut][1:]) == real[cut][1:]
    if -length <= index < length:
        assert lazy[index] == real[index]
    else:
        with pytest.raises(IndexError):
            lazy[index]


def test_nothing_is_made_before_it_is_looked_at() -> None:
    made: list[int] = []
    lazy = LazyTasks(2**31 - 1, lambda i: made.append(i) or make(i))  # type: ignore[func-returns-value]
    assert lazy[10:][5].id == "15"
    assert made == [15]


def test_jsonl_reads_rows_and_names_the_line_at_fault(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert read_jsonl(file) == [{"a": 1}, {"a": 2}]
    file.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(UserError, match="line 2: not JSON"):
        read_jsonl(file)
    file.write_text("[1]\n")
    with pytest.raises(UserError, match="line 1: expected one JSON object a line, got list"):
        read_jsonl(file)


def test_unknown_split_and_option_are_named() -> None:
    with pytest.raises(UnknownName, match=r"split of echo 'trian'.*'train'"):
        check_choice("echo", "trian", ("train", "test"))
    with pytest.raises(UnknownName, match=r"option of echo 'round'.*'rounds'"):
        check_choice("echo", "train", ("train",), {"round": 1}, known=("rounds",))
