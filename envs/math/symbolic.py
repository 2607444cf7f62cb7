r"""Are two answers the same mathematics? The slow part of grading, run in a process of its own.

math-verify reads LaTeX; whether two expressions are equal is decided here by their values at fixed points, because
its own comparison says equal to numbers that are merely small, and different to what differs only outside of a
common domain. Knows canonical spellings; no deadline: grade.py kills what takes too long.
Invariant: bounded memory, and one answer to each question, whatever it is.
"""

from __future__ import annotations

import logging
import re
import resource
import sys
from typing import Any, Literal

import mpmath
import sympy
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef

from ..child import packed, serve
from .numbers import number, same_number, split_unit, squeezed, without_separators
from .structure import bracketed, interval, is_relation, left_side, matrix, split, value_side

Judgement = Literal["correct", "wrong", "unparsed"]

MEMORY = 4 << 30
"""Address space of a grading process, bytes: a power tower ends here, not in the machine's swap."""
_DIGITS = 40
_POINTS = (
    ("0.7390851332", "1.3247179572", "2.2360679775", "0.5671432904", "1.8392867552"),
    ("-0.6180339887", "1.6180339887", "-1.2020569032", "-0.9159655942", "0.2614972128"),
    ("-2.6854520011", "-0.3036630029", "0.4142135624", "1.4513692349", "-1.7548776662"),
    ("3.1462643699", "0.8346268417", "1.7320508076", "2.5029078751", "0.1234567891"),
)
"""Values for the first, second ... variable in turn; both signs, none special."""
_WORDS = re.compile(r"(?=.*[A-Za-z]{3})[A-Za-z']+(?:[ -][A-Za-z']+)*")


def judge(gold: str, answer: str) -> Judgement:
    """Compare two canonical answers. May take for ever; never raises but MemoryError's kin."""
    try:
        return _judge(gold.strip(), answer.strip())
    except (RecursionError, MemoryError, ArithmeticError):
        return "unparsed"


def _judge(gold: str, answer: str) -> Judgement:
    gold, answer = interval(without_separators(gold)), interval(without_separators(answer))
    if _squeezed(gold) == _squeezed(answer):
        return "correct"
    gold_rest, answer_rest = value_side(gold), value_side(answer)
    if answer_rest is not None and gold_rest is None and not is_relation(gold):
        return _judge(gold, answer_rest)
    if gold_rest is not None and answer_rest is not None and left_side(gold) == left_side(answer):
        return _judge(gold_rest, answer_rest)
    if gold_rest is not None and answer_rest is None and not is_relation(answer):
        return _judge(gold_rest, answer)
    for parts in (_unions, _lists, _matrices):
        if (verdict := parts(gold, answer)) is not None:
            return verdict
    gold_unit, answer_unit = split_unit(gold), split_unit(answer)
    if gold_unit[1] and answer_unit[1] and gold_unit[1] != answer_unit[1]:
        return "wrong"
    gold, answer = gold_unit[0], answer_unit[0]
    if (g := number(gold)) is not None and (a := number(answer)) is not None:
        g, a = g._replace(percent=gold_unit[1] == "%"), a._replace(percent=answer_unit[1] == "%")
        return "correct" if same_number(g, a) else "wrong"
    if (named := _names(gold, answer)) is not None:
        return named
    return _expressions(gold, answer)


def _all(pairs: list[tuple[str, str]]) -> Judgement:
    verdicts = [_judge(g, a) for g, a in pairs]
    return next((v for v in verdicts if v != "correct"), "correct")


def _matched(gold: list[str], answer: list[str]) -> Judgement:
    """As sets: each of one side has its equal on the other."""
    if len(gold) != len(answer):
        return "wrong"
    left = list(answer)
    for g in gold:
        at = next((i for i, a in enumerate(left) if _judge(g, a) == "correct"), None)
        if at is None:
            return "wrong"
        left.pop(at)
    return "correct"


def _unions(gold: str, answer: str) -> Judgement | None:
    g, a = split(gold, (r"\cup",)), split(answer, (r"\cup",))
    return _matched(g, a) if len(g) > 1 or len(a) > 1 else None


def _lists(gold: str, answer: str) -> Judgement | None:
    (g_open, g_close, g), (a_open, a_close, a) = bracketed(gold), bracketed(answer)
    if len(g) == 1 and len(a) == 1 and "{" not in (g_open, a_open):
        if g_open and a_open and g_open == a_open == "(":
            return _judge(g[0], a[0])
        return None
    if g_open and a_open and (g_open, g_close) != (a_open, a_close):
        return "wrong"
    if g_open == "[" != a_open:  # an interval is no list
        return "wrong"
    if {g_open, a_open} & {"(", "["}:
        return _all(list(zip(g, a, strict=True))) if len(g) == len(a) else "wrong"
    return _matched(g, a)


def _matrices(gold: str, answer: str) -> Judgement | None:
    g_rows, a_rows = matrix(gold), matrix(answer)
    if g_rows is None or a_rows is None:
        return None
    if [len(row) for row in g_rows] != [len(row) for row in a_rows]:
        return "wrong"
    return _all([pair for rows in zip(g_rows, a_rows, strict=True) for pair in zip(*rows, strict=True)])


