"""The stand-in world is a world to the letter."""

from __future__ import annotations

import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from harness.envs.echo import WORDS, Echo
from harness.envs.errors import UserError


def test_gymnasium_finds_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("harness.envs.gym:harness/Echo-v0").unwrapped)


@given(index=st.integers(0, 10_000), rounds=st.integers(1, 20), right=st.lists(st.booleans(), min_size=20, max_size=20))
def test_reward_is_exactly_the_share_of_rounds_repeated(index: int, rounds: int, right: list[bool]) -> None:
    world, total, done = Echo(), 0.0, False
    observation, info = world.reset(options={"task": Echo.tasks("train", rounds=rounds)[index]})
    for says in right[:rounds]:
        assert not done
        _, action = world.expert().act(observation, info)
        assert action in info["admissible"]
        observation, reward, done, truncated, info = world.step(action if says else "say nothing")
        total += reward
        assert not truncated
    assert done
    assert total == sum(right[:rounds]) / rounds


def test_splits_share_no_seed() -> None:
    train, held_out = Echo.tasks("train"), Echo.tasks("valid_unseen")
    assert not {task.seed for task in train[:500]} & {task.seed for task in held_out[:500]}


def test_options_are_checked() -> None:
    with pytest.raises(UserError, match="between 1 and 20, got 21"):
        Echo.tasks("train", rounds=21)
    with pytest.raises(UserError, match="option of echo 'round'"):
        Echo.tasks("train", round=2)


def test_texts_hold_every_word_it_says() -> None:
    vocabulary = set(" ".join(Echo.texts()).replace(".", " ").split())
    world = Echo()
    for seed in range(20):
        observation, info = world.reset(seed=seed)
        said = [observation, world.step(f"say {WORDS[seed % 10]}")[0], world.step("")[0], *info["admissible"]]
        assert set(" ".join(said).replace(".", " ").split()) <= vocabulary
