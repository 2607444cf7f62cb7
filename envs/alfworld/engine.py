"""The rules of ALFWorld's text games, in plain Python: what may be done, what happens, and how it is told.

It knows one game and one episode at a time; it does not know where games come from (`official`, `generator`), nor
step limits and rewards (`world`). Invariant: feedback, admissible commands and victory are those of TextWorld on the
same game, oddities included, because published scores were made with them. The oddities are named where they are kept.
"""

from __future__ import annotations

from .admissible import APPLIANCES, KNIVES, Commands
from .game import Game, in_the_middle, listing

NOTHING = "Nothing happens."
"""The answer to every command that cannot be carried out; it costs a step like any other."""

STATES = {"clean": "clean", "heat": "hot", "cool": "cool"}
"""What a verb makes of an item."""

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

_NOWHERE = -1  # where every episode starts: in the middle of the room, at no receptacle, never to return


class Episode:
    """One play of a game: a few small containers over the shared `Game`.

    `step` answers in words and updates `won`; it never refuses a command and never ends by itself.
    """

    __slots__ = ("contents", "game", "held", "lying", "open", "place", "removed", "states", "won")

    def __init__(self, game: Game) -> None:
        self.game = game
        self.place = _NOWHERE
        self.held: int | None = None
        self.open: set[int] = set()
        self.contents = list(game.contents)
        self.lying = list(game.lying)
        self.removed: set[tuple[int, int]] = set()
        """(item, receptacle) that were parted and not joined again: only these are told as lying beside it."""
        self.states: dict[str, set[int]] = {
            "clean": set(), "hot": set(), "cool": set(game.cool), "on": set(), "sliced": set(),
        }  # fmt: skip
        self.won = False

    @property
    def observation(self) -> str:
        """What is told before the first command."""
        return self.game.opening

    def step(self, command: str) -> str:
        """Carries out a command and tells what happened, or `Nothing happens.`

        Case and spaces do not matter. `put X in/on Y` is the older form of `move X to Y`.
        """
        told = self._act(command.lower().split())
        return NOTHING if told is None else told

    def _act(self, words: list[str]) -> str | None:
        match words:
            case ["go", "to", kind, number]:
                return self._go(f"{kind} {number}")
            case ["take", kind, number, "from", kind2, number2]:
                return self._take(f"{kind} {number}", f"{kind2} {number2}")
            case ["move", kind, number, "to", kind2, number2] | ["put", kind, number, "in/on", kind2, number2]:
                return self._move(f"{kind} {number}", f"{kind2} {number2}")
            case ["open" | "close" as verb, kind, number]:
                return self._door(f"{kind} {number}", opened=verb == "open")
            case ["clean" | "heat" | "cool" as verb, kind, number, "with", kind2, number2]:
                return self._treat(verb, f"{kind} {number}", f"{kind2} {number2}")
            case ["examine", kind, number]:
                return self._examine(f"{kind} {number}")
            case ["use", kind, number]:
                return self._use(f"{kind} {number}")
            case ["slice", kind, number, "with", kind2, number2]:
                return self._slice(f"{kind} {number}", f"{kind2} {number2}")
            case ["look"]:
                return self._look()
            case ["inventory"]:
                held = self.held
                return "You are not carrying anything." if held is None else f"You are carrying: a {self._name(held)}."
            case ["help"]:
                return HELP
        return None

    # What is within reach.

    def _name(self, item: int) -> str:
        return self.game.items[item].name

    def _near(self, name: str) -> int | None:
        """The receptacle of that name, if the agent stands at it."""
        r = self.game.receptacle_of.get(name)
        return None if r is None or self.game.receptacles[r].place != self.place else r

    def _reachable(self, r: int) -> bool:
        return r in self.open or not self.game.receptacles[r].openable

    def _in_hand(self, name: str) -> int | None:
        held = self.held
        return held if held is not None and self._name(held) == name else None

    # What is told.

    def _inside(self, r: int) -> str:
        receptacle, items = self.game.receptacles[r], self.game.items
        if receptacle.openable and r not in self.open:
            return f"The {receptacle.name} is closed."
        where = f"The {receptacle.name} is open. In" if receptacle.openable else f"On the {receptacle.name}"
        it = " it" if receptacle.openable else ""
        return f"{where}{it}, you see {listing(items[i].name for i in self.contents[r])}."

    def _look(self) -> str:
        if self.place == _NOWHERE:
            return in_the_middle("nothing")  # TextWorld's own: only the opening lists the room
        game = self.game
        here = game.here[self.place]
        receptacles = [game.receptacles[r].name for r in here]
        if len(receptacles) > 1:
            receptacles[-1] = "and " + receptacles[-1]
        # An item that moved between two receptacles of one place is told as lying next to them, though it is in one.
        beside = [game.items[i].name for i in self.lying[self.place] for r in here if (i, r) in self.removed]
        return f"You are facing the {', '.join(receptacles)}. Next to it, you see {listing(beside)}."

    def _appearance(self, i: int) -> str:
        item, states = self.game.items[i], self.states
        if item.vessel:
            return f"This is a normal {item.name}. In it, you see {listing(item.inside)}."
        clean, hot, cool, sliced = (i in states[state] for state in ("clean", "hot", "cool", "sliced"))
        warmth = "hot" if hot else "cool" if cool else ""
        if sliced and (clean or warmth):
            how = f"{warmth} and clean" if clean and warmth else warmth or "clean"
            return f"This is a {how} sliced {item.name}."
        if clean and warmth:
            return f"This is a {warmth} and clean {item.name}."
        if clean or warmth:
            return f"This is a {'cold' if warmth == 'cool' else warmth or 'clean'} {item.name}."
        if i in states["on"]:
            return f"This {item.name} is on."
        return f"This is a sliced {item.name}." if sliced else f"There's nothing special about {item.name}."

    # What is done. Each gives None where the command is not possible now.

    def _go(self, name: str) -> str | None:
        r = self.game.receptacle_of.get(name)
        if r is None or self.game.receptacles[r].place == self.place:
            return None  # already there, also by way of another receptacle at the same place
        self.place = self.game.receptacles[r].place
        if self.game.goal.lamp:
            self._judge()
        return f"You arrive at {name}. {self._inside(r)}"

    def _door(self, name: str, *, opened: bool) -> str | None:
        r = self._near(name)
        if r is None or not self.game.receptacles[r].openable or (r in self.open) is opened:
            return None
        if not opened:
            self.open.discard(r)
            return f"You close the {name}."
        self.open.add(r)
        return f"You open the {name}. {self._inside(r)}"

    def _take(self, name: str, source: str) -> str | None:
        i, r = self.game.item_of.get(name), self._near(source)
        if i is None or r is None or self.held is not None or i not in self.contents[r]:
            return None
        if "take" not in self.game.items[i].can or not self._reachable(r):
            return None
        self.contents[r] = tuple(x for x in self.contents[r] if x != i)
        self.lying[self.place] = tuple(x for x in self.lying[self.place] if x != i)
        self.removed.add((i, r))
        self.held = i
        self._judge()
        return f"You pick up the {name} from the {source}."

    def _move(self, name: str, target: str) -> str | None:
        i, r = self._in_hand(name), self._near(target)
        if i is None or r is None or not self._reachable(r):
            return None
        if self.game.items[i].kind not in self.game.receptacles[r].accepts:
            return None
        self.contents[r] = tuple(sorted({*self.contents[r], i}))
        self.lying[self.place] = tuple(sorted({*self.lying[self.place], i}))
        self.removed.discard((i, r))
        self.held = None
        self._judge()
        return f"You move the {name} to the {target}."

    def _treat(self, verb: str, name: str, appliance: str) -> str | None:
        i, r = self._in_hand(name), self._near(appliance)
        if i is None or r is None or verb not in self.game.items[i].can:
            return None
        if self.game.receptacles[r].kind not in APPLIANCES[verb]:
            return None
        self.states[STATES[verb]].add(i)
        if verb != "clean":
            self.states["cool" if verb == "heat" else "hot"].discard(i)
        self._judge()
        return f"You {verb} the {name} using the {appliance}."

    def _examine(self, name: str) -> str | None:
        r = self._near(name)
        if r is not None:
            return self._inside(r)
        i = self._in_hand(name)  # a slip in the official domain: an item that lies in reach cannot be examined
        return None if i is None else self._appearance(i)

    def _use(self, name: str) -> str | None:
        i = self.game.item_of.get(name)
        if i is None or "use" not in self.game.items[i].can or self.place == _NOWHERE:
            return None
        if not any(i in self.contents[r] for r in self.game.here[self.place]):
            return None
        self.states["on"].add(i)  # using it again leaves it on
        self._judge()
        return f"You turn on the {name}."

    def _slice(self, name: str, knife: str) -> str | None:
        i, k = self.game.item_of.get(name), self._in_hand(knife)
        if i is None or k is None or self.game.items[k].kind not in KNIVES or "slice" not in self.game.items[i].can:
            return None
        if i not in self.lying[self.place]:
            return None  # what lies behind a closed door here is sliced all the same
        self.states["sliced"].add(i)
        return f"You sliced the {name} with the {knife}."

    def _judge(self) -> None:
        """Sets `won` after a change that could matter."""
        game, goal = self.game, self.game.goal
        if goal.lamp:
            self.won = self.held in game.goal_items and any(
                i in game.goal_lamps and i in self.states["on"] for r in game.here[self.place] for i in self.contents[r]
            )
            return
        done = self.states[STATES[goal.verb]] if goal.verb else None
        for r in game.goal_receptacles:
            found = [i for i in self.contents[r] if i in game.goal_items and (done is None or i in done)]
            if len(found) >= goal.count:
                self.won = True
                return
        self.won = False

    @property
    def progress(self) -> float:
        """Share of the goal's conditions that hold now, from 0 to 1; 1 exactly where the game is won.

        For every item asked for: in the hand or where it belongs, treated, where it belongs and treated. For a lamp:
        the item in the hand, a lamp lit, both within reach.
        """
        if self.won:
            return 1.0
        game, goal = self.game, self.game.goal
        if goal.lamp:
            return ((self.held in game.goal_items) + any(i in self.states["on"] for i in game.goal_lamps)) / 3
        done = self.states[STATES[goal.verb]] if goal.verb else game.goal_items
        best = 0
        for r in game.goal_receptacles:
            there = self.contents[r]
            rows = sorted(
                (
                    (i in there or i == self.held) + (bool(goal.verb) and i in done) + (i in there and i in done)
                    for i in game.goal_items
                ),
                reverse=True,
            )
            best = max(best, sum(rows[: goal.count]))
        return best / (goal.count * (3 if goal.verb else 2))

    @property
    def admissible(self) -> Commands:
        """All commands that would do something now; they are only worked out when they are looked at."""
        game, place = self.game, self.place
        here = game.here[place] if place != _NOWHERE else ()
        within = tuple((game.receptacles[r], r in self.open, self.contents[r]) for r in here)
        return Commands(game, place, self.held, within, self.lying[place] if here else ())