def _squeezed(text: str) -> str:
    return squeezed(re.sub(r"\\text\s*\{\s*([^{}]*?)\s*\}", r"\1", text))


def _names(gold: str, answer: str) -> Judgement | None:
    """Words are compared as words: to algebra, "even" would be a product of its letters."""
    g, a = (re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", s).strip(" .()") for s in (gold, answer))
    if not _WORDS.fullmatch(g) or (len(g) < 4 and r"\text" not in gold):
        return None
    return "correct" if g.casefold() == a.casefold() else "wrong"


def _expressions(gold: str, answer: str) -> Judgement:
    g, a = _read(gold), _read(answer)
    if g is None or a is None:
        return "unparsed" if a is None else "wrong"
    if isinstance(g, sympy.Eq) and isinstance(a, sympy.Eq):
        return "correct" if _same_equation(g, a) else "wrong"
    if isinstance(g, sympy.Expr) and isinstance(a, sympy.Expr):
        percents = [side.rstrip().endswith("%") for side in (gold, answer)]
        same = _same_values(g, a, decimal=bool(g.atoms(sympy.Float) or a.atoms(sympy.Float)))
        if same is not None and not any(percents):
            return "correct" if same else "wrong"
    if isinstance(g, sympy.Expr) != isinstance(a, sympy.Expr):
        return "wrong"
    agreed = verify(g, a, allow_set_relation_comp=True, timeout_seconds=None)
    return "correct" if agreed else "wrong"


def _read(text: str) -> Any:
    """The sympy object that a canonical answer is, its variables told by name alone, or None."""
    found = parse(f"${text}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None)
    if not found or not isinstance(found[0], (sympy.Basic, sympy.MatrixBase)):
        return None
    thing = found[0]
    if not isinstance(thing, sympy.Basic):
        return thing
    names = {s: sympy.I if s.name == "i" else sympy.Symbol(s.name) for s in thing.atoms(sympy.Symbol)}
    thing = thing.xreplace(names)
    calls = {f: sympy.Symbol(f.func.__name__) * f.args[0] for f in thing.atoms(AppliedUndef) if len(f.args) == 1}
    return thing.xreplace(calls)  # k(k+1) is a product here, not a call of k


def _same_equation(gold: Any, answer: Any) -> bool:
    """Left minus right of both, up to a constant factor."""
    g, a = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if g.free_symbols != a.free_symbols:
        return False
    ratios = [x / y for x, y in _values(g, a) if y != 0]
    return len(ratios) > 1 and all(
        ratio != 0 and abs(ratio - ratios[0]) < abs(ratios[0]) * mpmath.mpf("1e-12") for ratio in ratios
    )


def _same_values(gold: Any, answer: Any, *, decimal: bool) -> bool | None:
    """Equal at all points where both are defined and real (or both are complex); None where no point tells."""
    pairs = _values(gold, answer)
    if not pairs:
        return None
    finer = None
    tolerance = mpmath.mpf("1e-6" if decimal else "1e-15")
    for i, (x, y) in enumerate(pairs):
        largest = max(abs(x), abs(y))
        if abs(x - y) <= largest * tolerance:
            continue
        if x != 0 != y or largest > mpmath.mpf(10) ** (10 - _DIGITS):
            return False
        # one side is 0, the other tiny: an error of rounding goes away with more digits, a small number stays
        finer = finer or _values(gold, answer, 3 * _DIGITS)
        if max(map(abs, finer[i])) > largest * mpmath.mpf(10) ** -_DIGITS:
            return False
    return True


def _values(gold: Any, answer: Any, digits: int = _DIGITS) -> list[tuple[Any, Any]]:
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=lambda s: str(s.name))
    pairs: list[tuple[Any, Any]] = []
    complex_meant = gold.has(sympy.I) or answer.has(sympy.I)
    with mpmath.workdps(digits):
        try:
            functions = [sympy.lambdify(symbols, side, "mpmath") for side in (gold, answer)]
        except (NotImplementedError, TypeError, ValueError, SyntaxError, NameError, KeyError):
            return []
        for point in _POINTS if symbols else _POINTS[:1]:
            values = [mpmath.mpf(point[i % len(point)]) + i // len(point) for i in range(len(symbols))]
            try:
                x, y = (mpmath.mpmathify(function(*values)) for function in functions)
            except (ArithmeticError, ValueError, TypeError, NameError, AttributeError, NotImplementedError):
                continue
            if not (mpmath.isfinite(x) and mpmath.isfinite(y)):
                continue
            if symbols and not complex_meant and (mpmath.im(x) != 0 or mpmath.im(y) != 0):
                continue
            pairs.append((x, y))
    return pairs


def _answer(message: list[str]) -> bytes:
    return packed(judge(*message) if message else "ready")


if __name__ == "__main__":
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    parse("$1$", extraction_config=[LatexExtractionConfig()], parsing_timeout=None)  # its first use is slow
    serve(_answer, int(sys.argv[1]))
