"""Reads the official ALFWorld games: finds them, lists the playable ones of a split, parses one.

It knows the layout `json_2.1.1/<split>/<task>/<trial>/game.tw-pddl` below `$ALFWORLD_DATA`, and planning files
(PDDL); it does not know how games are played. Invariant: parsing loses nothing that a player could notice, and a
file that says more than this reader understands is refused, not half read.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import UnknownName, UserError, WorldError
from .game import Game, Goal, Item, Receptacle

if TYPE_CHECKING:
    from collections.abc import Iterator

SPLITS: Final = {"train": 3553, "valid_train": 200, "valid_seen": 140, "valid_unseen": 134}
"""Official splits and the number of games that scores are taken over."""

LAYOUT: Final = "json_2.1.1"
GAME: Final = "game.tw-pddl"

_ABILITIES: Final = {
    "pickupable": "take",
    "cleanable": "clean",
    "heatable": "heat",
    "coolable": "cool",
    "toggleable": "use",
    "sliceable": "slice",
}
_VERBS: Final = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
_UNDERSTOOD: Final = {
    *_ABILITIES, "receptacletype", "objecttype", "cancontain", "atlocation", "inreceptacle", "receptacleatlocation",
    "objectatlocation", "openable", "isreceptacleobject", "inreceptacleobject", "iscool",
}  # fmt: skip
_FACT: Final = re.compile(r"\((\w+) ([^()]*)\)")
_SENTENCE: Final = re.compile(r'Your task is to: (.*?)"', re.DOTALL)
_TAIL: Final = 16_384  # bytes at the end of a game file in which its verdict `solvable` stands


def root() -> Path | None:
    """The folder of the official games, or None where `$ALFWORLD_DATA` is not set or holds none."""
    data = os.environ.get("ALFWORLD_DATA")
    if not data:
        return None
    folder = Path(data).expanduser() / LAYOUT
    return folder if folder.is_dir() else None


def require_root() -> Path:
    """The folder of the official games. Raises UserError, saying how to get them, where there are none."""
    folder = root()
    if folder is not None:
        return folder
    data = os.environ.get("ALFWORLD_DATA")
    where = f"$ALFWORLD_DATA is '{data}', which has no folder {LAYOUT}" if data else "$ALFWORLD_DATA is not set"
    raise UserError(
        f"the official ALFWorld games were not found: {where}. Get them with `pip install alfworld && "
        f"alfworld-download` and set ALFWORLD_DATA to the folder that holds {LAYOUT}, or use source='generated'."
    )


def games(split: str) -> tuple[str, ...]:
    """Paths of the playable games of a split below the root, in alphabetical order.

    Like the official loader, it leaves out unsolvable games and those with movable receptacles or sliced targets.
    Raises UserError where the split or its folder is missing.
    """
    if split not in SPLITS:
        raise UnknownName("official ALFWorld split", split, SPLITS)
    folder = require_root() / split
    if not folder.is_dir():
        raise UserError(
            f"the official ALFWorld games have no split '{split}' at {folder}; run `alfworld-download` again."
        )
    found = {path: stamp for path, stamp in _walk(folder) if "movable" not in path and "Sliced" not in path}
    known = _Verdicts(folder)
    playable = tuple(sorted(f"{split}/{path}" for path, stamp in found.items() if known.solvable(path, stamp)))
    known.save(found)
    if not playable:
        raise UserError(f"no playable ALFWorld game lies below {folder}; run `alfworld-download` again.")
    return playable


def _walk(folder: Path) -> Iterator[tuple[str, str]]:
    """Every game file below a split, with a stamp that changes when the file does."""
    for task in os.scandir(folder):
        if not task.is_dir():
            continue
        for trial in os.scandir(task.path):
            with suppress(FileNotFoundError, NotADirectoryError):
                state = os.stat(os.path.join(trial.path, GAME))
                yield f"{task.name}/{trial.name}/{GAME}", f"{state.st_size}/{state.st_mtime_ns}"


class _Verdicts:
    """Which game files of a split are solvable: read from their tails once, then kept in the user's cache folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        self._file = home / "harness" / "alfworld" / (re.sub(r"\W+", "-", str(folder.resolve())).strip("-") + ".json")
        self._known: dict[str, list[str | bool]] = {}
        self._fresh = 0
        with suppress(OSError, ValueError):  # a cache that cannot be read is a cache that is empty
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            self._known = kept if isinstance(kept, dict) else {}

    def solvable(self, path: str, stamp: str) -> bool:
        kept = self._known.get(path)
        if kept is None or kept[0] != stamp:
            with open(self._folder / path, "rb") as file:
                file.seek(-min(_TAIL, int(stamp.split("/")[0])), os.SEEK_END)
                kept = self._known[path] = [stamp, re.search(rb'"solvable":\s*true', file.read()) is not None]
            self._fresh += 1
        return bool(kept[1])

    def save(self, found: dict[str, str]) -> None:
        if not self._fresh and len(self._known) == len(found):
            return
        text = json.dumps({path: self._known[path] for path in sorted(found)})
        with suppress(OSError):  # a machine without a writable home only starts a little slower
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(f".{os.getpid()}")
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._file)


def task_type(path: str) -> str:
    """The task type that the path of an official game names."""
    return path.split("/")[1].split("-")[0]


def read(path: str) -> Game:
    """The official game at a path below the root. Raises UserError where it is missing, WorldError where unreadable."""
    file = require_root() / path
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"the official ALFWorld game {file} cannot be read ({error.strerror}).") from error
    return parse(text, path)


