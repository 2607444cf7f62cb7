"""ALFWorld as a world: official and generated household games behind the contract of `envs.base`.

It knows tasks, their options and rewards; it does not know the rules of the games (`engine`) or how they are made.
Invariant: a task holds all that is needed to build its game on another machine, wherever the official games lie there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from ..base import Expert, Task, TextEnv, WorldSpec
from ..errors import UnknownName, UserError, WorldError
from ..tasks import ENDLESS, LazyTasks, check_choice
from . import generator, official, rooms
from .engine import HELP, NOTHING, Episode
from .expert import SearchExpert
from .game import Game, listing

SOURCES: Final = ("auto", "generated", "official")
GOALS: Final = ("template", "human")
_OPTIONS: Final = ("source", "receptacles", "objects", "task_types", "goals")
_KEPT_GAMES: Final = 512  # about 10 KB each
_SLIPS: Final = 0.3  # share of mistakes in the games that `texts` plays

_INSTRUCTIONS: Final = """\
You are in a room of a house and must do the task that you are given. One command a turn:
go to RECEPTACLE, open RECEPTACLE, close RECEPTACLE, take OBJECT from RECEPTACLE, move OBJECT to RECEPTACLE, \
clean OBJECT with RECEPTACLE, heat OBJECT with RECEPTACLE, cool OBJECT with RECEPTACLE, slice OBJECT with OBJECT, \
use OBJECT, examine OBJECT or RECEPTACLE, look, inventory, help.
Things are called by name and number, for example: take mug 1 from countertop 2. You can carry one object. \
A sinkbasin cleans, a microwave heats, a fridge cools. "Nothing happens." means that the command was not possible: \
"go to" also fails for a receptacle that is already in reach; examine it instead."""


class ALFWorld(TextEnv):
    """Household tasks in text. Reward 1 when the task is done; a game cannot be lost, only run out of steps."""

    world = WorldSpec(
        id="alfworld",
        description="household tasks in text rooms: find things, clean, heat, cool and put them in place",
        max_steps=50,
        instructions=_INSTRUCTIONS,
        isolation="none",
        cloneable=True,
        splits=("train", "valid_seen", "valid_unseen", "valid_train"),
    )

    def __init__(self) -> None:
        self._episode: Episode | None = None
        self._readable = True  # for the expert

    @classmethod
    def tasks(
        cls,
        split: str,
        *,
        source: str = "auto",
        receptacles: Sequence[int] | None = generator.SMALL_RECEPTACLES,
        objects: Sequence[int] | None = generator.SMALL_OBJECTS,
        task_types: Sequence[str] | None = None,
        goals: str = "template",
        **options: Any,
    ) -> Sequence[Task]:
        """The tasks of a split.

        `source`: official games, generated ones, or auto: official where `$ALFWORLD_DATA` holds them. `receptacles`
        and `objects` bound the size of generated rooms (their numbers of receptacles and of kinds of object; None
        for whole rooms), official ones are what they are. `task_types` keeps to some of the six types.
        `goals`: the usual sentences, or how a human put the goal of an official game (which the expert cannot read).
        """
        check_choice("alfworld", split, cls.world.splits, options, known=_OPTIONS)
        if source not in SOURCES:
            raise UnknownName("source of alfworld", source, SOURCES)
        if goals not in GOALS:
            raise UnknownName("goals of alfworld", goals, GOALS)
        if isinstance(task_types, str):
            task_types = (task_types,)
        if source == "official" or (
            source == "auto" and (official.root() is not None or split not in generator.SPLITS)
        ):
            return _official_tasks(cls.world.id, split, task_types, human=goals == "human")
        if goals == "human":
            raise UserError("alfworld: nobody put the goals of generated games in words; goals='human' is official.")
        return _generated_tasks(cls.world.id, split, _span(receptacles), _span(objects), task_types)

    @classmethod
    def texts(cls) -> Sequence[str]:
        return tuple(_texts())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts `options["task"]`, or a training task drawn by seed."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is None:
            tasks = self.tasks("train")
            task = tasks[int(self.np_random.integers(len(tasks)))]
        self._readable = task.data.get("goals") != "human"
        return self._start(game(task))

    def _start(self, played: Game) -> tuple[str, dict[str, Any]]:
        self._episode = Episode(played)
        return self._episode.observation, self._info(self._episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carries out one command; an impossible one answers `Nothing happens.` and costs a step all the same."""
        episode = self._episode
        if episode is None:
            raise WorldError("alfworld: step before reset")
        observation = episode.step(action)
        info = self._info(episode) | {"refused": observation == NOTHING}
        return observation, float(episode.won), episode.won, False, info

    @classmethod
    def borrowed(cls, task: Task) -> bool:
        return task.data.get("goals") == "human"

    def expert(self) -> Expert | None:
        return SearchExpert() if self._readable else None

    @staticmethod
    def _info(episode: Episode) -> dict[str, Any]:
        known = {"task_type": episode.game.task_type, "won": episode.won, "progress": episode.progress}
        return {"admissible": episode.admissible, **known}


