"""A run small enough to be made many times: echo, a model of a few thousand weights, everything in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.config import RunConfig
from harness.load import load

SMALL = (
    "env.name=echo",
    "agent.prompt=plain",
    "run.place=inline",
    "run.steps=4",
    "model.tiny.layers=1",
    "model.tiny.width=32",
    "model.tiny.heads=1",
    "model.tiny.kv_heads=1",
    "model.tiny.mlp=32",
    "model.tiny.context=256",
    "model.slots=8",
    "sampling.max_tokens=8",
    "explorer.groups=2",
    "explorer.group_size=2",
    "warmup.stages=[{episodes: 8}]",
    "trainer.checkpoint_every=2",
    "eval.n=4",
)


@pytest.fixture
def settings() -> list[str]:
    """The small run as it is asked for on the command line."""
    return list(SMALL)


@pytest.fixture
def small() -> Callable[..., RunConfig]:
    """The small run, with other settings on top."""
    return lambda *overrides: load("default", [*SMALL, *overrides])


@pytest.fixture(autouse=True)
def runs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's runs live."""
    root = tmp_path / "runs"
    monkeypatch.setenv("HARNESS_RUNS", str(root))
    return root
