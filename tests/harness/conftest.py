"""Run folders of their own for each test, and a console that writes to a string."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console


@pytest.fixture(autouse=True)
def runs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's runs live."""
    root = tmp_path / "runs"
    monkeypatch.setenv("HARNESS_RUNS", str(root))
    return root


@pytest.fixture
def console() -> Console:
    """Plain text, wide enough not to wrap; read it with `text_of`."""
    return Console(file=io.StringIO(), width=160, force_terminal=False, highlight=False)


def text_of(console: Console) -> str:
    """What was printed so far."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
