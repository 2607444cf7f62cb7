"""Generated arithmetic: questions without end, worked answers, and held-out ones that training never sees.

Knows numbers and words only. Invariant: an index gives the same problem for ever, and a question belongs to exactly
one split, whichever order its operands stand in: the split is a hash of the question itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

LEVELS = {
    1: "sums below 200: 37 + 58",
    2: "sums and differences of two-digit numbers",
    3: "sums and differences of three-digit numbers",
    4: "level 3, and products with one digit: 37 * 6",
    5: "two steps: 37 + 58 - 12, 7 * 6 + 15",
}
"""Value of the option `level` -> what it asks."""
SPLITS = ("train", "valid_unseen", "test")
KINDS = ("add", "sub", "mul", "add-sub", "mul-add")
"""Operations in their order."""
_SHARE = 10
"""One question in so many is in valid_unseen, and one in test."""
_QUESTION = re.compile(r"What is (.+)\?")


class Problem(NamedTuple):
    """One question with its answer."""

    kind: str
    """One of KINDS."""
    question: str
    answer: int


def problem(split: str, level: int, index: int) -> Problem:
    """Problem `index` of a split at a level of `LEVELS`.

    >>> problem("train", 2, 0) == problem("train", 2, 0)
    True
    """
    random = Random(f"{split}/{level}/{index}")
    while True:
        kind, a, b, c = _draw(random, level)
        if _split_of(kind, a, b, c) == split:
            return _ask(kind, a, b, c)


def work_out(question: str) -> tuple[str, int]:
    """The working, column by column from the ones, and the answer. Raises ValueError on another form of question.

    >>> work_out("What is 37 + 58?")
    ('7 + 8 = 15, 3 + 5 + 1 = 9', 95)
    >>> work_out("What is 52 - 17?")
    ('12 - 7 = 5, 5 - 1 - 1 = 3', 35)
    """
    match = _QUESTION.search(question)
    if match is None:
        raise ValueError(f"no arithmetic question: {question!r}")
    first, *rest = match[1].split(" ")
    value, steps = int(first), []
    for operator, operand in zip(rest[::2], map(int, rest[1::2]), strict=True):
        columns, value = _STEPS[operator](value, operand)
        steps.append(columns)
    if len(steps) > 1:  # a second step needs the first one's result spelled out
        steps = [f"{steps[0]}, so {_first_result(match[1])}", *steps[1:]]
    return ". ".join(steps), value


def _draw(random: Random, level: int) -> tuple[str, int, int, int]:
    kinds = {1: ("add",), 2: ("add", "sub"), 3: ("add", "sub"), 4: ("add", "sub", "mul"), 5: ("add-sub", "mul-add")}
    kind = random.choice(kinds[level])
    top = 100 if level in (1, 2, 5) else 1000
    if kind == "mul":
        return kind, random.randrange(10, 100), random.randrange(2, 10), 0
    if kind == "mul-add":
        return kind, random.randrange(2, 100), random.randrange(2, 10), random.randrange(100)
    a, b = random.randrange(top), random.randrange(top)
    if kind == "sub":
        a, b = max(a, b), min(a, b)
    return kind, a, b, random.randrange(a + b + 1) if kind == "add-sub" else 0


def _split_of(kind: str, a: int, b: int, c: int) -> str:
    low, high = (b, a) if kind == "sub" else sorted((a, b))
    bucket = zlib.crc32(f"{kind} {low} {high} {c}".encode()) % _SHARE
    return {0: "valid_unseen", 1: "test"}.get(bucket, "train")


def _ask(kind: str, a: int, b: int, c: int) -> Problem:
    match kind:
        case "add":
            return Problem(kind, f"What is {a} + {b}?", a + b)
        case "sub":
            return Problem(kind, f"What is {a} - {b}?", a - b)
        case "mul":
            return Problem(kind, f"What is {a} * {b}?", a * b)
        case "add-sub":
            return Problem(kind, f"What is {a} + {b} - {c}?", a + b - c)
        case _:
            return Problem(kind, f"What is {a} * {b} + {c}?", a * b + c)


def _add(a: int, b: int) -> tuple[str, int]:
    columns, carry = [], 0
    for x, y in _columns(a, b):
        total = x + y + carry
        columns.append(f"{x} + {y}{' + 1' if carry else ''} = {total}")
        carry = total // 10
    return ", ".join(columns), a + b


def _subtract(a: int, b: int) -> tuple[str, int]:
    columns, borrow = [], 0
    for x, y in _columns(a, b):
        lend = x - y - borrow < 0
        columns.append(f"{x + 10 * lend} - {y}{' - 1' if borrow else ''} = {x + 10 * lend - y - borrow}")
        borrow = int(lend)
    return ", ".join(columns), a - b


def _multiply(a: int, b: int) -> tuple[str, int]:
    columns, carry = [], 0
    for x in map(int, reversed(str(a))):
        total = x * b + carry
        columns.append(f"{x} * {b}{f' + {carry}' if carry else ''} = {total}")
        carry = total // 10
    return ", ".join(columns), a * b


_STEPS: dict[str, Callable[[int, int], tuple[str, int]]] = {"+": _add, "-": _subtract, "*": _multiply}


def _columns(a: int, b: int) -> list[tuple[int, int]]:
    """Digits of both from the ones upwards, the shorter one filled with zeros."""
    width = max(len(str(a)), len(str(b)))
    return list(zip(map(int, reversed(f"{a:0{width}}")), map(int, reversed(f"{b:0{width}}")), strict=True))


def _first_result(expression: str) -> str:
    a, operator, b = expression.split(" ")[:3]
    return f"{a} {operator} {b} = {_STEPS[operator](int(a), int(b))[1]}"
