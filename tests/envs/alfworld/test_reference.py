"""TextWorld behind the contract, each world in a process of its own; and whether it says what our engine says."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import ModuleType

import pytest

from harness.envs.alfworld import reference
from harness.envs.alfworld.engine import NOTHING
from harness.envs.alfworld.game import Game
from harness.envs.alfworld.reference import ALFWorldTextWorld, Reference
from harness.envs.alfworld.world import game
from harness.envs.errors import UserError, WorldError, WorldTimeout
from harness.envs.host import open_host


@pytest.fixture
def textworld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips where there is none."""
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    try:
        reference.python()
    except UserError as error:
        pytest.skip(f"needs TextWorld: {error}")


def test_where_textworld_is_missing_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    for named in (fake, tmp_path / "nowhere"):
        monkeypatch.setenv(reference.PYTHON, str(named))
        with pytest.raises(UserError, match=r"cannot import.*harness\[alfworld\].*ALFWORLD_PYTHON"):
            reference.python()
        with pytest.raises(UserError, match="TextWorld"):
            ALFWorldTextWorld().reset(seed=0)


def serving(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """A process that does what the script says where TextWorld is asked."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\n{script}\n')
    fake.chmod(0o755)
    monkeypatch.setenv(reference.PYTHON, str(fake))
    return Reference()


def test_a_dead_a_late_and_a_failing_process_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = serving("exit 7", tmp_path, monkeypatch)
    with pytest.raises(WorldError, match="ended"):
        dead.step("look")
    monkeypatch.setattr(reference, "STEP_SECONDS", 0.2)
    late = serving("exec sleep 60", tmp_path, monkeypatch)
    with pytest.raises(WorldTimeout, match=r"within 0\.2 s"):
        late.step("look")
    monkeypatch.setattr(reference, "STEP_SECONDS", 30.0)
    failing = serving("""read line; echo '{"error": "ValueError: no"}'; read line""", tmp_path, monkeypatch)
    with pytest.raises(WorldError, match="ValueError: no"):
        failing.step("look")
    with pytest.raises(WorldError, match="ended"):
        failing.step("look")
    failing.close()


@pytest.mark.slow
@pytest.mark.usefixtures("textworld")
def test_worlds_in_threads_have_processes_of_their_own() -> None:
    task = ALFWorldTextWorld.tasks("valid_unseen", source="generated")[5]
    assert task.key == "alfworld-textworld/valid_unseen/5"
    ends: list[tuple[float, bool]] = []

    def play() -> None:
        world = ALFWorldTextWorld()
        _, info = world.reset(options={"task": task})
        assert "look" in info["admissible"]
        observation, reward, ended, _, info = world.step("fly to the moon")
        assert (observation, info["refused"]) == (NOTHING, True)
        for command in game(task).plan:
            assert not ended
            observation, reward, ended, _, info = world.step(f" {command.upper()}")
            assert not info["refused"]
        ends.append((reward, ended))
        world.close()
        with pytest.raises(WorldError, match="before reset"):
            world.step("look")

    threads = [threading.Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [(1.0, True)] * 2


@pytest.mark.slow
@pytest.mark.usefixtures("textworld")
def test_two_processes_leave_the_game_files_untouched(
    official_games: tuple[list[Game], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = official_games[1]
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def state() -> list[tuple[str, int, int]]:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return [(str(path), (stat := os.stat(path)).st_mtime_ns, stat.st_size) for path in files]

    before = state()
    task = ALFWorldTextWorld.tasks("valid_unseen", source="official")[0]

    async def play() -> list[float]:
        async def one() -> float:
            host = open_host("alfworld-textworld")
            await host.reset(task)
            rewards = [(await host.step(command))[1] for command in game(task).plan]
            await host.close()
            return sum(rewards)

        return list(await asyncio.gather(one(), one()))

    assert asyncio.run(play()) == [1.0, 1.0]
    assert state() == before


@pytest.mark.slow
@pytest.mark.usefixtures("textworld")
def test_a_sample_of_games_is_told_alike(
    parity: ModuleType, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twelve games, most of them official ones where they are there; the whole is `benchmarks/parity.py`."""
    if os.environ.get("HARNESS_TEST_DATA"):
        monkeypatch.setenv("ALFWORLD_DATA", str(request.getfixturevalue("official_games")[1]))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peer = Reference()
    both = parity.Parity(peer)
    for played in parity.choose(1000, 12):
        both.both(played, 60)
    peer.close()
    assert both.told.total() > 600
    assert not both.differences
