"""What an ALFWorld game is: its receptacles, its items, where they are, and its goal.

It knows no rules: what happens in a game is `engine`'s, where games come from is `official`'s and `generator`'s.
Invariant: a `Game` never changes, and may be shared by any number of episodes and threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


def listing(names: Iterable[str]) -> str:
    """`a mug 2, a mug 1, and a pen 1`; the article is always "a", and two things are joined by ", and " as well."""
    said = ["a " + name for name in names]
    if len(said) > 1:
        said[-1] = "and " + said[-1]
    return ", ".join(said) or "nothing"


def in_the_middle(seen: str) -> str:
    """How a room is told."""
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Receptacle:
    """A fixed thing that holds items."""

    name: str
    """Such as `cabinet 4`."""
    kind: str
    """Such as `cabinet`."""
    place: int
    """Where one stands to use it; receptacles may share a place."""
    openable: bool
    """Starts closed."""
    accepts: frozenset[str]
    """Kinds of item that may be put here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A thing that lies in receptacles."""

    name: str
    """Such as `mug 2`."""
    kind: str
    """Such as `mug`."""
    can: frozenset[str]
    """What can be done with it: take, clean, heat, cool, use, slice."""
    vessel: bool = False
    """Whether examining it lists what is inside; nothing can be put into it or taken out."""
    inside: tuple[str, ...] = ()
    """Names of the items that are inside a vessel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """When a game is won: `count` items of a kind in one receptacle of a kind, or an item held under a lit lamp."""

    item: str
    """Kind of item."""
    receptacle: str = ""
    """Kind of receptacle that must hold the items at one time, or nothing where a lamp is asked for."""
    count: int = 1
    """How many."""
    verb: str = ""
    """clean, heat or cool: what the item must have undergone."""
    lamp: str = ""
    """Kind of lamp that must have been turned on, within reach, while the item is in the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One game: parsed or generated once, shared by its episodes, never changed.

    Items and receptacles are known by their index. Both stand in the order in which rooms and contents are told.
    """

    id: str
    """Where it comes from."""
    task_type: str
    """One of the six, such as `pick_and_place_simple`."""
    task: str
    """The sentence that states the goal."""
    receptacles: tuple[Receptacle, ...]
    items: tuple[Item, ...]
    contents: tuple[tuple[int, ...], ...]
    """Items of each receptacle at the start; an item may be in two."""
    lying: tuple[tuple[int, ...], ...]
    """Items at each place, in a receptacle or not: what a knife reaches there."""
    goal: Goal
    plan: tuple[str, ...]
    """Commands that win the game."""
    cool: frozenset[int] = frozenset()
    """Items that are cool from the start."""

    opening: str = field(init=False, repr=False, compare=False)
    """The first observation."""
    here: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """Receptacles at each place."""
    receptacle_of: dict[str, int] = field(init=False, repr=False, compare=False)
    item_of: dict[str, int] = field(init=False, repr=False, compare=False)
    goal_items: frozenset[int] = field(init=False, repr=False, compare=False)
    goal_receptacles: tuple[int, ...] = field(init=False, repr=False, compare=False)
    goal_lamps: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        goal, receptacles, items = self.goal, self.receptacles, self.items
        room = listing(receptacle.name for receptacle in receptacles)
        put("opening", f"-= Welcome to TextWorld, ALFRED! =-\n\n{in_the_middle(room)}\n\nYour task is to: {self.task}")
        at: list[list[int]] = [[] for _ in self.lying]
        for r, receptacle in enumerate(receptacles):
            at[receptacle.place].append(r)
        put("here", tuple(map(tuple, at)))
        put("receptacle_of", {receptacle.name: r for r, receptacle in enumerate(receptacles)})
        put("item_of", {item.name: i for i, item in enumerate(items)})
        wanted = (
            i for i, item in enumerate(items) if item.kind == goal.item and (not goal.verb or goal.verb in item.can)
        )
        put("goal_items", frozenset(wanted))
        put(
            "goal_receptacles",
            tuple(r for r, receptacle in enumerate(receptacles) if receptacle.kind == goal.receptacle),
        )
        put("goal_lamps", frozenset(i for i, item in enumerate(items) if item.kind == goal.lamp and "use" in item.can))