def game(task: Task) -> Game:
    """The game of a task. Raises UserError where an official game is asked for that this machine does not have."""
    data = task.data
    if "path" in data:
        root = str(official.require_root())
        return official.cached(str(data["path"]), root, human_goal=data.get("goals") == "human")
    return _generated(
        task.split, task.seed, _span(data["receptacles"]), _span(data["objects"]), tuple(data["task_types"])
    )


@lru_cache(maxsize=_KEPT_GAMES)
def _generated(
    split: str, seed: int, receptacles: generator.Span | None, objects: generator.Span | None, types: tuple[str, ...]
) -> Game:
    return generator.generate(seed, split=split, receptacles=receptacles, objects=objects, task_types=types)


def _span(bounds: Sequence[int] | None) -> generator.Span | None:
    """Bounds as a pair, from whatever sequence a recipe gives; `generator.check` refuses what is none."""
    if bounds is None:
        return None
    if isinstance(bounds, Sequence) and not isinstance(bounds, str) and all(isinstance(bound, int) for bound in bounds):
        return cast("generator.Span", tuple(bounds))
    raise UserError(f"alfworld: {bounds!r} is no pair of numbers; give [smallest, largest], or null for whole rooms.")


def _official_tasks(env: str, split: str, task_types: Sequence[str] | None, *, human: bool) -> Sequence[Task]:
    kept = generator.check_types(task_types)
    paths = [path for path in _listed(split, str(official.require_root())) if official.task_type(path) in kept]

    def make(i: int) -> Task:
        path = paths[i]
        name = path.split("/", 1)[1].removesuffix(f"/{official.GAME}")
        if human:
            return Task(env=env, split=split, id=f"{name}@human", data={"path": path, "goals": "human"})
        return Task(env=env, split=split, id=name, data={"path": path})

    return LazyTasks(len(paths), make)


@lru_cache(maxsize=8)
def _listed(split: str, root: str) -> tuple[str, ...]:
    del root  # another folder is another list
    return official.games(split)


def _generated_tasks(
    env: str,
    split: str,
    receptacles: generator.Span | None,
    objects: generator.Span | None,
    task_types: Sequence[str] | None,
) -> Sequence[Task]:
    types = generator.check(split, receptacles, objects, task_types)
    data = {
        "receptacles": receptacles and list(receptacles),
        "objects": objects and list(objects),
        "task_types": list(types),
    }
    knobs = _knobs(receptacles, objects, types)
    lane = generator.SPLITS.index(split)  # seeds of one split are never those of another

    def make(i: int) -> Task:
        return Task(env=env, split=split, id=f"{i}{knobs}", seed=len(generator.SPLITS) * i + lane, data=data)

    return LazyTasks(ENDLESS, make)


def _knobs(receptacles: generator.Span | None, objects: generator.Span | None, types: tuple[str, ...]) -> str:
    """What sets these games apart from the default ones, for their ids: empty for the default."""
    size = "x".join("all" if span is None else f"{span[0]}-{span[1]}" for span in (receptacles, objects))
    usual = (receptacles, objects) == (generator.SMALL_RECEPTACLES, generator.SMALL_OBJECTS)
    return ("" if usual else f"@{size}") + ("" if len(types) == len(generator.TASK_TYPES) else f"@{'+'.join(types)}")


def _texts() -> Iterator[str]:
    """Every name and every turn of phrase: lists of all that there is, what becomes of items, and played games."""
    yield from (_INSTRUCTIONS, HELP, NOTHING)
    for kind in (*rooms.ACCEPTS, "toaster"):
        yield f"you see {listing(f'{kind} {number}' for number in range(rooms.MOST.get(kind, 8), 0, -1))}."
    kinds = sorted({kind for items in rooms.ITEMS.values() for kind in items} | rooms.OFFICIAL_ONLY)
    for kind in kinds:
        yield f"you see {listing(f'{kind} {number}' for number in range(8, 0, -1))}."
    for kind_of_task in generator.TASK_TYPES.values():
        yield from (sentence.format(item="mug", to="desk") for sentence in kind_of_task.sentences)
    yield from (
        f"This is a {state}apple 1."
        for clean in ("", " and clean")
        for warmth in ("hot", "cool", "cold")
        for state in (f"{warmth}{clean} ", f"{warmth}{clean} sliced ", "clean sliced ", "clean ", "sliced ")
    )
    yield "This desklamp 1 is on. This is a normal box 1. There's nothing special about book 1. You see nothing."
    rng = random.Random("alfworld texts")
    for seed in range(10 * len(generator.TASK_TYPES)):
        types = list(generator.TASK_TYPES)[seed % len(generator.TASK_TYPES) :][:1]
        episode = Episode(generator.generate(seed, receptacles=None, objects=None, task_types=types))
        expert, observation = SearchExpert(), episode.observation
        yield observation
        for _ in range(ALFWorld.world.max_steps):
            thought, action = expert.act(observation, {})
            if rng.random() < _SLIPS:  # what is said after mistakes is said nowhere else
                thought, action = expert.slip(rng)
            observation = episode.step(action)
            yield from (thought, action, observation)
            if episode.won:
                break
