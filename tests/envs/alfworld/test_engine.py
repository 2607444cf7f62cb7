"""The rules, one oddity after the other, in a room built by hand; and what holds in any room."""

from __future__ import annotations

import pickle
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.envs.alfworld import rooms
from harness.envs.alfworld.engine import HELP, NOTHING, Episode
from harness.envs.alfworld.game import Game, Goal, Item, Receptacle, listing
from harness.envs.alfworld.generator import generate

ROOM = {  # receptacle: (place, items)
    "cabinet 1": (0, ["plate 1", "tomato 1"]),
    "countertop 1": (1, ["apple 1", "book 1", "knife 1", "mug 1"]),
    "desk 1": (2, ["desklamp 1"]),
    "fridge 1": (3, ["egg 1"]),
    "microwave 1": (4, []),
    "sinkbasin 1": (5, []),
    "stoveburner 2": (6, ["pan 1"]),
    "stoveburner 1": (6, ["pan 1"]),
}
BOOK = Goal(item="book", receptacle="desk")


def build(goal: Goal) -> Game:
    """The room with a goal of one's own. The two burners share a place, and the pan is on both."""
    names = sorted({item for _, items in ROOM.values() for item in items})
    kinds = [name.split()[0] for name in names]
    contents = [tuple(names.index(name) for name in items) for _, items in ROOM.values()]
    lying: list[set[int]] = [set() for _ in range(7)]
    for (place, _), row in zip(ROOM.values(), contents, strict=True):
        lying[place].update(row)
    return Game(
        id="by hand",
        task_type="pick_and_place_simple",
        task="put a book in desk.",
        receptacles=tuple(
            Receptacle(
                name=name,
                kind=name.split()[0],
                place=place,
                openable=name.split()[0] in rooms.OPENABLE,
                accepts=rooms.ACCEPTS[name.split()[0]],
            )
            for name, (place, _) in ROOM.items()
        ),
        items=tuple(
            Item(
                name=name,
                kind=kind,
                can=rooms.abilities(kind),
                vessel=kind in rooms.VESSELS,
                inside=("spoon 2", "spoon 1") if kind == "mug" else (),
            )
            for name, kind in zip(names, kinds, strict=True)
        ),
        contents=tuple(contents),
        lying=tuple(tuple(sorted(row)) for row in lying),
        goal=goal,
        plan=(),
    )


def play(*commands: str, goal: Goal = BOOK) -> tuple[Episode, str]:
    """The episode after the commands, all but the last of which must succeed, and the last answer."""
    episode = Episode(build(goal))
    said = episode.observation
    for left, command in zip(range(len(commands) - 1, -1, -1), commands, strict=True):
        said = episode.step(command)
        assert not left or said != NOTHING, command
    return episode, said


def test_opening_lists_the_room_and_states_the_task() -> None:
    assert play()[1] == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
        "cabinet 1, a countertop 1, a desk 1, a fridge 1, a microwave 1, a sinkbasin 1, a stoveburner 2, and a "
        "stoveburner 1.\n\nYour task is to: put a book in desk."
    )


