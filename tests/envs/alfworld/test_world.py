"""ALFWorld keeps the contract of worlds, for both kinds of game."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from harness.envs.alfworld.engine import NOTHING, Episode
from harness.envs.alfworld.expert import SearchExpert
from harness.envs.alfworld.game import Game
from harness.envs.alfworld.generator import generate
from harness.envs.alfworld.world import ALFWorld, game
from harness.envs.base import Task
from harness.envs.errors import UnknownName, UserError, WorldError


@pytest.fixture(autouse=True)
def no_official_games(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_gymnasium_finds_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(ALFWorld(), skip_render_check=True)


def test_an_episode_from_beginning_to_end() -> None:
    task = ALFWorld.tasks("valid_unseen")[7]
    world = ALFWorld()
    observation, info = world.reset(options={"task": task})
    assert "Your task is to: " in observation
    assert info["task_type"] in task.data["task_types"]
    assert "look" in info["admissible"]
    observation, reward, terminated, truncated, info = world.step("fly to the moon")
    assert (observation, reward, terminated, truncated) == (NOTHING, 0.0, False, False)
    for command in (plan := game(task).plan):
        assert not terminated
        assert command in info["admissible"]
        observation, reward, terminated, truncated, info = world.step(command)
        assert not truncated
    assert (reward, terminated, info["won"]) == (1.0, True, True), plan


def test_the_expert_plays_through_the_contract() -> None:
    world, won = ALFWorld(), 0.0
    for task in ALFWorld.tasks("train")[:20]:
        observation, info = world.reset(options={"task": task})
        expert = world.expert()
        for _ in range(world.world.max_steps):
            observation, reward, terminated, _, info = world.step(expert.act(observation, info)[1])
            won += reward
            if terminated:
                break
    assert won == 20


def test_a_command_that_cannot_be_done_is_told_as_refused() -> None:
    world = ALFWorld()
    _, info = world.reset(seed=0)
    assert world.step("fly to the moon")[4]["refused"] is True
    assert world.step(info["admissible"][0])[4]["refused"] is False


def test_step_before_reset() -> None:
    with pytest.raises(WorldError, match="before reset"):
        ALFWorld().step("look")


def test_seeds_of_splits_never_meet_and_ids_tell_tasks_apart() -> None:
    splits = ("train", "valid_seen", "valid_unseen")
    tasks = [ALFWorld.tasks(split) for split in splits]
    ends = [[part[i] for i in (*range(500), *range(-500, 0))] for part in tasks]
    assert len({task.seed for part in ends for task in part}) == 3000
    sizes: list[dict[str, Any]] = [
        {},
        {"receptacles": None, "objects": None},
        {"receptacles": (5, 9)},
        {"objects": (5, 9)},
        {"task_types": ["look_at_obj_in_light"]},
    ]
    assert len({ALFWorld.tasks("train", **size)[3].key for size in sizes}) == len(sizes)
    assert tasks[0][3].key == "alfworld/train/3"


@pytest.mark.parametrize(
    "options",
    [{}, {"receptacles": None, "objects": None}, {"receptacles": [8, 12], "task_types": ["look_at_obj_in_light"]}],
)
def test_a_task_is_rebuilt_from_its_json(options: dict[str, Any]) -> None:
    task = ALFWorld.tasks("valid_seen", **options)[11]
    again = Task(
        **json.loads(
            json.dumps({"env": task.env, "id": task.id, "split": task.split, "seed": task.seed, "data": task.data})
        )
    )
    ALFWorld().reset(options={"task": again})
    made = generate(
        task.seed,
        split="valid_seen",
        receptacles=again.data["receptacles"] and tuple(again.data["receptacles"]),
        objects=again.data["objects"] and tuple(again.data["objects"]),
        task_types=again.data["task_types"],
    )
    assert game(task) == game(again) == made


def test_task_types_are_kept_to() -> None:
    tasks = ALFWorld.tasks("train", task_types=["pick_two_obj_and_place"])
    assert {game(task).task_type for task in tasks[:10]} == {"pick_two_obj_and_place"}
    assert ALFWorld.tasks("train", task_types="pick_two_obj_and_place")[0] == tasks[0]


def test_mistakes_are_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'train'"):
        ALFWorld.tasks("trian")
    with pytest.raises(UnknownName, match="Did you mean 'receptacles'"):
        ALFWorld.tasks("train", receptacle=(4, 7))
    with pytest.raises(UnknownName, match="Did you mean 'official'"):
        ALFWorld.tasks("train", source="oficial")
    with pytest.raises(UnknownName, match="look_at_obj_in_light"):
        ALFWorld.tasks("train", task_types=["look_at_obj"])
    wrong: list[Any] = [4, "4-7", (4,), (7, 4), ("a", "b")]
    for bounds in wrong:
        with pytest.raises(UserError, match="smallest"):
            ALFWorld.tasks("train", receptacles=bounds)
    with pytest.raises(UserError, match="ALFWORLD_DATA"):
        ALFWorld.tasks("valid_train")
    with pytest.raises(UserError, match="ALFWORLD_DATA"):
        ALFWorld.tasks("train", source="official")


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+|[^\w\s]", text))


def unknown_words(games: list[Game]) -> set[str]:
    """Words of the games, of their admissible commands and of the expert's thoughts that `texts` does not show."""
    known = words(" ".join(ALFWorld.texts()))
    said: set[str] = set()
    for played in games:
        expert, episode = SearchExpert(), Episode(played)
        observation = episode.observation
        for _ in range(ALFWorld.world.max_steps):
            thought, action = expert.act(observation, {})
            said |= words(" ".join([observation, thought, action, *episode.admissible]))
            observation = episode.step(action)
            if episode.won:
                break
        said |= words(observation)
    return said - known


def test_texts_show_every_word() -> None:
    sizes: list[dict[str, None]] = [{"receptacles": None, "objects": None}, {}]
    assert not unknown_words([generate(seed, split="valid_unseen", **sizes[seed % 2]) for seed in range(200)])
    assert list(ALFWorld.texts()) == list(ALFWorld.texts())


@pytest.mark.slow
def test_official_games_behind_the_contract(
    official_games: tuple[list[Game], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    games, folder = official_games
    assert not unknown_words(games[::20])
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    tasks = ALFWorld.tasks("valid_unseen")
    assert len(tasks) == 134
    assert "path" in tasks[0].data
    assert "path" not in ALFWorld.tasks("valid_unseen", source="generated")[0].data
    assert len(ALFWorld.tasks("valid_train")) == 3
    opening, info = ALFWorld().reset(options={"task": tasks[0]})
    assert info["task_type"] == tasks[0].id.split("-")[0]
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    monkeypatch.setenv("ALFWORLD_DATA", str(moved))
    assert ALFWorld().reset(options={"task": tasks[0]})[0] == opening, "another machine keeps its games elsewhere"
    monkeypatch.delenv("ALFWORLD_DATA")
    with pytest.raises(UserError, match="ALFWORLD_DATA"):
        ALFWorld().reset(options={"task": tasks[0]})
