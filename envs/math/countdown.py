"""Countdown: make a number of given ones. Problems without end, a verifier of the expression, an expert by search.

Knows numbers and expressions only. Invariant: an index gives the same problem for ever, and a problem belongs to
exactly one split, whichever order its numbers stand in: the split is a hash of the problem itself. The form is that of
TinyZero (github.com/Jiayi-Pan/TinyZero): every number exactly once, with + - * / and brackets.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Literal, NamedTuple

LEVELS = {1: 3, 2: 4, 3: 5, 4: 6}
"""Value of the option `level` -> how many numbers are given."""
LARGEST = 100
"""Numbers and targets lie between 1 and this."""
_SHARE = 10
"""One problem in so many is in valid_unseen, and one in test."""
_QUESTION = re.compile(r"the numbers ([\d, ]+) exactly once.* to make (\d+)\.")
_SIGNS = {
    "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", r"\times": "*", r"\cdot": "*", r"\div": "/",
    r"\left": "", r"\right": "", "[": "(", "]": ")", "$": "",
}  # fmt: skip
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_EXPRESSION = re.compile(r"[\d+\-*/() ]{1,300}")


class Problem(NamedTuple):
    """What is given, and what is to be made."""

    numbers: tuple[int, ...]
    target: int

    @property
    def question(self) -> str:
        """As it is asked."""
        given = ", ".join(map(str, self.numbers))
        return f"Use each of the numbers {given} exactly once, with + - * / and brackets, to make {self.target}."


def problem(split: str, level: int, index: int) -> Problem:
    """Problem `index` of a split at a level of `LEVELS`; it has a solution.

    >>> problem("train", 1, 0) == problem("train", 1, 0)
    True
    """
    random = Random(f"countdown/{split}/{level}/{index}")
    while True:
        numbers = tuple(random.randint(1, LARGEST) for _ in range(LEVELS[level]))
        target = _made_of(random, numbers)
        if target is not None and _split_of(numbers, target) == split:
            return Problem(numbers, target)


def asked(question: str) -> Problem:
    """The problem that a question asks. Raises ValueError on another form of question."""
    match = _QUESTION.search(question)
    if match is None:
        raise ValueError(f"no countdown question: {question!r}")
    return Problem(tuple(int(n) for n in match[1].split(",")), int(match[2]))


def verify(answer: str, given: Problem) -> Literal["correct", "wrong", "unparsed"]:
    """Whether an expression uses every number exactly once and has the target's value, by exact fractions.

    `EXPRESSION = TARGET` counts as the expression. Never raises.

    >>> verify("(44 + 19) + 35 = 98", Problem((44, 19, 35), 98)), verify("98", Problem((44, 19, 35), 98))
    ('correct', 'wrong')
    """
    text = answer.strip().rstrip(".")
    while text != (text := _FRACTION.sub(r"((\1)/(\2))", text)):
        pass
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    left, equals, right = text.partition("=")
    if equals and right.strip() != str(given.target):
        return "unparsed"
    if not _EXPRESSION.fullmatch(left.strip()):
        return "unparsed"
    used: list[int] = []
    try:
        value = _value(ast.parse(left.strip(), mode="eval").body, used)
    except ZeroDivisionError:
        return "wrong"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "unparsed"
    return "correct" if value == given.target and sorted(used) == sorted(given.numbers) else "wrong"


def solve(given: Problem) -> str | None:
    """An expression for the target, or None where there is none. Exhaustive; up to six numbers in seconds."""
    return _search([(Fraction(n), str(n)) for n in given.numbers], given.target)


def _made_of(random: Random, numbers: Sequence[int]) -> int | None:
    """A target that the numbers make in some order, or None where this draw leads out of bounds."""
    rest = list(numbers)
    random.shuffle(rest)
    value = rest.pop()
    while rest:
        n, sign = rest.pop(), random.choice("++--*/")
        if sign == "/" and (n == 0 or value % n):
            return None
        value = {"+": value + n, "-": value - n, "*": value * n, "/": value // n}[sign]
        if not 0 <= value <= LARGEST * LARGEST:
            return None
    return value if 1 <= value <= LARGEST else None


def _split_of(numbers: Sequence[int], target: int) -> str:
    bucket = zlib.crc32(f"countdown {sorted(numbers)} {target}".encode()) % _SHARE
    return {0: "valid_unseen", 1: "test"}.get(bucket, "train")


def _value(node: ast.expr, used: list[int]) -> Fraction:
    match node:
        case ast.Constant(value=int(n)) if type(n) is int:
            used.append(n)
            return Fraction(n)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, used), _value(right, used)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div():
                    return a / b
    raise ValueError("neither a number nor one of + - * /")


def _search(terms: list[tuple[Fraction, str]], target: int) -> str | None:
    if len(terms) == 1:
        return _bare(terms[0][1]) if terms[0][0] == target else None
    seen = set()
    for i, (a, left) in enumerate(terms):
        for j, (b, right) in enumerate(terms):
            if i == j:
                continue
            rest = [term for k, term in enumerate(terms) if k not in (i, j)]
            results = [(a - b, "-"), *([(a / b, "/")] if b else [])]
            if i < j:
                results += [(a + b, "+"), (a * b, "*")]
            for value, sign in results:
                key = (value, *sorted(v for v, _ in rest))
                if key in seen:
                    continue
                seen.add(key)
                if found := _search([(value, f"({left} {sign} {right})"), *rest], target):
                    return found
    return None


def _bare(expression: str) -> str:
    return expression[1:-1] if expression.startswith("(") else expression