@pytest.mark.parametrize(
    ("names", "said"), [([], "nothing"), (["a 1"], "a a 1"), (["egg 2", "egg 1"], "a egg 2, and a egg 1")]
)
def test_listing(names: list[str], said: str) -> None:
    assert listing(names) == said


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["go to desk 1"], "You arrive at desk 1. On the desk 1, you see a desklamp 1."),
        (["go to fridge 1"], "You arrive at fridge 1. The fridge 1 is closed."),
        (["go to fridge 1", "open fridge 1"], "You open the fridge 1. The fridge 1 is open. In it, you see a egg 1."),
        (["go to fridge 1", "open fridge 1", "close fridge 1"], "You close the fridge 1."),
        (["go to fridge 1", "open fridge 1", "close fridge 1", "examine fridge 1"], "The fridge 1 is closed."),
        (["go to countertop 1", "take mug 1 from countertop 1"], "You pick up the mug 1 from the countertop 1."),
        (["go to countertop 1", "take mug 1 from countertop 1", "inventory"], "You are carrying: a mug 1."),
        (["inventory"], "You are not carrying anything."),
        (["go to desk 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["go to desk 1", "use desklamp 1", "use desklamp 1"], "You turn on the desklamp 1."),
        (["go to desk 1", "look"], "You are facing the desk 1. Next to it, you see nothing."),
        (["help"], HELP),
        # refused
        (["open fridge 1"], NOTHING),
        (["go to desk 1", "open desk 1"], NOTHING),
        (["go to fridge 1", "close fridge 1"], NOTHING),
        (["go to fridge 1", "open fridge 1", "open fridge 1"], NOTHING),
        (["go to fridge 1", "take egg 1 from fridge 1"], NOTHING),
        (["go to desk 1", "take desklamp 1 from desk 1"], NOTHING),
        (["go to countertop 1", "take egg 1 from countertop 1"], NOTHING),
        (["use desklamp 1"], NOTHING),
        (["go to nowhere 1"], NOTHING),
        (["dance"], NOTHING),
        ([""], NOTHING),
        (["go to countertop 1", "take mug 1 from countertop 1", "take book 1 from countertop 1"], NOTHING),
        (["go to countertop 1", "take book 1 from countertop 1", "go to fridge 1", "move book 1 to fridge 1"], NOTHING),
        (["go to countertop 1", "take mug 1 from countertop 1", "go to fridge 1", "move mug 1 to fridge 1"], NOTHING),
        (
            ["go to countertop 1", "take book 1 from countertop 1", "go to fridge 1", "cool book 1 with fridge 1"],
            NOTHING,
        ),
    ],
)
def test_answers(commands: list[str], said: str) -> None:
    assert play(*commands)[1] == said


def test_going_where_one_stands_is_refused_also_by_way_of_a_neighbour() -> None:
    episode, said = play("go to stoveburner 1", "go to stoveburner 2")
    assert said == NOTHING
    assert "go to stoveburner 2" not in episode.admissible
    assert "examine stoveburner 2" in episode.admissible
    assert episode.step("examine stoveburner 2") == "On the stoveburner 2, you see a pan 1."


def test_items_are_examined_in_the_hand_alone() -> None:
    episode, said = play("go to countertop 1", "examine book 1")
    assert said == NOTHING
    assert "examine book 1" not in episode.admissible
    episode.step("take book 1 from countertop 1")
    assert episode.step("examine book 1") == "There's nothing special about book 1."


def test_look_sees_nothing_before_the_first_move() -> None:
    assert play("look")[1] == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_an_item_on_two_receptacles_wins_early() -> None:
    goal = Goal(item="pan", receptacle="stoveburner", verb="cool")
    episode, _ = play("go to stoveburner 1", "take pan 1 from stoveburner 1", goal=goal)
    assert episode.step("examine stoveburner 2") == "On the stoveburner 2, you see a pan 1."
    assert not episode.won
    episode.step("go to fridge 1")
    episode.step("cool pan 1 with fridge 1")
    assert episode.won, "the pan in the hand still lies on the other burner"


def test_what_moved_between_neighbours_is_told_as_lying_beside_them() -> None:
    episode, said = play("go to stoveburner 1", "take pan 1 from stoveburner 1", "move pan 1 to stoveburner 2", "look")
    assert said == "You are facing the stoveburner 2, and stoveburner 1. Next to it, you see a pan 1."
    assert episode.step("examine stoveburner 1") == "On the stoveburner 1, you see nothing."
    episode.step("take pan 1 from stoveburner 2")
    assert episode.step("look").endswith("you see nothing.")
    episode.step("move pan 1 to stoveburner 1")
    assert episode.step("look").endswith("you see a pan 1."), "it was parted from burner 2 and did not come back"


