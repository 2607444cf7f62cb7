"""The official ALFWorld games, where $HARNESS_TEST_DATA holds them."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from harness.envs.alfworld import official
from harness.envs.alfworld.game import Game

UNPACKED = {"train": 3, "valid_train": 3, "valid_seen": 3, "valid_unseen": 134}
"""Official games of each split that are written to disk."""


@pytest.fixture(scope="session")
def official_games(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Game], Path]:
    """All official games, and a folder that holds some of each split as `alfworld-download` would leave them.

    The archive is read once from beginning to end, and only those few are written to disk.
    """
    data = os.environ.get("HARNESS_TEST_DATA")
    archive = Path(data or "") / "alfworld" / f"{official.LAYOUT}.tar.xz"
    if not data or not archive.is_file():
        pytest.skip(f"needs the official games: set HARNESS_TEST_DATA to a folder with alfworld/{archive.name}")
    folder = tmp_path_factory.mktemp("alfworld")
    left = dict(UNPACKED)
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
