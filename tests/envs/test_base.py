"""What every world has by being a TextEnv: spaces, wrappers, copies, a vocabulary."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.utils.env_checker import check_env

from harness.envs.base import AnyText, TextEnv, WorldSpec
from harness.envs.echo import Echo
from harness.envs.errors import UserError, WorldError
from harness.envs.novice import Novice, overheard
from harness.envs.registry import TABLE, register_gymnasium, world_class

register_gymnasium()

ROWS = [row for row in TABLE if row.name not in ("mcp", "alfworld-textworld")]
"""mcp has no tasks before a file declares its servers, and TextWorld may be missing."""


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_gymnasium_finds_nothing_to_say(row: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(row.gym_id)
        check_env(env.unwrapped)
        env.close()


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_the_step_limit_is_gymnasiums_too(row: Any) -> None:
    assert row.max_steps == world_class(row.name).world.max_steps
    env = gymnasium.make(row.gym_id)
    env.reset(seed=0)
    for number in range(1, row.max_steps + 1):
        *_, terminated, truncated, _ = env.step("no such thing")
        assert truncated == (number == row.max_steps)
        if terminated:
            break
    assert terminated or truncated
    env.close()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: wrappers.TimeLimit(env, 3),
        wrappers.Autoreset,
        wrappers.OrderEnforcing,
        wrappers.PassiveEnvChecker,
        wrappers.RecordEpisodeStatistics,
        lambda env: wrappers.TransformObservation(env, str.upper, None),
        lambda env: wrappers.TransformAction(env, str.strip, None),
        lambda env: wrappers.TransformReward(env, lambda reward: 2 * float(reward)),
        lambda env: wrappers.DelayObservation(env, 1),
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.StickyAction(env, 0.5),
        lambda env: wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 3), flatten=False),
    ],
)
def test_gymnasiums_wrappers_work(wrap: Any) -> None:
    env = wrap(Echo())
    env.reset(seed=1, options={"task": Echo.tasks("train")[0]})
    _, _, terminated, truncated, _ = env.step("say apple")
    assert not truncated
    assert not terminated


def test_a_vector_of_worlds() -> None:
    vector = gymnasium.make_vec("harness/Echo-v0", 3, vectorization_mode="sync")
    observations, _ = vector.reset(seed=1)
    assert len(set(observations)) > 1
    _, rewards, *_ = vector.step(tuple(f"say {text.rstrip('.').split()[-1]}" for text in observations))
    assert np.array_equal(rewards, [0.5, 0.5, 0.5])
    vector.close()


def test_samples_are_examples_where_there_are_any() -> None:
    space = AnyText(["go north", "go south"], seed=3)
    assert {space.sample() for _ in range(50)} == {"go north", "go south"}
    assert AnyText(seed=3).sample() == AnyText(seed=3).sample()
    assert "anything" in space
    assert 3 not in space


def test_a_copy_goes_its_own_way() -> None:
    world = Echo()
    world.reset(options={"task": Echo.tasks("train")[0]})
    copy = world.clone()
    copy.step("no")
    assert (world.turn, copy.turn) == (0, 1)


class Fixed(TextEnv):
    world = WorldSpec(id="fixed", description="d", max_steps=2, version="3", grader_version="2")

    @classmethod
    def tasks(cls, split: str, **options: Any) -> Any:
        return Echo.tasks(split)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "unusual words", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "other words", 0.0, False, False, {}


def test_a_world_that_does_not_promise_copies_gives_none() -> None:
    with pytest.raises(WorldError, match="cannot be cloned"):
        Fixed().clone()


def test_what_scores_must_share() -> None:
    assert Fixed.world.edition == "3+2"
    assert Echo.world.edition == "1+1"
    assert world_class("math").world.edition == "1+1"


def test_a_vocabulary_is_overheard_where_none_is_given() -> None:
    said = " ".join(Fixed.texts())
    assert "unusual words" in said
    assert "other words" in said
    assert "I repeat it." in overheard(Echo)  # the expert's


def test_a_world_that_breaks_in_practice_is_told_to_its_author() -> None:
    class Breaks(Fixed):
        def step(self, action: str) -> Any:
            raise ValueError("a bug")

    with pytest.raises(UserError, match=r"broke in a practice episode: ValueError: a bug.*harness env check"):
        Breaks.texts()


def test_a_novice_knows_the_form_alone() -> None:
    info = {"admissible": ["b", "a"]}
    assert {Novice(Fixed, i).act("", info)[1] for i in range(20)} == {"a", "b"}
    assert Novice(Fixed, 1).act("", {}) == Novice(Fixed, 1).act("", {})

    tool = {
        "name": "book",
        "description": "",
        "parameters": {
            "properties": {"room": {"enum": ["A", "B"]}, "hour": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["room", "hour"],
        },
    }
    call = json.loads(Novice(Fixed).act("", {"tools": [tool]})[1])
    assert call["name"] == "book"
    assert call["arguments"]["room"] in ("A", "B")
    assert set(call["arguments"]) == {"room", "hour"}

    class Shows(Fixed):
        action_space = AnyText(["say yes"])

    assert Novice(Shows).act("", {}) == ("", "say yes")
