"""World files are modules that any process can import."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.envs import files
from harness.envs.host import HostPool
from harness.envs.registry import world_class
from harness.new import files as new_files

HIGHER = new_files("higher")["higher.py"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a folder: with ümläut" / "my world-2.py"
    path.parent.mkdir()
    path.write_text("from beside import NOTHING\n" + HIGHER.replace('isolation="none"', 'isolation="process"'))
    (path.parent / "beside.py").write_text("NOTHING = None\n")
    return path


def test_a_name_holds_the_path() -> None:
    name = files.module_name(Path("/x/my world.py"))
    assert name.startswith("harness.envs.files.my_world_")
    assert files.path_of(name) == Path("/x/my world.py")
    assert files.path_of("harness.envs.base") is None
    assert files.path_of("harness.envs.files.nothing_zz") is None
    with pytest.raises(ModuleNotFoundError):
        __import__(files.module_name(Path("/nowhere/at/all.py")))


def test_the_same_file_is_the_same_class_by_any_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_class(str(file))
    monkeypatch.chdir(file.parent)
    assert world_class(f"./{file.name}") is world
    assert world_class(f"{world.__module__}:{world.__name__}") is world


def test_its_objects_travel_to_a_process_that_never_heard_of_the_file(file: Path) -> None:
    world = world_class(str(file))()
    world.reset(seed=3)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).number)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(world), capture_output=True, check=True)
    assert int(done.stdout) == vars(world)["number"]


def first_observation(world: type[Any]) -> str:
    return str(world().reset(seed=3)[0])


@pytest.mark.slow
def test_spawned_processes_and_worker_processes_find_it(file: Path) -> None:
    world = world_class(str(file))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(getattr, (world, "world"))
    assert there == world.world

    async def play() -> str:
        hosts = HostPool(str(file), size=1)
        async with hosts.lease() as host:
            observation, _ = await host.reset(world.tasks("train")[0])
        await hosts.close()
        return observation

    assert "number from 1 to 15" in asyncio.run(play())
