"""Plays ALFWorld by searching the room, from nothing but the observations an agent reads.

It knows the wording of the games and where things may lie (`rooms`); it never looks into a game. All that it
believes follows from observations, so that it carries on from wherever other players' commands left the episode.
Its thoughts are short and say what the action follows from: they are written to be learned by imitation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from ..errors import WorldError
from . import rooms
from .admissible import APPLIANCES
from .engine import NOTHING, STATES
from .game import Goal

_ITEM: Final = r"(\w+ \d+)"
_SENTENCES: Final = (
    (re.compile(r"(?:look at|examine the) (?P<item>\w+) (?:under|with) the (?P<lamp>\w+)"), 1),
    (re.compile(r"put a (?P<state>clean|hot|cool) (?P<item>\w+) in (?P<to>\w+)"), 1),
    (re.compile(r"(?P<verb>clean|heat|cool) some (?P<item>\w+) and put it in (?P<to>\w+)"), 1),
    (re.compile(r"(?:put|find) two (?P<item>\w+) (?:in|and put them in) (?P<to>\w+)"), 2),
    (re.compile(r"put (?:a|some) (?P<item>\w+) (?:in|on) (?P<to>\w+)"), 1),
)
_SMALL: Final = 8  # receptacles of a room that is gone round without remembering
_VERBS: Final = {state: verb for verb, state in STATES.items()}
_SEEN: Final = re.compile(rf"(?:On the {_ITEM}|The {_ITEM} is open\. In it), you see (.*?)\.$")
_CLOSED: Final = re.compile(rf"(?:The {_ITEM} is closed|You close the {_ITEM})\.$")
_ARRIVED: Final = re.compile(rf"You arrive at {_ITEM}\.")
_TAKEN: Final = re.compile(rf"You pick up the {_ITEM} from the {_ITEM}\.")
_MOVED: Final = re.compile(rf"You move the {_ITEM} to the {_ITEM}\.")
_TREATED: Final = re.compile(rf"You (clean|heat|cool) the {_ITEM} using the {_ITEM}\.")


def kind_of(name: str) -> str:
    """`mug` of `mug 2`."""
    return name.rsplit(" ", 1)[0]


def read_goal(sentence: str) -> Goal:
    """The goal that one of the official task sentences states. Raises WorldError on any other sentence."""
    for pattern, count in _SENTENCES:
        match = pattern.match(sentence)
        if match is not None:
            said = match.groupdict()
            verb = said.get("verb") or _VERBS.get(said.get("state") or "", "")
            return Goal(
                item=said["item"], receptacle=said.get("to", ""), count=count, verb=verb, lamp=said.get("lamp", "")
            )
    raise WorldError(f"an unknown ALFWorld task sentence: {sentence!r}")


def read_list(text: str) -> list[str]:
    """The names in a listing such as `a mug 2, a mug 1, and a pen 1`."""
    return re.findall(rf"\ba {_ITEM}", text)


class SearchExpert:
    """Looks into one receptacle after the other and does what the task asks for.

    In a small room it goes round in the order of the list and looks again where it has been: each choice then follows
    from the last observation alone, which a small model learns soonest. In a large one it remembers what it saw.

    >>> thought, action = SearchExpert().act(observation, info)
    """

    def __init__(self) -> None:
        self._begin(Goal(item=""), [])

    def _begin(self, goal: Goal, receptacles: list[str]) -> None:
        self._goal, self._receptacles = goal, receptacles
        self._seen: dict[str, list[str]] = {}
        """What lies in each receptacle that was looked into."""
        self._shut: set[str] = set()
        """Receptacles last seen closed."""
        self._at = ""
        """The receptacle stood at, or believed to be in reach."""
        self._held = ""
        self._treated: set[str] = set()
        self._target = ""
        """The receptacle that all items of the task go to, once one was chosen."""
        self._last = ""
        """The last action."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        """Next (thought, action). An observation that opens an episode starts anew; `info` is not looked at."""
        del info
        self._notice(observation)
        thought, self._last = self._decide()
        return thought, self._last

    def slip(self, rng: Random) -> tuple[str, str]:
        """(thought, action) of a beginner in place of the last ones: the right form, a wrong or needless choice.

        For demonstrations that show how to recover. Call it after `act`; the next `act` knows what was done.
        """
        thought, self._last = self._wrong(rng)
        return thought, self._last

    def _wrong(self, rng: Random) -> tuple[str, str]:
        at, held, draw = self._at, self._held, rng.random()
        other = rng.choice(self._receptacles)
        if rng.random() < 0.3:  # one that is not there
            other = f"{kind_of(other)} {rng.randint(2, 9)}"
        if rng.random() < 0.15:
            return f"{other} is near.", f"examine {other}"
        if not at and not self._seen:
            return self._begin_search()[0], f"go to {other}"
        if not held or self._goal.lamp:
            kind = self._goal.lamp if held else self._goal.item
            want = f"have {held}, " if held else ""
            if draw < 0.25 and at:
                here = self._seen.get(at)
                name = rng.choice(here) if here and rng.random() < 0.5 else f"{kind} {rng.randint(1, 3)}"
                return f"{want}{name} is here.", f"use {name}" if held else f"take {name} from {at}"
            if draw < 0.35 and at:
                return f"{at} is closed.", f"open {at}"
            return f"{want}not at {at}, {other} next." if at else f"{want}{other} next.", f"go to {other}"
        if draw < 0.25 and at:
            return f"{at} is closed.", f"open {at}"
        if draw < 0.5 and at and self._goal.verb:
            return f"{self._have()}, {self._goal.verb} it here.", f"{self._goal.verb} {held} with {at}"
        if draw < 0.7 and at:
            return f"{self._have()}, put it here.", f"move {held} to {at}"
        return f"{self._have()}, put it in {other}.", f"go to {other}"

    # What observations tell.

    def _notice(self, text: str) -> None:
        if "Your task is to: " in text:
            room, task = text.split("Your task is to: ", 1)
            self._begin(read_goal(task), read_list(room))
            return
        if text == NOTHING:
            self._refused()
            return
        if match := _ARRIVED.match(text):
            self._at = match[1]
        if match := _SEEN.search(text):
            where = match[1] or match[2]
            self._seen[where] = read_list(match[3])
            self._shut.discard(where)
            self._at = self._at or where
        elif match := _CLOSED.search(text):
            self._shut.add(match[1] or match[2])
        elif match := _TAKEN.match(text):
            self._held = match[1]
            self._seen[match[2]] = [item for item in self._seen.get(match[2], ()) if item != match[1]]
        elif match := _MOVED.match(text):
            self._held = ""
            self._seen.setdefault(match[2], []).append(match[1])
        elif match := _TREATED.match(text):
            if match[1] == self._goal.verb:
                self._treated.add(match[2])
            elif match[1] != "clean" and self._goal.verb != "clean":
                self._treated.discard(match[2])  # heating undoes cooling, and the other way round

    def _refused(self) -> None:
        """`Nothing happens.`: what was believed is wrong, and this is the likeliest mistake."""
        verb, _, rest = self._last.partition(" ")
        if verb == "go" and rest.removeprefix("to ") in self._receptacles:
            self._at = rest.removeprefix("to ")  # it is in reach from here
        elif verb == "examine":
            self._at = ""
        elif verb == "take":
            self._seen.pop(rest.partition(" from ")[2], None)
        elif verb == "open":
            self._shut.discard(rest)

    # What to do.

    def _decide(self) -> tuple[str, str]:
        goal, held = self._goal, self._held
        if not held:
            return self._fetch()
        if kind_of(held) != goal.item:
            return self._drop()
        if goal.lamp:
            return self._light()
        if goal.verb and held not in self._treated:
            return self._treat()
        return self._deliver()

    def _fetch(self) -> tuple[str, str]:
        item = self._goal.item
        if not self._at and not self._seen:
            return self._begin_search()
        another = self._goal.count > 1 and any(kind_of(name) == item for name in self._seen.get(self._target, ()))
        return self._find(item, "one more, " if another else "", f"take {{}} from {self._at}")

    def _begin_search(self) -> tuple[str, str]:
        """The first thought: the task in few words, and the whole way round."""
        goal = self._goal
        order = self._order(goal.item)
        state = f"{STATES[goal.verb]} " if goal.verb else "two " if goal.count > 1 else ""
        to_do = (
            f"look at {goal.item} under the {goal.lamp}" if goal.lamp else f"bring {state}{goal.item} to {self._end()}"
        )
        return f"{to_do}, check {', '.join(order)}.", f"go to {order[0]}"

    def _find(self, kind: str, want: str, action: str) -> tuple[str, str]:
        """Does the action to an item of the kind if one is here; else goes where one was seen; else searches on."""
        at = self._at
        if at in self._shut:
            return f"{at} is closed.", f"open {at}"
        if at and at not in self._seen:
            return f"{at} is near.", f"examine {at}"
        order = self._order(kind)
        start = order.index(at) + 1 if at in order else 0
        around = order[start:] + order[:start]
        small = len(self._receptacles) <= _SMALL
        for where in (at,) if small else (at, *self._seen):
            for item in self._seen.get(where, ()):
                if kind_of(item) == kind and not (where == self._target or item in self._seen.get(self._target, ())):
                    if where == at:
                        return f"{want}{item} is here.", action.format(item)
                    return f"{want}{item} is at {where}.", f"go to {where}"
        left = around if small else [name for name in around if name not in self._seen]
        if not left:
            left = [name for name in self._receptacles if name not in self._seen]
        if not left:  # what was seen has changed since: look again
            self._seen.clear()
            left = around
        return f"{want}not at {at}, {left[0]} next." if at else f"{want}{left[0]} next.", f"go to {left[0]}"

    def _order(self, kind: str) -> list[str]:
        """Where to look: a small room from beginning to end, a large one where the item can be, small doors last."""
        if len(self._receptacles) <= _SMALL:
            return self._receptacles
        able = [name for name in self._receptacles if kind_of(name) in rooms.homes(kind)] or self._receptacles
        return sorted(able, key=lambda name: kind_of(name) in ("cabinet", "drawer"))

    def _drop(self) -> tuple[str, str]:
        at, held = self._at, self._held
        if at in self._shut:
            return f"{at} is closed.", f"open {at}"
        if at and self._last != f"move {held} to {at}":
            return f"have {held} at {at}, put it here.", f"move {held} to {at}"
        names = [name for name in self._receptacles if kind_of(held) in rooms.ACCEPTS.get(kind_of(name), ())]
        where = next((name for name in names if name != at), self._receptacles[0])
        return f"{self._have()}, put it in {where}.", f"go to {where}"

    def _light(self) -> tuple[str, str]:
        return self._find(self._goal.lamp, f"have {self._held}, ", "use {}")

    def _treat(self) -> tuple[str, str]:
        verb, held, at = self._goal.verb, self._held, self._at
        kinds = APPLIANCES[verb]
        if kind_of(at) in kinds and self._last != f"{verb} {held} with {at}":
            return f"{self._have()}, {verb} it here.", f"{verb} {held} with {at}"
        where = f"{kinds[0]} 1"
        return f"{self._have()}, {verb} it at {where}.", f"go to {where}"

    def _deliver(self) -> tuple[str, str]:
        held, at = self._held, self._at
        self._target = self._target or self._end()
        if at != self._target:
            return f"{self._have()}, put it in {self._target}.", f"go to {self._target}"
        if at in self._shut:
            return f"{at} is closed.", f"open {at}"
        if at not in self._seen or self._last == f"move {held} to {at}":
            return f"{at} is near.", f"examine {at}"
        return f"{self._have()}, put it here.", f"move {held} to {at}"

    def _have(self) -> str:
        state = f"{STATES[self._goal.verb]} " if self._held in self._treated else ""
        return f"have {state}{self._held}" + (f" at {self._at}" if self._at else "")

    def _end(self) -> str:
        """The receptacle to bring things to: one where some already are, or else the first of its kind."""
        kind, item = self._goal.receptacle, self._goal.item
        if self._goal.count > 1:
            for name, items in self._seen.items():
                if kind_of(name) == kind and any(kind_of(other) == item for other in items):
                    return name
        return f"{kind} 1"
