"""The commands that would do something at one moment of a game, worked out when they are looked at.

Knows what a verb needs, not what it does (`engine`). Invariant: what is offered is what `Episode.step` carries out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from .game import Game, Receptacle

APPLIANCES = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}
"""Kinds of receptacle that a verb needs. Their doors may stay closed: the item never leaves the hand."""

KNIVES = ("knife", "butterknife")


class Commands(Sequence[str]):
    """The admissible commands of one moment, sorted. Stays true to that moment while the episode moves on."""

    __slots__ = ("_game", "_held", "_known", "_lying", "_place", "_within")

    def __init__(
        self,
        game: Game,
        place: int,
        held: int | None,
        within: tuple[tuple[Receptacle, bool, tuple[int, ...]], ...],
        lying: tuple[int, ...],
    ) -> None:
        self._game, self._place, self._held = game, place, held
        self._within, self._lying = within, lying
        self._known: list[str] | None = None

    def _list(self) -> list[str]:
        if self._known is None:
            self._known = sorted(self._find())
        return self._known

    def _find(self) -> set[str]:
        game, held = self._game, self._held
        commands = {"look", "inventory", "help"}
        commands.update(
            f"go to {receptacle.name}" for receptacle in game.receptacles if receptacle.place != self._place
        )
        for receptacle, opened, contents in self._within:
            commands.add(f"examine {receptacle.name}")
            if receptacle.openable:
                commands.add(f"{'close' if opened else 'open'} {receptacle.name}")
            reachable = opened or not receptacle.openable
            for i in contents:
                item = game.items[i]
                if "take" in item.can and reachable and held is None:
                    commands.add(f"take {item.name} from {receptacle.name}")
                if "use" in item.can:
                    commands.add(f"use {item.name}")
            if held is not None:
                item = game.items[held]
                if reachable and item.kind in receptacle.accepts:
                    commands.add(f"move {item.name} to {receptacle.name}")
                for verb, kinds in APPLIANCES.items():
                    if verb in item.can and receptacle.kind in kinds:
                        commands.add(f"{verb} {item.name} with {receptacle.name}")
        if held is not None:
            item = game.items[held]
            commands.add(f"examine {item.name}")
            if item.kind in KNIVES:
                lying = (game.items[i] for i in self._lying)
                commands.update(f"slice {other.name} with {item.name}" for other in lying if "slice" in other.can)
        return commands

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._list()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Commands | list) and self._list() == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(self._list())

    def __reduce__(self) -> tuple[type[list[str]], tuple[list[str]]]:
        return list, (self._list(),)  # another process gets the plain list, not the game
