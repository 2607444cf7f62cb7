r"""Parts of a reward: small functions of an action, each from 0 to 1, and their weighted sum.

Knows text only. `Math` composes them by its option `rewards`, for example `{answer: 0.9, boxed: 0.1}`: each named part
times its weight. Invariant: weights sum to 1, so that a reward stays between 0 and 1 and is 1 exactly where every part
is full. A world sees actions: what an agent thought before one, and whether that was long, is not its to judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..errors import UnknownName, UserError
from .extract import closing

PARTS = {
    "answer": "the answer is right",
    "boxed": r"there is exactly one \boxed{...}",
    "tags": "there is exactly one <answer>...</answer>, and nothing behind it",
    "short": "few words: full up to the first number of `words`, nothing from the second one on",
    "fresh": "share of runs of four words that were not there before",
}
"""Name -> when it is full."""
WORDS = (100, 200)
_TAGS = re.compile(r"(?:(?!</?answer>).)*<answer>(?:(?!</?answer>).)*</answer>\s*", re.DOTALL)
_RUN = 4


def boxed(action: str) -> float:
    """1 where there is exactly one box, and it is closed."""
    start = action.find(r"\boxed{")
    one = start >= 0 and action.count(r"\boxed") == 1
    return float(one and closing(action, start + len(r"\boxed")) is not None)


def tags(action: str) -> float:
    """1 where the action ends in its only `<answer>...</answer>`."""
    return float(_TAGS.fullmatch(action) is not None)


def short(action: str, full: int, none: int) -> float:
    """1 up to `full` words, 0 from `none` on, a straight line between: the soft punishment of DAPO (arXiv:2503.14476,
    equation 13), moved up by one.

    >>> short("a b c", 2, 4), short("a b", 2, 4), short("a b c d", 2, 4)
    (0.5, 1.0, 0.0)
    """
    return min(1.0, max(0.0, (none - len(action.split())) / (none - full)))


def fresh(action: str) -> float:
    """Share of the runs of four words that are the first of their kind; 1 where there is no such run."""
    words = action.split()
    runs = [tuple(words[i : i + _RUN]) for i in range(len(words) - _RUN + 1)]
    return len(set(runs)) / len(runs) if runs else 1.0


def composed(action: str, score: float, weights: Mapping[str, float], words: tuple[int, int] = WORDS) -> float:
    """The weighted sum of the named parts; `score` is what the answer is worth."""
    parts = {"answer": lambda: score, "boxed": lambda: boxed(action), "tags": lambda: tags(action)}
    parts |= {"short": lambda: short(action, *words), "fresh": lambda: fresh(action)}
    return min(1.0, math.fsum(weight * parts[name]() for name, weight in weights.items()))


def check(weights: Any, words: Any) -> tuple[dict[str, float], tuple[int, int]]:
    """Both options as they are used; None takes the answer alone. Raises UserError."""
    if weights is None:
        weights = {"answer": 1.0}
    if not isinstance(weights, Mapping):
        raise UserError(f"option rewards of math is a mapping such as {{answer: 0.9, boxed: 0.1}}, got {weights!r}.")
    for name, weight in weights.items():
        if name not in PARTS:
            raise UnknownName("part of option rewards of math", str(name), PARTS)
        if type(weight) not in (int, float) or not 0 < weight <= 1:
            raise UserError(f"option rewards of math: the weight of {name} must lie between 0 and 1, got {weight!r}.")
    if "answer" not in weights or abs(math.fsum(weights.values()) - 1) > 1e-9:
        raise UserError(f"option rewards of math must name `answer`, and its weights sum to 1, got {dict(weights)!r}.")
    if words is not None and "short" not in weights:
        raise UserError("option words of math would be ignored: `rewards` does not name `short`.")
    pair = WORDS if words is None else words
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(type(w) is int for w in pair)):
        raise UserError(f"option words of math is two whole numbers, such as [100, 200], got {words!r}.")
    if not 0 < pair[0] < pair[1]:
        raise UserError(f"option words of math must rise and be greater than 0, got {words!r}.")
    return dict(weights), (pair[0], pair[1])
