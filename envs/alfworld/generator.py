"""Makes ALFWorld games out of a seed: a room, what stands and lies in it, a goal, its sentence, and a winning plan.

It knows the tables of `rooms` and the types of `game`; it does not know official games, splits' sizes or how games
are played. Invariant: the same arguments give the same game on every machine and under every hash seed, no game is
won before its first command, and its own plan wins it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ..errors import UnknownName, UserError
from . import rooms
from .admissible import APPLIANCES
from .game import Game, Goal, Item, Receptacle
from .plan import plan_of

SPLITS: Final = ("train", "valid_seen", "valid_unseen")
"""Training rooms, the same rooms with other games, and rooms that training never shows."""

Span = tuple[int, int]
"""Smallest and largest number, both included."""

SMALL_RECEPTACLES: Final[Span] = (4, 7)
SMALL_OBJECTS: Final[Span] = (4, 8)


@dataclass(frozen=True, slots=True)
class _Kind:
    rooms: tuple[str, ...]
    sentences: tuple[str, str]
    verb: str = ""
    count: int = 1


TASK_TYPES: Final[dict[str, _Kind]] = {
    "pick_and_place_simple": _Kind(rooms.ROOMS, ("put a {item} in {to}.", "put some {item} on {to}.")),
    "look_at_obj_in_light": _Kind(
        ("living", "bedroom"), ("look at {item} under the {to}.", "examine the {item} with the {to}.")
    ),
    "pick_clean_then_place_in_recep": _Kind(
        ("kitchen", "bathroom"), ("put a clean {item} in {to}.", "clean some {item} and put it in {to}."), "clean"
    ),
    "pick_heat_then_place_in_recep": _Kind(
        ("kitchen",), ("put a hot {item} in {to}.", "heat some {item} and put it in {to}."), "heat"
    ),
    "pick_cool_then_place_in_recep": _Kind(
        ("kitchen",), ("put a cool {item} in {to}.", "cool some {item} and put it in {to}."), "cool"
    ),
    "pick_two_obj_and_place": _Kind(
        rooms.ROOMS, ("put two {item} in {to}.", "find two {item} and put them in {to}."), count=2
    ),
}
"""The six types of task, the rooms that they are set in, and how they are worded."""

_COPIES = (1, 1, 1, 2, 2, 3)  # how many of a kind a room has: shares of the official games
_SHARED_PLACE = 0.11  # share of receptacles that are used from where their neighbour is used
_TWICE = 0.018  # share of items that are in two receptacles
_INSIDE = 0.02  # share of items that are inside a vessel beside them
_TRIES = 400  # draws of room and goal before giving up


def generate(
    seed: int,
    *,
    split: str = "train",
    receptacles: Span | None = SMALL_RECEPTACLES,
    objects: Span | None = SMALL_OBJECTS,
    task_types: Sequence[str] | None = None,
) -> Game:
    """The game of a seed. Different splits give different games for the same seed.

    `receptacles` and `objects` bound the number of receptacles and of kinds of item; None takes the whole room, which
    is the size of official games. Raises UserError where the arguments leave no game to make.
    """
    types = check(split, receptacles, objects, task_types)
    rng = random.Random(f"alfworld {split} {seed}")
    task_type = rng.choice(types)
    for _ in range(_TRIES):
        game = _draw(rng, f"generated/{split}/{seed}", task_type, split, receptacles, objects)
        if game is not None:
            return game
    raise UserError(
        f"no {task_type} game has {_said(receptacles)} receptacles and {_said(objects)} kinds of object; "
        "widen the bounds (null takes whole rooms)."
    )


def check(
    split: str, receptacles: Span | None, objects: Span | None, task_types: Sequence[str] | None
) -> tuple[str, ...]:
    """The task types to draw from, in a fixed order. Raises UserError on arguments that cannot be met."""
    if split not in SPLITS:
        raise UnknownName("split of generated ALFWorld games", split, SPLITS)
    for name, span, least in (("receptacles", receptacles, 3), ("objects", objects, 2)):
        if span is not None and not (len(span) == 2 and least <= span[0] <= span[1]):
            raise UserError(
                f"alfworld option {name}={span!r}: give (smallest, largest) with {least} <= smallest <= largest."
            )
    return check_types(task_types)


def check_types(task_types: Sequence[str] | None) -> tuple[str, ...]:
    """The named task types in their usual order, or all. Raises UnknownName on a name that is none."""
    for task_type in task_types or ():
        if task_type not in TASK_TYPES:
            raise UnknownName("ALFWorld task type", task_type, TASK_TYPES)
    return tuple(name for name in TASK_TYPES if not task_types or name in task_types)


def _said(span: Span | None) -> str:
    return "any number of" if span is None else f"{span[0]} to {span[1]}"


def _draw(
    rng: random.Random, name: str, task_type: str, split: str, receptacles: Span | None, objects: Span | None
) -> Game | None:
    """One try: None where the drawn room cannot hold such a task."""
    kind = TASK_TYPES[task_type]
    numbers = range(rooms.NUMBERS)
    held_out = split == "valid_unseen"
    numbers = numbers[-rooms.HELD_OUT :] if held_out else numbers[: -rooms.HELD_OUT]
    room = rooms.room(rng.choice(kind.rooms), rng.choice(numbers))
    goal = _goal(rng, room, task_type)
    if goal is None:
        return None
    fixtures = _fixtures(rng, room, goal, receptacles)
    if fixtures is None:
        return None
    kinds = _kinds(rng, room, goal, fixtures, objects)
    if kinds is None:
        return None
    game = _furnish(rng, name, task_type, goal, fixtures, kinds)
    plan = plan_of(rng, game)
    return None if plan is None else replace(game, plan=plan)


def _goal(rng: random.Random, room: rooms.Room, task_type: str) -> Goal | None:
    kind = TASK_TYPES[task_type]
    present = sorted(set(room.receptacles))
    lamp = task_type == "look_at_obj_in_light"
    if lamp and rooms.LAMP not in room.items:
        return None
    applies = rooms.ABILITIES.get(kind.verb)
    choices: list[Goal] = []
    for item in room.items:
        if item in rooms.FIXED or (applies is not None and item not in applies):
            continue
        kept = [home for home in rooms.homes(item) if home in present]
        if lamp and kept:
            choices.append(Goal(item=item, lamp=rooms.LAMP))
        elif len(kept) > 1:
            targets = [home for home in kept if home not in APPLIANCES.get(kind.verb, ())]
            choices.extend(Goal(item=item, receptacle=to, count=kind.count, verb=kind.verb) for to in targets)
    return rng.choice(choices) if choices else None


def _fixtures(rng: random.Random, room: rooms.Room, goal: Goal, bounds: Span | None) -> list[str] | None:
    """Kinds of the receptacles of this game, those that the task needs among them, sorted."""
    if bounds is None:
        return list(room.receptacles)
    number = rng.randint(*bounds)
    if len(room.receptacles) < bounds[0]:
        return None
    present = sorted(set(room.receptacles))
    source = rng.choice([home for home in rooms.homes(goal.item) if home in present and home != goal.receptacle])
    if goal.lamp:
        stands = [home for home in rooms.homes(goal.lamp) if home in present]
        if not stands:
            return None
        needed = {source, rng.choice(stands)}
    else:
        needed = {source, goal.receptacle, *(kind for kind in APPLIANCES.get(goal.verb, ()) if kind in present)}
    rest = list(room.receptacles)
    for kind in sorted(needed):
        rest.remove(kind)
    rng.shuffle(rest)
    return sorted([*sorted(needed), *rest[: max(0, number - len(needed))]])


def _kinds(
    rng: random.Random, room: rooms.Room, goal: Goal, fixtures: list[str], bounds: Span | None
) -> list[str] | None:
    """Kinds of item of this game, sorted."""
    present = set(fixtures)
    needed = [goal.item, goal.lamp] if goal.lamp else [goal.item]
    if any(present.isdisjoint(rooms.homes(kind)) for kind in needed):
        return None
    others = [kind for kind in room.items if kind not in needed and not present.isdisjoint(rooms.homes(kind))]
    if bounds is not None:
        number = rng.randint(*bounds)
        if len(others) + len(needed) < bounds[0]:
            return None
        rng.shuffle(others)
        others = others[: max(0, number - len(needed))]
    return sorted([*needed, *others])


def _furnish(rng: random.Random, name: str, task_type: str, goal: Goal, fixtures: list[str], kinds: list[str]) -> Game:
    """The game, with no plan yet."""
    by_kind: dict[str, list[int]] = {}
    places: list[int] = []
    for r, kind in enumerate(fixtures):
        by_kind.setdefault(kind, []).append(r)
        shared = places and rng.random() < _SHARED_PLACE
        places.append(places[-1] if shared else (places[-1] + 1 if places else 0))
    receptacles = tuple(
        Receptacle(
            name=numbered,
            kind=kind,
            place=place,
            openable=kind in rooms.OPENABLE,
            accepts=rooms.ACCEPTS.get(kind, frozenset()),
        )
        for numbered, kind, place in zip(_numbered(fixtures), fixtures, places, strict=True)
    )

    copies: list[str] = []
    for kind in sorted(kinds, key=_order):
        number = 1 if kind in rooms.FIXED else rng.choice(_COPIES)
        copies += [kind] * max(number, goal.count if kind == goal.item else 1)
    contents: list[list[int]] = [[] for _ in fixtures]
    names = _numbered(copies)
    items: list[Item] = []
    placed = 0
    for i, kind in enumerate(copies):
        homes = [home for home in rooms.homes(kind) if home in by_kind]
        if kind == goal.item and goal.receptacle:
            # Nothing may be won already: only what is yet to be treated may lie at its goal, and one must not.
            if placed < goal.count or not goal.verb:
                homes = [home for home in homes if home != goal.receptacle]
            placed += 1
        r = rng.choice(by_kind[rng.choice(homes)])
        twice = kind not in rooms.FIXED and rng.random() < _TWICE
        for where in {r, rng.choice(by_kind[rng.choice(homes)])} if twice else (r,):
            contents[where].append(i)
        items.append(_item(names[i], kind))
    for row in contents:
        vessels = [i for i in row if items[i].vessel]
        if vessels and rng.random() < _INSIDE * len(row):
            inner, outer = rng.choice(row), rng.choice(vessels)
            if inner != outer:
                items[outer] = replace(items[outer], inside=(items[inner].name,))
    lying: list[set[int]] = [set() for _ in range(places[-1] + 1)]
    for place, row in zip(places, contents, strict=True):
        lying[place].update(row)
    return Game(
        id=name,
        task_type=task_type,
        task=rng.choice(TASK_TYPES[task_type].sentences).format(item=goal.item, to=goal.receptacle or goal.lamp),
        receptacles=receptacles,
        items=tuple(items),
        contents=tuple(map(tuple, contents)),
        lying=tuple(tuple(sorted(row)) for row in lying),
        goal=goal,
        plan=(),
    )


def _order(kind: str) -> str:
    """Sorts as the official ids do, in which `pen` comes before `pencil` and `pot` before `potato`."""
    return kind + "_"


def _numbered(kinds: Sequence[str]) -> list[str]:
    """Names for things in the order in which they are told: numbers count down within a kind, as in official games."""
    left = Counter(kinds)
    names = []
    for kind in kinds:
        names.append(f"{kind} {left[kind]}")
        left[kind] -= 1
    return names


@lru_cache(maxsize=2048)
def _item(name: str, kind: str) -> Item:
    return Item(name=name, kind=kind, can=rooms.abilities(kind), vessel=kind in rooms.VESSELS)
