"""The official games, where $HARNESS_TEST_DATA holds them, and the walks of the parity benchmark."""

from __future__ import annotations

import importlib.util
import os
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from harness.envs.alfworld import official
from harness.envs.alfworld.game import Game

FEW = 3  # official games of each split that are unpacked


@pytest.fixture(scope="session")
def official_games(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Game], Path]:
    """All official games, and a folder that holds a few of each split as `alfworld-download` would leave them.

    The archive is read once from beginning to end, and only the few are written to disk.
    """
    data = os.environ.get("HARNESS_TEST_DATA")
    archive = Path(data or "") / "alfworld" / f"{official.LAYOUT}.tar.xz"
    if not data or not archive.is_file():
        pytest.skip(f"needs the official games: set HARNESS_TEST_DATA to a folder with alfworld/{archive.name}")
    folder = tmp_path_factory.mktemp("alfworld")
    left = dict.fromkeys(official.SPLITS, FEW)
    games = []
    with tarfile.open(archive, "r|xz") as members:
        for member in members:
            if not member.name.endswith(official.GAME):
                continue
            path = member.name.split(f"{official.LAYOUT}/")[-1]
            file = members.extractfile(member)
            assert file is not None
            text = file.read().decode()
            games.append(official.parse(text, path))
            split = path.split("/")[0]
            if left[split]:
                left[split] -= 1
                target = folder / official.LAYOUT / path
                target.parent.mkdir(parents=True)
                target.write_text(text)
    return games, folder


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