@pytest.mark.parametrize(
    ("verb", "appliance"), [("heat", "microwave 1"), ("cool", "fridge 1"), ("clean", "sinkbasin 1")]
)
def test_treatment_needs_no_open_door_and_leaves_the_item_in_the_hand(verb: str, appliance: str) -> None:
    episode, said = play(
        "go to countertop 1",
        "take apple 1 from countertop 1",
        f"go to {appliance}",
        f"{verb} apple 1 with {appliance}",
    )
    assert said == f"You {verb} the apple 1 using the {appliance}."
    assert episode.step("inventory") == "You are carrying: a apple 1."


TO_APPLE = ["go to countertop 1", "take apple 1 from countertop 1"]
HEAT = ["go to microwave 1", "heat apple 1 with microwave 1"]
COOL = ["go to fridge 1", "cool apple 1 with fridge 1"]
CLEAN = ["go to sinkbasin 1", "clean apple 1 with sinkbasin 1"]
KNIFE = ["go to countertop 1", "take knife 1 from countertop 1"]
SLICE = [*KNIFE, "slice apple 1 with knife 1", "move knife 1 to countertop 1"]


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ([*TO_APPLE], "There's nothing special about apple 1."),
        ([*TO_APPLE, *HEAT], "This is a hot apple 1."),
        ([*TO_APPLE, *COOL], "This is a cold apple 1."),
        ([*TO_APPLE, *CLEAN], "This is a clean apple 1."),
        ([*TO_APPLE, *HEAT, *COOL], "This is a cold apple 1."),
        ([*TO_APPLE, *COOL, *HEAT], "This is a hot apple 1."),
        ([*TO_APPLE, *CLEAN, *HEAT], "This is a hot and clean apple 1."),
        ([*TO_APPLE, *CLEAN, *COOL], "This is a cool and clean apple 1."),
        ([*SLICE, TO_APPLE[1]], "This is a sliced apple 1."),
        ([*SLICE, TO_APPLE[1], *HEAT], "This is a hot sliced apple 1."),
        ([*SLICE, TO_APPLE[1], *COOL], "This is a cool sliced apple 1."),
        ([*SLICE, TO_APPLE[1], *CLEAN], "This is a clean sliced apple 1."),
        ([*SLICE, TO_APPLE[1], *CLEAN, *HEAT], "This is a hot and clean sliced apple 1."),
        ([*SLICE, TO_APPLE[1], *CLEAN, *COOL], "This is a cool and clean sliced apple 1."),
    ],
)
def test_appearance(commands: list[str], said: str) -> None:
    assert play(*commands, "examine apple 1")[1] == said


def test_vessels_tell_what_is_inside_whatever_was_done_to_them() -> None:
    said = play(
        "go to countertop 1",
        "take mug 1 from countertop 1",
        *(c.replace("apple", "mug") for c in HEAT),
        "examine mug 1",
    )[1]
    assert said == "This is a normal mug 1. In it, you see a spoon 2, and a spoon 1."


def test_knives_reach_behind_closed_doors() -> None:
    episode, said = play("go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1")
    assert said == "You sliced the apple 1 with the knife 1."
    assert episode.step("slice book 1 with knife 1") == NOTHING
    assert episode.step("slice tomato 1 with knife 1") == NOTHING
    assert episode.step("go to cabinet 1") == "You arrive at cabinet 1. The cabinet 1 is closed."
    assert "slice tomato 1 with knife 1" in episode.admissible
    assert episode.step("slice tomato 1 with knife 1") == "You sliced the tomato 1 with the knife 1."


@pytest.mark.parametrize(
    "command",
    ["move book 1 to desk 1", "put book 1 in/on desk 1", "  Put  BOOK 1 in/on\tdesk 1 ", "MOVE book 1 to desk 1"],
)
def test_both_ways_to_put_and_any_case_and_spaces(command: str) -> None:
    episode, said = play("go to countertop 1", "take book 1 from countertop 1", "go to desk 1", command)
    assert said == "You move the book 1 to the desk 1."
    assert episode.won


