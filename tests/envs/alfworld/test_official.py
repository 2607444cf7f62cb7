"""Official games: found, read, refused, and won by their own walkthroughs."""

from __future__ import annotations

import json
import multiprocessing
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from harness.envs.alfworld import official
from harness.envs.alfworld.engine import NOTHING, Episode
from harness.envs.alfworld.game import Game, Goal
from harness.envs.alfworld.generator import generate
from harness.envs.alfworld.pddl import problem
from harness.envs.alfworld.world import ALFWorld
from harness.envs.errors import UnknownName, UserError, WorldError

PATH = "train/pick_and_place_simple-Mug-None-Desk-301/trial_T1/game.tw-pddl"
INIT = """
    (receptacleType Desk_bar__plus_01 DeskType) (receptacleAtLocation Desk_bar__plus_01 loc_bar_1)
    (receptacleType Drawer_bar__plus_02 DrawerType) (receptacleAtLocation Drawer_bar__plus_02 loc_bar_2)
    (receptacleType Drawer_bar__minus_02 DrawerType) (receptacleAtLocation Drawer_bar__minus_02 loc_bar_2)
    (receptacleType Sink_bar__plus_03_bar_SinkBasin SinkBasinType)
    (receptacleAtLocation Sink_bar__plus_03_bar_SinkBasin loc_bar_3)
    (openable Drawer_bar__plus_02) (openable Drawer_bar__minus_02)
    (objectType Mug_bar__plus_09 MugType) (inReceptacle Mug_bar__plus_09 Sink_bar__plus_03_bar_SinkBasin)
    (objectAtLocation Mug_bar__plus_09 loc_bar_3) (pickupable Mug_bar__plus_09) (coolable Mug_bar__plus_09)
    (objectType Sink_bar__plus_03 SinkType) (objectAtLocation Sink_bar__plus_03 loc_bar_7)
    (isCool Mug_bar__plus_09) (isReceptacleObject Mug_bar__plus_09)
    (canContain DeskType MugType) (atLocation agent1 loc_bar_0)"""


def write(init: str = INIT, goal: str = "(objectType ?o MugType) (receptacleType ?r DeskType)") -> str:
    return json.dumps(
        {
            "pddl_domain": "",
            "grammar": '"rhs": "Your task is to: put a mug in desk."',
            "pddl_problem": f"(define (problem x) (:init {init}) (:goal (and {goal} (inReceptacle ?o ?r))))",
            "solvable": True,
            "walkthrough": ["go to sinkbasin 1"],
        }
    )


