"""Text environments of other packages, by their Gymnasium id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.envs.host import open_host
from harness.envs.registry import world_class

PACKAGE = """\
import gymnasium
from gymnasium.spaces import Text


class Guess(gymnasium.Env):
    observation_space, action_space = Text(100, charset=frozenset(map(chr, range(32, 127)))), Text(100)

    def __init__(self, top=5):
        self.top = top

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(self.top))
        return f"below {self.top}", {}

    def step(self, action):
        return "hm", float(action == str(self.number)), False, False, {}


gymnasium.register("foreign/Guess-v3", entry_point=Guess, max_episode_steps=7, kwargs={"top": 9})
"""


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign_package.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the worker


@pytest.mark.slow
def test_it_is_played_like_any_world_in_a_process_of_its_own() -> None:
    name = "foreign_package:foreign/Guess-v3"
    world = world_class(name)
    assert world_class(name) is world
    assert (world.world.max_steps, world.world.isolation) == (7, "process")
    train, held_out = world.tasks("train"), world.tasks("valid_unseen")
    assert not {task.seed for task in train[:50]} & {task.seed for task in held_out[:50]}

    async def play() -> tuple[str, float]:
        host = open_host(name)
        observation, _ = await host.reset(train[3])
        total, ended = 0.0, False
        for guess in range(9):
            if not ended:
                _, reward, _, ended, _ = await host.step(str(guess))
                total += reward
        await host.close()
        return observation, total

    observation, total = asyncio.run(play())
    assert observation == "below 9"
    assert total in (0.0, 1.0)


def test_our_own_ids_are_our_own_classes() -> None:
    assert world_class("harness.envs.gym:harness/Echo-v0") is Echo


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CartPole-v1", "cannot be played by a language model: its observations are Box"),
        ("nothing/Such-v0", "is no Gymnasium id"),
        ("no_such_package:nothing/Such-v0", "is no Gymnasium id"),
    ],
)
def test_what_is_no_text_or_not_there(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        world_class(name)
