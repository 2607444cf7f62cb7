"""Generated games can be won, are what was asked for, and never change."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.alfworld import rooms
from harness.envs.alfworld.engine import NOTHING, Episode
from harness.envs.alfworld.expert import read_goal
from harness.envs.alfworld.game import Game
from harness.envs.alfworld.generator import SPLITS, TASK_TYPES, generate
from harness.envs.errors import UnknownName, UserError

SPANS = st.none() | st.tuples(st.integers(4, 8), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1]))


def told(game: Game) -> str:
    """All that makes a game what it is, in a form that no hash seed can change."""
    things = [(item.name, sorted(item.can), item.inside) for item in game.items]
    places = [(receptacle.name, receptacle.place, receptacle.openable) for receptacle in game.receptacles]
    return json.dumps([game.opening, game.task_type, things, places, game.contents, game.lying, game.plan])


def digest() -> str:
    games = [generate(seed, split=split) for split in SPLITS for seed in range(40)]
    games += [generate(seed, receptacles=None, objects=None) for seed in range(40)]
    return hashlib.sha256("\n".join(map(told, games)).encode()).hexdigest()


@given(
    seed=st.integers(0, 2**40),
    split=st.sampled_from(SPLITS),
    receptacles=SPANS,
    objects=SPANS,
    task_type=st.none() | st.sampled_from(list(TASK_TYPES)),
)
@settings(deadline=None)
def test_a_game_is_won_by_its_own_plan_and_by_nothing_less(
    seed: int,
    split: str,
    receptacles: tuple[int, int] | None,
    objects: tuple[int, int] | None,
    task_type: str | None,
) -> None:
    game = generate(seed, split=split, receptacles=receptacles, objects=objects, task_types=task_type and [task_type])
    assert task_type in (None, game.task_type)
    assert read_goal(game.task) == game.goal, "the sentence says what the goal is"
    episode = Episode(game)
    for receptacle in game.receptacles:  # a visit everywhere wins nothing
        episode.step(f"go to {receptacle.name}")
        assert not episode.won
    episode = Episode(game)
    for command in game.plan:
        assert not episode.won
        assert command in episode.admissible
        assert episode.step(command) != NOTHING
    assert episode.won
    assert len(game.receptacle_of) == len(game.receptacles)
    assert len(game.item_of) == len(game.items)
    if receptacles is not None:
        assert receptacles[0] <= len(game.receptacles) <= receptacles[1]
    if objects is not None:
        assert objects[0] <= len({item.kind for item in game.items}) <= objects[1]


def test_games_are_the_same_under_every_hash_seed_and_for_ever() -> None:
    here = os.path.dirname(__file__)
    code = f"import sys; sys.path.insert(0, {here!r}); from test_generator import digest; print(digest())"
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()
    # Whoever changes this changes what every published score on generated games means: raise WorldSpec.version.
    assert digest() == "c932cbb52e4fa8792a7701e6feec8a48b008d0df425846fbe760d2555f1f62ea"


def test_splits_and_seeds_give_different_games() -> None:
    games = [told(generate(seed, split=split)) for split in SPLITS for seed in range(200)]
    assert len(set(games)) == len(games)


def test_unseen_rooms_are_seen_in_no_other_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, int]] = set()
    original = rooms.room

    def note(kind: str, number: int) -> rooms.Room:
        asked.add((kind, number))
        return original(kind, number)

    monkeypatch.setattr(rooms, "room", note)
    seen = {}
    for split in SPLITS:
        asked = set()
        for seed in range(300):
            generate(seed, split=split)
        seen[split] = asked
    assert not seen["valid_unseen"] & (seen["train"] | seen["valid_seen"])
    assert {kind for kind, _ in seen["valid_unseen"]} == set(rooms.ROOMS)
    assert seen["valid_seen"] & seen["train"]


def test_whole_rooms_look_like_official_ones() -> None:
    games = [generate(seed, receptacles=None, objects=None) for seed in range(200)]
    assert 15 <= sum(len(game.receptacles) for game in games) / len(games) <= 26
    assert 25 <= sum(len(game.items) for game in games) / len(games) <= 50
    shared = sum(any(len(here) > 1 for here in game.here) for game in games)
    doubled = sum(len({i for row in game.contents for i in row}) < sum(map(len, game.contents)) for game in games)
    assert shared > 100
    assert doubled > 30
    assert {game.task_type for game in games} == set(TASK_TYPES)


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'valid_unseen'"):
        generate(0, split="valid_unsee")
    with pytest.raises(UnknownName, match="Did you mean 'pick_two_obj_and_place'"):
        generate(0, task_types=["pick_two_objects_and_place"])
    with pytest.raises(UserError, match="smallest <= largest"):
        generate(0, receptacles=(7, 4))
    with pytest.raises(UserError, match="widen the bounds"):
        generate(0, receptacles=(90, 99))