def put(folder: Path, path: str, text: str) -> None:
    file = folder / official.LAYOUT / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $ALFWORLD_DATA, and a cache folder of its own."""
    folder = tmp_path / "data"
    (folder / official.LAYOUT).mkdir(parents=True)
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_a_small_game_is_read_whole() -> None:
    game = official.parse(write(), PATH)
    assert [receptacle.name for receptacle in game.receptacles] == ["desk 1", "drawer 2", "drawer 1", "sinkbasin 1"]
    assert [receptacle.openable for receptacle in game.receptacles] == [False, True, True, False]
    assert game.receptacles[1].place == game.receptacles[2].place
    assert [item.name for item in game.items] == ["mug 1", "sink 1"], "the sink itself is not its basin"
    mug = game.items[0]
    assert mug.can == {"take", "cool"}
    assert mug.vessel
    assert game.cool == {0}
    assert game.contents == ((), (), (), (0,))
    assert game.receptacles[0].accepts == {"mug"}
    assert game.goal == Goal(item="mug", receptacle="desk")
    assert (game.task, game.task_type, game.plan) == (
        "put a mug in desk.",
        "pick_and_place_simple",
        ("go to sinkbasin 1",),
    )
    episode = Episode(game)
    for command in ("go to sinkbasin 1", "take mug 1 from sinkbasin 1", "go to desk 1", "move mug 1 to desk 1"):
        assert episode.step(command) != NOTHING
    assert episode.won


def test_what_is_in_itself_is_not_told() -> None:
    itself = " (inReceptacleObject Mug_bar__plus_09 Mug_bar__plus_09)"
    episode = Episode(official.parse(write(INIT + itself), PATH))
    for command in ("go to sinkbasin 1", "take mug 1 from sinkbasin 1"):
        episode.step(command)
    assert episode.step("examine mug 1") == "This is a normal mug 1. In it, you see nothing."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting"),
        ("{}", "pddl_problem"),
        (write(INIT + " (isBroken Mug_bar__plus_09)"), "isbroken"),
        (write(INIT.replace("agent1 loc_bar_0", "agent1 loc_bar_1")), "start"),
        (write(goal="(objectType ?o MugType) (receptacleType ?r DeskType) (isClean ?o) (isHot ?o)"), "goal"),
        (write(goal="(receptacleType ?r DeskType)"), "goal"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, reason: str) -> None:
    with pytest.raises(WorldError, match=reason):
        official.parse(text, PATH)


def test_the_index_keeps_to_playable_games_and_notices_changes(data: Path, tmp_path: Path) -> None:
    put(data, PATH, write())
    put(data, PATH.replace("trial_T1", "trial_T0"), write().replace('"solvable": true', '"solvable": false'))
    put(data, PATH.replace("Mug-None", "MugSliced-None"), write())
    put(data, PATH.replace("pick_and_place_simple", "pick_and_place_with_movable_recep"), write())
    (data / official.LAYOUT / "train" / "README").write_text("not a task")
    (data / official.LAYOUT / "train" / "empty" / "trial").mkdir(parents=True)
    assert official.games("train") == (PATH,)
    assert list((tmp_path / "cache").rglob("*.json"))
    assert official.games("train") == (PATH,), "from the cache"
    second = PATH.replace("trial_T1", "trial_T0")
    put(data, second, write())
    assert official.games("train") == (second, PATH), "a game that changed is looked at again"
    (data / official.LAYOUT / PATH).unlink()
    assert official.games("train") == (second,)
    for file in (tmp_path / "cache").rglob("*.json"):
        file.write_text("broken")
    assert official.games("train") == (second,)


def test_a_human_goal_stands_beside_the_game(data: Path) -> None:
    put(data, PATH, write())
    with pytest.raises(UserError, match="goals='template'"):
        official.human(PATH)
    for said in ({}, {"turk_annotations": {"anns": []}}, []):
        put(data, PATH.replace(official.GAME, "traj_data.json"), json.dumps(said))
        with pytest.raises(UserError, match="goals='template'"):
            official.human(PATH)
    told = {"turk_annotations": {"anns": [{"task_desc": " Put the cup on \n the table. "}, {"task_desc": "No."}]}}
    put(data, PATH.replace(official.GAME, "traj_data.json"), json.dumps(told))
    tasks = [ALFWorld.tasks("train", source="official", goals=goals)[0] for goals in ("template", "human")]
    assert tasks[1].id == f"{tasks[0].id}@human"
    for task, goal, expert in zip(
        tasks, ("put a mug in desk.", "Put the cup on the table."), (True, False), strict=True
    ):
        world = ALFWorld()
        assert world.reset(options={"task": task})[0].endswith(f"Your task is to: {goal}")
        assert (world.expert() is not None) is expert
    with pytest.raises(UserError, match="generated"):
        ALFWorld.tasks("train", source="generated", goals="human")
    with pytest.raises(UnknownName, match="goals"):
        ALFWorld.tasks("train", goals="humane")


def test_processes_may_look_for_games_at_one_time(data: Path, tmp_path: Path) -> None:
    put(data, PATH, write())
    found: list[tuple[str, ...]] = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(official.games, ["train"] * 8))
    assert set(found) == {(PATH,)}
    assert [file.suffix for file in (tmp_path / "cache").rglob("*") if file.is_file()] == [".json"], "no draft is left"


def test_missing_games_are_explained(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'valid_seen'"):
        official.games("valid_sen")
    with pytest.raises(UserError, match="alfworld-download"):
        official.games("valid_seen")
    with pytest.raises(UserError, match="cannot be read"):
        official.read(PATH)
    monkeypatch.setenv("ALFWORLD_DATA", str(data / "elsewhere"))
    with pytest.raises(UserError, match="has no folder"):
        official.games("train")
    monkeypatch.delenv("ALFWORLD_DATA")
    assert official.root() is None
    with pytest.raises(UserError, match="is not set"):
        official.games("train")


def test_generated_games_survive_the_official_form(parity: ModuleType) -> None:
    """What is written for TextWorld is the game itself: read back, it plays alike."""
    for seed in range(30):
        game = generate(seed, receptacles=None, objects=None) if seed % 2 else generate(seed)
        grammar = f'"rhs": "Your task is to: {game.task}"'
        text = json.dumps({"pddl_problem": problem(game), "grammar": grammar, "walkthrough": game.plan})
        again = official.parse(text, f"train/{game.task_type}-made/trial/game.tw-pddl")
        assert (again.goal, again.task_type, again.plan) == (game.goal, game.task_type, game.plan)
        ours, theirs = Episode(game), Episode(again)
        assert theirs.observation == ours.observation
        for command in (*parity.walk(random.Random(seed), ours, 30), *game.plan):
            assert theirs.step(command) == ours.step(command)
            assert theirs.admissible == list(ours.admissible)
            assert theirs.won == ours.won


@pytest.mark.slow
def test_all_official_walkthroughs_win(official_games: tuple[list[Game], Path]) -> None:
    games, _ = official_games
    assert Counter(game.id.split("/")[0] for game in games) == official.SPLITS
    kinds = Counter(game.task_type for game in games if game.id.startswith("valid_unseen/"))
    assert sorted(kinds.values()) == [17, 18, 21, 23, 24, 31]
    for game in games:
        episode = Episode(game)
        for command in game.plan:
            assert not episode.won, game.id
            assert episode.step(command) != NOTHING, (game.id, command)
        assert episode.won, game.id


@pytest.mark.slow
def test_official_oddities_are_there(official_games: tuple[list[Game], Path]) -> None:
    games = [game for game in official_games[0] if game.id.startswith("valid_unseen/")]
    assert sum(any(len(here) > 1 for here in game.here) for game in games) == 115
    placed = [Counter(i for row in game.contents for i in row) for game in games]
    assert sum(max(counts.values()) > 1 for counts in placed) == 102
