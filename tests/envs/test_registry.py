"""Names of worlds: found quickly, found wrong kindly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import harness.envs.gym  # noqa: F401 - registers the ids
from harness.envs.echo import Echo
from harness.envs.errors import UnknownName, UserError
from harness.envs.registry import TABLE, names, world_class

SMALLEST = """\
from harness.envs.base import Task, TextEnv, WorldSpec
from harness.envs.tasks import LazyTasks


class Parity(TextEnv):
    world = WorldSpec(id="parity", description="odd or even?", max_steps=1, isolation="none")

    @classmethod
    def tasks(cls, split, **options):
        return LazyTasks(100, lambda i: Task(env="parity", split=split, id=str(i), seed=i))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        task = (options or {}).get("task") or self.tasks("train")[(seed or 0) % 100]
        self.number = task.seed
        return f"Is {self.number} odd or even?", {}

    def step(self, action):
        right = action.strip() == ("odd" if self.number % 2 else "even")
        return "Yes." if right else "No.", float(right), True, False, {}
"""


def test_every_row_of_the_table_names_a_world_that_agrees_with_it() -> None:
    for row in TABLE:
        spec = world_class(row.name).world
        assert (spec.id, spec.description) == (row.name, row.description)


def test_gymnasium_id_and_module_and_class_work_as_names() -> None:
    assert world_class("harness/Echo-v0") is Echo
    assert world_class("harness.envs.echo:Echo") is Echo


def test_unknown_name_suggests_the_near_one() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'alfworld'"):
        world_class("alfwrld")


def test_listing_imports_no_world_and_no_gymnasium() -> None:
    code = (
        "import sys; from harness.envs.registry import names; assert names();"
        "bad = {'gymnasium', 'numpy', 'torch', 'sympy', 'harness.envs.base'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_with_one_world_is_a_world(tmp_path: Path) -> None:
    file = tmp_path / "parity.py"
    file.write_text(SMALLEST)
    world = world_class(str(file))
    assert world.world.id == "parity"
    assert world_class(str(file)) is world
    assert len(SMALLEST.splitlines()) <= 25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef broken(:\n", "line 2"),
        ("a = 1\nb = a / 0\n", "line 2: ZeroDivisionError"),
        ("import no_such_module_anywhere\n", "line 1: ModuleNotFoundError"),
        ("x = 1\n", "found none"),
        (SMALLEST + "\n\nclass Second(Parity):\n    pass\n", "found Parity, Second"),
        ("from harness.envs.base import TextEnv\n\n\nclass Bare(TextEnv):\n    pass\n", "lacks `world = WorldSpec"),
    ],
)
def test_a_broken_file_is_a_user_error_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        world_class(str(file))


def test_a_missing_file_module_or_class_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        world_class(str(tmp_path / "none.py"))
    with pytest.raises(UserError, match="cannot import no_such_module"):
        world_class("no_such_module:World")
    with pytest.raises(UserError, match="no subclass of TextEnv named 'Nothing'"):
        world_class("harness.envs.echo:Nothing")


def test_another_package_offers_a_world_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parity_world.py").write_text(SMALLEST)
    info = tmp_path / "parity_world-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parity-world\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[harness.envs]\nparity = parity_world:Parity\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert ("parity", "from the package parity-world") in [(row.name, row.description) for row in names()]
    assert world_class("parity").world.id == "parity"


@pytest.mark.parametrize("gym_id", [row.gym_id for row in TABLE if row.name != "alfworld-textworld"])  # needs TextWorld
def test_gymnasium_makes_it(gym_id: str) -> None:
    env = gymnasium.make(gym_id)
    observation, _ = env.reset(seed=3)
    assert env.reset(seed=3)[0] == observation
    env.close()