def test_examining_in_light() -> None:
    goal = Goal(item="book", lamp="desklamp")
    episode, _ = play("go to desk 1", "use desklamp 1", goal=goal)
    assert not episode.won
    for command in ("go to countertop 1", "take book 1 from countertop 1"):
        episode.step(command)
    assert not episode.won, "the lamp is lit, but out of reach"
    episode.step("go to desk 1")
    assert episode.won


def test_two_items_must_come_together() -> None:
    game = build(Goal(item="pan", receptacle="stoveburner", count=2))
    episode = Episode(game)
    for command in ("go to stoveburner 1", "take pan 1 from stoveburner 1", "move pan 1 to stoveburner 1"):
        episode.step(command)
    assert not episode.won, "one pan on each of two burners, or one pan twice, are not two"


def test_admissible_commands_stay_those_of_their_moment() -> None:
    episode, _ = play("go to countertop 1")
    then = episode.admissible
    episode.step("take book 1 from countertop 1")
    assert "take mug 1 from countertop 1" in then
    assert "take mug 1 from countertop 1" not in episode.admissible
    assert then == sorted(then)
    assert pickle.loads(pickle.dumps(then)) == list(then)
    assert len(then[1:]) == len(then) - 1


@given(seed=st.integers(0, 10**6), whole=st.booleans(), steps=st.integers(0, 25))
@settings(deadline=None)
def test_admissible_commands_are_those_that_are_not_refused(seed: int, whole: bool, steps: int) -> None:
    rng = random.Random(seed)
    game = generate(seed, receptacles=None, objects=None) if whole else generate(seed)
    episode = Episode(game)
    for _ in range(steps):
        verb = rng.choice(sorted({command.split()[0] for command in episode.admissible}))  # rare ones are not lost
        command = rng.choice([command for command in episode.admissible if command.split()[0] == verb])
        assert episode.step(command) != NOTHING
    here = [receptacle.name for receptacle in game.receptacles]
    things = [item.name for item in game.items]
    commands = {f"{verb} {name}" for verb in ("go to", "open", "close", "examine", "use") for name in (*here, *things)}
    for thing in things:
        commands |= {f"{verb} {thing} with {name}" for verb in ("clean", "heat", "cool", "slice") for name in here}
        commands |= {command for name in here for command in (f"take {thing} from {name}", f"move {thing} to {name}")}
        commands |= {f"slice {thing} with {knife}" for knife in things if "knife" in knife}
    offered = list(episode.admissible)
    assert set(offered) <= commands | {"look", "inventory", "help"}
    for command in sorted(commands.difference(offered)):
        assert episode.step(command) == NOTHING, command
    assert episode.admissible == offered, "what is refused changes nothing"


@given(seed=st.integers(0, 10**6))
@settings(deadline=None)
def test_progress_grows_along_the_plan_and_is_whole_where_the_game_is_won(seed: int) -> None:
    game = generate(seed)
    episode = Episode(game)
    shares = [episode.progress]
    for command in game.plan:
        episode.step(command)
        shares.append(episode.progress)
        assert 0 <= shares[-1] <= 1
        assert (shares[-1] == 1) is episode.won
    assert shares == sorted(shares)


def test_progress_counts_what_holds_now() -> None:
    episode, _ = play(goal=Goal(item="apple", receptacle="countertop", verb="cool"))
    assert episode.progress == pytest.approx(1 / 3), "it lies where it belongs, but is not cool"
    for command, share in ((TO_APPLE[0], 1), (TO_APPLE[1], 1), (COOL[0], 1), (COOL[1], 2), (TO_APPLE[0], 2)):
        episode.step(command)
        assert episode.progress == pytest.approx(share / 3), command
    episode.step("move apple 1 to countertop 1")
    assert episode.progress == 1
    episode, _ = play("go to desk 1", "use desklamp 1", goal=Goal(item="book", lamp="desklamp"))
    assert episode.progress == pytest.approx(1 / 3)


def test_one_game_is_played_in_many_threads() -> None:
    game = generate(1)
    won = []

    def run() -> None:
        episode = Episode(game)
        for command in game.plan:
            episode.step(command)
        won.append(episode.won)

    threads = [threading.Thread(target=run) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [True] * 32
