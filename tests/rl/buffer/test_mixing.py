"""Batches from several stores, and strategies of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.envs.errors import UnknownName, UserError
from harness.rl.buffer.registry import open_buffer
from harness.rl.config import BufferConfig, SourceConfig

STRATEGY = """
from harness.rl.buffer.mixing import Wrapped

class Patient(Wrapped):
    def __init__(self, buffer, factor):
        super().__init__(buffer)
        self.factor = factor

    def take(self, step, count, version):
        return super().take(step, count, version) if self.counts()["ready"] >= self.factor * count else None
"""


def names(groups: list[Any] | None) -> list[str] | None:
    return None if groups is None else [g.group for g in groups]


def url(tmp_path: Path, name: str) -> str:
    return f"sqlite:///{tmp_path / name}.db"


def test_a_share_of_each_batch_comes_from_another_runs_store(tmp_path: Path, make: Any) -> None:
    expert = open_buffer(url(tmp_path, "expert"), BufferConfig())
    expert.put([make.group(str(i), 2) for i in range(3)])
    expert.take(0, 3, 0)  # whatever became of them there
    sources = (SourceConfig(name="expert", url=url(tmp_path, "expert"), share=0.5),)
    mixed = open_buffer(url(tmp_path, "own"), BufferConfig(sources=sources))
    mixed.put([make.group("0"), make.group("1")])
    assert names(mixed.take(0, 4, 0)) == ["0", "1", "expert/0", "expert/1"]
    found = mixed.take(0, 4, 0)
    assert found is not None
    assert {(e.group, e.key) for e in found[3].experiences} == {("expert/1", f"expert/1#{i}.0") for i in range(2)}
    mixed.update_priorities({"0": {"x": 1.0}, "expert/0": {"x": 1.0}})
    mixed.acknowledge(0)
    with pytest.raises(ValueError, match="already"):
        mixed.acknowledge(0)
    assert mixed.take(1, 4, 0) is None
    mixed.put([make.group("2"), make.group("3")])
    assert names(mixed.take(1, 4, 0)) == ["2", "3", "expert/2", "expert/0"]
    mixed.acknowledge(1)
    assert mixed.rewind(1) == 1
    assert names(mixed.take(1, 4, 0)) == ["2", "3", "expert/2", "expert/0"]
    with pytest.raises(ValueError, match="trained"):
        mixed.take(0, 4, 0)
    assert expert.counts()["leased"] == 6
    for buffer in (expert, mixed):
        buffer.close()


def test_a_store_may_be_all_that_is_trained_on(tmp_path: Path, make: Any) -> None:
    stored = open_buffer(url(tmp_path, "stored"), BufferConfig())
    stored.put([make.group(str(i)) for i in range(3)])
    sources = (SourceConfig(name="s", url=url(tmp_path, "stored"), share=1.0),)
    alone = open_buffer(url(tmp_path, "own"), BufferConfig(sources=sources))
    assert names(alone.take(0, 4, 0)) == ["s/0", "s/1", "s/2", "s/0~2"]
    alone.acknowledge(0)
    assert names(alone.take(1, 4, 0)) == ["s/1", "s/2", "s/0", "s/1~2"]
    for buffer in (stored, alone):
        buffer.close()


def test_shares_that_cannot_be_are_refused(tmp_path: Path, make: Any) -> None:
    sources = (SourceConfig(name="s", url=url(tmp_path, "stored"), share=1.0),)
    with pytest.raises(UserError, match=r"stored\.db holds no groups"):
        open_buffer(url(tmp_path, "own"), BufferConfig(sources=sources))
    stored = open_buffer(url(tmp_path, "stored"), BufferConfig())
    stored.put([make.group("0")])
    both = (*sources, SourceConfig(name="t", url=url(tmp_path, "stored"), share=0.5))
    mixed = open_buffer(url(tmp_path, "own"), BufferConfig(sources=both))
    with pytest.raises(UserError, match="smaller shares"):
        mixed.take(0, 4, 0)
    for buffer in (stored, mixed):
        buffer.close()


def test_a_strategy_of_ones_own(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_strategy.py").write_text(STRATEGY)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = BufferConfig(strategy="my_strategy:Patient", options={"factor": 2})
    buffer = open_buffer(url(tmp_path, "own"), config)
    buffer.put([make.group("0"), make.group("1"), make.group("2")])
    assert buffer.take(0, 2, 0) is None
    buffer.put([make.group("3")])
    assert names(buffer.take(0, 2, 0)) == ["0", "1"]
    buffer.close()
    with pytest.raises(UserError, match="has nothing named 'Nobody'"):
        open_buffer(url(tmp_path, "own"), BufferConfig(strategy="my_strategy:Nobody"))


def test_an_unknown_kind_of_buffer_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'redis'"):
        open_buffer("reddis://localhost", BufferConfig())
