"""The expert reads sentences, plays well, and finds its way back from mistakes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from harness.envs.alfworld.engine import Episode
from harness.envs.alfworld.expert import SearchExpert, read_goal
from harness.envs.alfworld.game import Game, Goal
from harness.envs.alfworld.generator import TASK_TYPES, generate
from harness.envs.errors import WorldError

STEPS = 50


def play(game: Game, *, slips: float = 0.0) -> int:
    """Steps until the expert has won, or 0. Some of its actions are replaced by slips."""
    rng = random.Random(game.id)
    expert, episode = SearchExpert(), Episode(game)
    observation = episode.observation
    for step in range(1, STEPS + 1):
        thought, action = expert.act(observation, {})
        assert thought.endswith(".")
        assert "\n" not in thought + action
        if rng.random() < slips:
            thought, action = expert.slip(rng)
            assert thought.endswith(".")
        observation = episode.step(action)
        if episode.won:
            return step
    return 0


@pytest.mark.parametrize(
    ("sentence", "goal"),
    [
        ("put a mug in desk.", Goal(item="mug", receptacle="desk")),
        ("put some mug on desk.", Goal(item="mug", receptacle="desk")),
        ("look at mug under the desklamp.", Goal(item="mug", lamp="desklamp")),
        ("examine the mug with the desklamp.", Goal(item="mug", lamp="desklamp")),
        ("put a clean mug in desk.", Goal(item="mug", receptacle="desk", verb="clean")),
        ("put a hot mug in desk.", Goal(item="mug", receptacle="desk", verb="heat")),
        ("cool some mug and put it in desk.", Goal(item="mug", receptacle="desk", verb="cool")),
        ("put two mug in desk.", Goal(item="mug", receptacle="desk", count=2)),
        ("find two mug and put them in desk.", Goal(item="mug", receptacle="desk", count=2)),
    ],
)
def test_sentences(sentence: str, goal: Goal) -> None:
    assert read_goal(sentence) == goal


def test_other_sentences_are_refused() -> None:
    with pytest.raises(WorldError, match="make tea"):
        read_goal("make tea.")


@pytest.mark.parametrize("task_type", TASK_TYPES)
@pytest.mark.parametrize("whole", [False, True])
def test_generated_games(task_type: str, whole: bool) -> None:
    size = {"receptacles": None, "objects": None} if whole else {}
    steps = [play(generate(seed, split="valid_unseen", task_types=[task_type], **size)) for seed in range(100)]
    assert sum(map(bool, steps)) >= (97 if whole else 100)


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_recovery_from_slips(task_type: str) -> None:
    steps = [play(generate(seed, task_types=[task_type]), slips=0.2) for seed in range(100)]
    assert sum(map(bool, steps)) >= 98


def test_actions_name_nothing_that_was_not_just_read_or_thought() -> None:
    for seed in range(50):
        episode = Episode(generate(seed))
        expert, observation = SearchExpert(), episode.observation
        for _ in range(STEPS):
            thought, action = expert.act(observation, {})
            for name in re.findall(r"\w+ \d+", action):
                assert name in thought or name in observation, (thought, action)
            observation = episode.step(action)
            if episode.won:
                break
        assert episode.won


def test_one_expert_plays_one_game_after_the_other() -> None:
    expert = SearchExpert()
    for seed in range(5):
        episode = Episode(generate(seed))
        observation = episode.observation
        for _ in range(STEPS):
            observation = episode.step(expert.act(observation, {})[1])
            if episode.won:
                break
        assert episode.won


@pytest.mark.slow
def test_official_games(official_games: tuple[list[Game], Path]) -> None:
    games, _ = official_games
    for split in ("train", "valid_seen", "valid_unseen"):
        steps = [play(game) for game in games if game.id.startswith(split + "/")]
        assert sum(map(bool, steps)) / len(steps) >= 0.99, split
        assert sum(steps) / len(steps) < 12, split