def human(path: str) -> str:
    """How the first of the people who were asked put the goal of a game. Raises UserError where nobody was."""
    file = (require_root() / path).with_name("traj_data.json")
    try:
        said = json.loads(file.read_text(encoding="utf-8"))["turk_annotations"]["anns"][0]["task_desc"]
        return " ".join(said.split())
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} tells no goal in a person's words ({type(error).__name__}); run `alfworld-download` again, or use "
            "goals='template'."
        ) from error


def parse(text: str, path: str) -> Game:
    """The game that the text of a `game.tw-pddl` file describes."""
    try:
        data = json.loads(text)
        problem, grammar = data["pddl_problem"].lower(), data["grammar"]
        start, end = problem.index("(:init"), problem.index("(:goal")
        sentence = _SENTENCE.search(grammar)
        if sentence is None:
            raise ValueError("no task sentence")
        facts: dict[str, list[list[str]]] = defaultdict(list)
        for name, arguments in _FACT.findall(problem[start:end]):
            facts[name].append(arguments.split())
        return _game(facts, problem[end:], sentence[1], tuple(data.get("walkthrough") or ()), path)
    except (ValueError, KeyError, TypeError) as error:
        raise WorldError(
            f"the ALFWorld game {path} is not a game file that this reader understands: {error}"
        ) from error


def _game(facts: dict[str, list[list[str]]], goal: str, sentence: str, plan: tuple[str, ...], path: str) -> Game:
    strange = facts.keys() - _UNDERSTOOD
    if strange:
        raise ValueError(f"unknown facts {sorted(strange)}")
    names = _names({entity for rows in facts.values() for row in rows for entity in row})
    kinds = {entity: kind.removesuffix("type") for entity, kind in facts["receptacletype"] + facts["objecttype"]}
    accepts: dict[str, set[str]] = defaultdict(set)
    for receptacle, item in facts["cancontain"]:
        accepts[receptacle.removesuffix("type")].add(item.removesuffix("type"))

    standing = dict(facts["receptacleatlocation"])
    ids = sorted(standing)
    if len(ids) != len(facts["receptacleatlocation"]) or facts["atlocation"][0][1] in standing.values():
        raise ValueError("a receptacle at two places, or at the agent's start")
    places = {location: place for place, location in enumerate(sorted(set(standing.values())))}
    openable = {row[0] for row in facts["openable"]}
    receptacles = tuple(
        Receptacle(
            name=names[r],
            kind=kinds.get(r, ""),
            place=places[standing[r]],
            openable=r in openable,
            accepts=frozenset(accepts[kinds.get(r, "")]),
        )
        for r in ids
    )

    can: dict[str, set[str]] = defaultdict(set)
    for predicate, ability in _ABILITIES.items():
        for (entity,) in facts[predicate]:
            can[entity].add(ability)
    inside: dict[str, list[str]] = defaultdict(list)
    for inner, outer in sorted(facts["inreceptacleobject"]):
        if inner != outer:  # 21 games have a pan or a mug in itself, which TextWorld does not tell
            inside[outer].append(names[inner])
    vessels = {row[0] for row in facts["isreceptacleobject"]}
    item_ids = sorted({row[0] for name in ("objecttype", "inreceptacle", "objectatlocation") for row in facts[name]})
    items = tuple(
        Item(name=names[i], kind=kinds.get(i, ""), can=frozenset(can[i]), vessel=i in vessels, inside=tuple(inside[i]))
        for i in item_ids
    )

    index = {entity: i for i, entity in enumerate(item_ids)}
    slot = {entity: r for r, entity in enumerate(ids)}
    contents: list[set[int]] = [set() for _ in ids]
    for i, r in facts["inreceptacle"]:
        contents[slot[r]].add(index[i])
    lying: list[set[int]] = [set() for _ in places]
    for i, location in facts["objectatlocation"]:
        if location in places:  # elsewhere nobody can stand
            lying[places[location]].add(index[i])
    return Game(
        id=path,
        task_type=task_type(path),
        task=sentence,
        receptacles=receptacles,
        items=items,
        contents=tuple(tuple(sorted(row)) for row in contents),
        lying=tuple(tuple(sorted(row)) for row in lying),
        goal=_goal(goal),
        plan=plan,
        cool=frozenset(index[i] for (i,) in facts["iscool"]),
    )


def _names(entities: set[str]) -> dict[str, str]:
    """What a player reads instead of an id: kind and number, counting down along the sorted ids, as TextWorld does."""
    ids = sorted(entity for entity in entities if "_bar_" in entity)
    kinds = [entity.split("_bar_", 1)[0] + ("basin" if "basin" in entity else "") for entity in ids]
    left = Counter(kinds)
    names = {}
    for entity, kind in zip(ids, kinds, strict=True):
        names[entity] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names


def _goal(text: str) -> Goal:
    """The goal of one of the six task types. The conditions are fixed but for the kinds they name."""
    literals = [(name, arguments.split()) for name, arguments in _FACT.findall(text)]
    wanted = [arguments[1].removesuffix("type") for name, arguments in literals if name == "objecttype"]
    receptacles = {arguments[1].removesuffix("type") for name, arguments in literals if name == "receptacletype"}
    said = {name for name, _ in literals}
    if "istoggled" in said:
        lamp, item = wanted
        return Goal(item=item, lamp=lamp)
    verbs = [verb for predicate, verb in _VERBS.items() if predicate in said]
    if len(set(wanted)) != 1 or len(receptacles) != 1 or len(verbs) > 1:
        raise ValueError(f"an unknown form of goal: {' '.join(text.split())}")
    return Goal(item=wanted[0], receptacle=receptacles.pop(), count=len(wanted), verb=verbs[0] if verbs else "")


@lru_cache(maxsize=256)
def cached(path: str, folder: str, *, human_goal: bool = False) -> Game:
    """`read`, kept for the games played last; `folder` is the root, so that another root is another game."""
    del folder
    return replace(read(path), task=human(path)) if human_goal else read(path)
