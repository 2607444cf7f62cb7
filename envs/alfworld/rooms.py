"""What ALFWorld's rooms are made of: tables of rooms, receptacles and items, and the layout of each room.

It knows what is plausible; it does not know games, goals or splits' seeds. The facts (what fits where, what can be
heated, how often a kitchen has an island) are those of the official games, so that generated ones look alike.
Invariant: a room's number decides its receptacles and its kinds of item, on every machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ROOMS: Final = ("kitchen", "living", "bedroom", "bathroom")

NUMBERS: Final = 60
"""Rooms of each kind, numbered from 0."""

HELD_OUT: Final = 6
"""The last so many of each kind are kept for `valid_unseen`."""

RECEPTACLES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "kitchen": {
        "cabinet": (4, 4, 6, 9, 9, 10, 11, 13, 13, 15, 20, 20),
        "coffeemachine": (1,),
        "countertop": (1, 2, 2, 3),
        "diningtable": (0, 1, 1, 2),
        "drawer": (0, 1, 2, 3, 3, 4, 5, 6, 12),
        "fridge": (1,),
        "garbagecan": (1,),
        "microwave": (1,),
        "safe": (0,) * 24 + (1,),
        "shelf": (0, 0, 0, 0, 3),
        "sidetable": (0,) * 8 + (1,),
        "sinkbasin": (1,),
        "stoveburner": (4,) * 20 + (6,),
        "toaster": (1,),
    },
    "living": {
        "armchair": (0, 1, 1, 1, 1, 2, 2, 3),
        "cabinet": (0,) * 12 + (4, 8),
        "coffeetable": (0, 1, 1, 1, 2),
        "desk": (0,) * 24 + (1,),
        "diningtable": (0, 0, 1, 1, 2),
        "drawer": (0, 1, 2, 4, 4, 6, 7, 8, 12),
        "dresser": (0, 0, 1),
        "garbagecan": (1,),
        "ottoman": (0, 0, 0, 0, 0, 0, 1),
        "safe": (0,) * 14 + (1,),
        "shelf": (0, 0, 0, 1, 2, 4, 6, 8, 13),
        "sidetable": (0, 1, 1, 2, 3),
        "sofa": (1, 1, 1, 2),
        "tvstand": (0, 1),
    },
    "bedroom": {
        "armchair": (0, 0, 0, 0, 1, 2),
        "bed": (1,) * 6 + (2,),
        "cabinet": (0,) * 6 + (4,),
        "countertop": (0,) * 24 + (1,),
        "desk": (0, 1, 1, 2),
        "diningtable": (0,) * 6 + (1,),
        "drawer": (0, 2, 2, 3, 4, 5, 6, 10, 11),
        "dresser": (0, 1),
        "garbagecan": (1,),
        "laundryhamper": (0, 0, 1),
        "safe": (0, 0, 0, 0, 1),
        "shelf": (0, 0, 1, 2, 5, 6, 9),
        "sidetable": (0, 1, 1, 2),
    },
    "bathroom": {
        "bathtubbasin": (0, 1, 1),
        "cabinet": (0, 0, 0, 4, 4, 5),
        "cart": (0,) * 12 + (1,),
        "countertop": (0, 1, 1, 1, 1, 2),
        "drawer": (0, 0, 0, 2, 4, 8),
        "dresser": (0,) * 12 + (1,),
        "garbagecan": (1,),
        "handtowelholder": (1, 1, 2),
        "shelf": (0, 0, 0, 1, 2, 4),
        "sidetable": (0,) * 12 + (1,),
        "sinkbasin": (1, 2),
        "toilet": (1,),
        "toiletpaperhanger": (1,),
        "towelholder": (1, 1, 2),
    },
}
"""How many of each receptacle a room may have; one of the numbers is drawn."""

_ALWAYS: Final = {
    "kitchen": "apple bowl bread butterknife cup dishsponge egg fork knife lettuce mug pan peppershaker plate pot "
    "potato saltshaker soapbottle spatula spoon tomato",
    "living": "box creditcard keychain laptop pillow remotecontrol statue",
    "bedroom": "alarmclock book cd cellphone creditcard keychain laptop pen pencil pillow",
    "bathroom": "candle cloth handtowel plunger scrubbrush soapbar soapbottle spraybottle toiletpaper towel",
}
_SOMETIMES: Final = {
    "kitchen": {
        "book": 0.1, "cellphone": 0.15, "creditcard": 0.13, "glassbottle": 0.27, "houseplant": 0.5, "kettle": 0.5,
        "ladle": 0.34, "papertowelroll": 0.38, "pen": 0.06, "pencil": 0.07, "spraybottle": 0.06, "statue": 0.19,
        "vase": 0.19, "window": 0.2, "winebottle": 0.41,
    },
    "living": {
        "book": 0.26, "boots": 0.2, "bowl": 0.11, "candle": 0.1, "cellphone": 0.23, "desklamp": 0.5, "houseplant": 0.5,
        "newspaper": 0.62, "pen": 0.19, "pencil": 0.16, "plate": 0.34, "television": 0.6, "tissuebox": 0.36,
        "vase": 0.58, "watch": 0.51, "wateringcan": 0.47,
    },
    "bedroom": {
        "baseballbat": 0.43, "basketball": 0.38, "bowl": 0.47, "box": 0.45, "cloth": 0.17, "desklamp": 0.8,
        "houseplant": 0.1, "mirror": 0.2, "mug": 0.53, "remotecontrol": 0.12, "statue": 0.14, "teddybear": 0.34,
        "television": 0.2, "tennisracket": 0.38, "tissuebox": 0.13, "vase": 0.06, "watch": 0.06,
    },
    "bathroom": {"dishsponge": 0.23, "mirror": 0.2, "papertowelroll": 0.15, "tissuebox": 0.24, "window": 0.1},
}  # fmt: skip

ITEMS: Final[dict[str, dict[str, float]]] = {
    kind: {**dict.fromkeys(_ALWAYS[kind].split(), 1.0), **_SOMETIMES[kind]} for kind in ROOMS
}
"""Kinds of item in rooms of each kind, with the share of rooms that have them."""

_EATABLE = "apple bread egg lettuce potato tomato"
_CUTLERY = "butterknife fork knife ladle spatula spoon"
_DISHES = "bowl cup mug plate"
_COOKWARE = "kettle pan pot"
_TRINKETS = "cd cellphone creditcard keychain watch"
_PAPERS = "book newspaper pen pencil remotecontrol tissuebox"
_WASHING = "cloth dishsponge handtowel soapbar soapbottle spraybottle toiletpaper"
_DECOR = "candle statue vase wateringcan"
_SPICES = "peppershaker saltshaker"
_SPORTS = "baseballbat basketball tennisracket"
_LOUNGE = "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol"

ACCEPTS: Final[dict[str, frozenset[str]]] = {
    kind: frozenset(items.split())
    for kind, items in {
        "armchair": f"{_LOUNGE} cloth",
        "bathtubbasin": "cloth dishsponge handtowel soapbar",
        "bed": f"book cellphone laptop pillow {_SPORTS}",
        "cabinet": f"book box candle cd glassbottle ladle newspaper plunger tissuebox vase wateringcan winebottle "
        f"{_COOKWARE} {_DISHES} {_SPICES} {_WASHING}",
        "cart": f"candle plunger tissuebox {_WASHING}",
        "coffeemachine": "mug",
        "coffeetable": f"bowl box cellphone creditcard keychain laptop plate watch {_DECOR} {_PAPERS}",
        "countertop": "alarmclock book candle cd cellphone creditcard glassbottle keychain laptop pen pencil "
        f"remotecontrol statue tissuebox vase winebottle {_COOKWARE} {_CUTLERY} {_DISHES} {_EATABLE} {_SPICES} "
        f"{_WASHING}",
        "desk": "alarmclock basketball book bowl box cloth laptop mug pen pencil remotecontrol statue tennisracket "
        f"tissuebox vase wateringcan {_TRINKETS}",
        "diningtable": "alarmclock box cloth dishsponge glassbottle laptop soapbottle spraybottle winebottle "
        f"{_COOKWARE} {_CUTLERY} {_DECOR} {_DISHES} {_EATABLE} {_PAPERS} {_SPICES} {_SPORTS} {_TRINKETS}",
        "drawer": f"butterknife candle fork knife ladle spatula spoon wateringcan {_PAPERS} {_SPICES} {_TRINKETS} "
        f"{_WASHING}",
        "dresser": "alarmclock basketball bowl box cloth laptop mug plate spraybottle tennisracket toiletpaper "
        f"{_DECOR} {_PAPERS} {_TRINKETS}",
        "fridge": f"glassbottle pan pot winebottle {_DISHES} {_EATABLE}",
        "garbagecan": "cd cloth dishsponge handtowel newspaper pen pencil soapbar soapbottle spraybottle tissuebox "
        f"toiletpaper winebottle {_EATABLE}",
        "handtowelholder": "handtowel",
        "laundryhamper": "cloth",
        "microwave": f"apple bread egg glassbottle potato tomato {_DISHES}",
        "ottoman": _LOUNGE,
        "safe": f"statue vase {_TRINKETS}",
        "shelf": f"alarmclock bowl box cup glassbottle kettle mug plate pot winebottle {_DECOR} {_PAPERS} {_SPICES} "
        f"{_TRINKETS} {_WASHING}",
        "sidetable": "alarmclock box butterknife cloth dishsponge fork handtowel kettle knife laptop pan pot soapbar "
        "soapbottle spatula spoon spraybottle toiletpaper winebottle "
        f"{_DECOR} {_DISHES} {_EATABLE} {_PAPERS} {_SPICES} {_SPORTS} {_TRINKETS}",
        "sinkbasin": f"apple cloth dishsponge egg glassbottle handtowel lettuce potato soapbar tomato {_COOKWARE} "
        f"{_CUTLERY} {_DISHES}",
        "sofa": _LOUNGE,
        "stoveburner": _COOKWARE,
        "toilet": f"candle tissuebox {_WASHING}",
        "toiletpaperhanger": "toiletpaper",
        "towelholder": "towel",
        "tvstand": "tissuebox",
    }.items()
}
"""What may be put where. A toaster takes nothing."""

LAMP: Final = "desklamp"
FIXED: Final[dict[str, tuple[str, ...]]] = {
    LAMP: ("coffeetable", "desk", "dresser", "shelf", "sidetable"),
    "boots": ("sidetable", "shelf"),
    "houseplant": ("coffeetable", "countertop", "desk", "diningtable", "shelf", "sidetable"),
    "mirror": ("countertop", "dresser"),
    "papertowelroll": ("countertop", "diningtable", "garbagecan", "shelf", "sidetable", "toilet"),
    "plunger": ("cabinet", "cart"),
    "scrubbrush": ("cart", "countertop", "toilet"),
    "teddybear": ("bed",),
    "television": ("coffeetable", "dresser", "sidetable", "tvstand"),
    "window": ("countertop", "dresser", "shelf"),
}
"""Where things stand that have one place: there is one of each, and nobody is asked to move it."""

IMMOVABLE: Final = frozenset({LAMP, "houseplant", "mirror", "television", "window"})
OPENABLE: Final = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
VESSELS: Final = frozenset({"bowl", "box", "cup", "mug", "pan", "plate", "pot"})

ABILITIES: Final[dict[str, frozenset[str]]] = {
    "clean": frozenset(
        f"apple cloth dishsponge egg lettuce potato soapbar tomato {_COOKWARE} {_CUTLERY} {_DISHES}".split()
    ),
    "heat": frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"}),
    "cool": frozenset(f"pan pot winebottle {_DISHES} {_EATABLE}".split()),
    "slice": frozenset(_EATABLE.split()),
    "use": frozenset({LAMP}),
}
"""Kinds of item that a verb applies to."""


OFFICIAL_ONLY: Final = frozenset({"bathtub", "curtains", "floorlamp", "footstool", "showerglass", "sink"})
"""Kinds of item that only official games show."""

MOST: Final = {"cabinet": 27, "drawer": 27, "shelf": 14}
"""Highest number of a kind of receptacle in any game, where it is above 8; of no kind of item are there more than 8."""


@lru_cache(maxsize=128)
def abilities(kind: str) -> frozenset[str]:
    """All that can be done with a kind of item, taking it included."""
    verbs = {verb for verb, kinds in ABILITIES.items() if kind in kinds}
    return frozenset(verbs if kind in IMMOVABLE else verbs | {"take"})


@dataclass(frozen=True, slots=True)
class Room:
    """One room as it is built: what may be put into it differs from game to game."""

    kind: str
    number: int
    receptacles: tuple[str, ...]
    """Kind of each receptacle, sorted."""
    items: tuple[str, ...]
    """Kinds of item found here, sorted."""


@lru_cache(maxsize=len(ROOMS) * NUMBERS)
def room(kind: str, number: int) -> Room:
    """The room of that kind and number, always the same."""
    rng = random.Random(f"alfworld room {kind} {number}")
    receptacles = [name for name, counts in RECEPTACLES[kind].items() for _ in range(rng.choice(counts))]
    items = [name for name, share in sorted(ITEMS[kind].items()) if rng.random() < share]
    return Room(kind, number, tuple(receptacles), tuple(items))


@lru_cache(maxsize=128)
def homes(item: str) -> tuple[str, ...]:
    """Kinds of receptacle that an item may lie in, sorted."""
    return FIXED.get(item) or tuple(kind for kind, items in ACCEPTS.items() if item in items)
