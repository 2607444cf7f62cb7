"""The walks of the parity benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def parity() -> ModuleType:
    """`benchmarks/parity.py`, whose walks reach what random ones do not."""
    file = Path(__file__).parents[3] / "benchmarks" / "parity.py"
    spec = importlib.util.spec_from_file_location("alfworld_parity", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
