r"""Is an answer right? Grading in stages, the cheap and certain ones first.

Extraction, then spelling and plain numbers in place, then algebra in a pool of processes behind a deadline. Knows
neither tasks nor worlds. Invariant: thread-safe, bounded in time, and never an exception: a grader's own failure is
a kind of verdict, and is never taken for a wrong answer.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ..child import ChildDied, ChildLate
from ..pool import ChildPool
from .extract import answer_in, canonical
from .numbers import Number, number, same_in_base, same_number, split_unit, squeezed

VERSION = "1"
"""Raised whenever a verdict may differ, so that scores stay comparable."""
DEADLINE = 1.5
"""Seconds that the algebra of one answer may take. On a busy machine, to end the process and to start its successor
takes a good part of a second more, and a verdict is to come within two."""
WORKERS = 2
"""Grading processes of one process of ours; they start when first needed."""
START_SECONDS = 120.0
"""Most that the start of one may take; `warm` waits for it, so that the grading of an answer need not."""
_LONGEST = 2000
_NO_NUMBER = re.compile(r"[\d\s.]+|(?=.*[A-Za-z]{3})[A-Za-z'\s]+")
"""Digits that make no number, or words: no algebra will make one of them."""


class Kind(StrEnum):
    """What became of a grading."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"
    """There is no answer, or none that reads as mathematics."""
    GRADER_TIMEOUT = "grader_timeout"
    """Not decided within the deadline, or the grading process died: says nothing about the answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a grading."""

    kind: Kind
    answer: str = ""
    """What was taken for the answer."""

    @property
    def score(self) -> float:
        """1.0 for a correct answer, else 0.0; not to be used where kind is grader_timeout."""
        return float(self.kind is Kind.CORRECT)


def grade(answer: str, gold: str, *, worked_out: bool = False) -> Verdict:
    r"""Compare a reply (see `answer_in` for what is looked at) with the true answer.

    `worked_out` takes a plain number only: where the question is a sum, the sum itself must not pass for its answer.

    >>> grade(r"so it is $\boxed{0.5}$", r"\frac12").kind
    <Kind.CORRECT: 'correct'>
    >>> grade("the answer is 1,000 dollars", "1000").score, grade("<think>5", "5").kind.value
    (1.0, 'unparsed')
    """
    if (verdict := at_once(answer, gold, worked_out=worked_out)) is not None:
        return verdict
    taken = answer_in(answer)
    try:
        return Verdict(Kind(_pool.ask([canonical(_gold(gold)), canonical(taken)], DEADLINE)), taken)
    except (ChildLate, ChildDied):
        return Verdict(Kind.GRADER_TIMEOUT, taken)


@lru_cache(maxsize=64)  # who asks whether it is to be had at once asks for it next
def at_once(answer: str, gold: str, *, worked_out: bool = False) -> Verdict | None:
    """The verdict of `grade`, or None where that takes algebra."""
    if _letter_by_letter(answer, gold):
        return Verdict(Kind.CORRECT, gold)
    taken = answer_in(answer)
    if not taken or len(taken) > _LONGEST:
        return Verdict(Kind.UNPARSED, taken[:_LONGEST])
    quick = _quick(canonical(_gold(gold)), canonical(taken))
    if quick is None and worked_out:
        quick = Kind.UNPARSED
    return None if quick is None else Verdict(quick, taken)


def ready() -> bool:
    """Whether there is nothing that `warm` would wait for."""
    return _pool.ready


def warm() -> None:
    """Wait for a grading process. Where none comes, the first grading that needs one says so."""
    with suppress(ChildLate, ChildDied):
        _pool.warm()


def _letter_by_letter(answer: str, gold: str) -> bool:
    """The reply is the true answer itself, which may be words that no extraction would leave whole."""
    return answer.strip().removeprefix("answer ").strip() == gold.strip() != ""


def _gold(gold: str) -> str:
    return answer_in(gold) if r"\boxed" in gold or "####" in gold else gold


def _quick(gold: str, answer: str) -> Kind | None:
    """What can be said without algebra, or None."""
    if not answer:
        return Kind.UNPARSED
    if squeezed(answer) == squeezed(gold):
        return Kind.CORRECT
    if (based := same_in_base(gold, answer)) is not None:
        return Kind.CORRECT if based else Kind.WRONG
    g, a = _number(gold), _number(answer)
    if g is None:
        return None
    if a is not None:
        g_unit, a_unit = g[1], a[1]
        if g_unit and a_unit and g_unit != a_unit:
            return Kind.WRONG
        return Kind.CORRECT if same_number(g[0], a[0]) else Kind.WRONG
    if _NO_NUMBER.fullmatch(answer):
        return Kind.UNPARSED
    return None


def _number(text: str) -> tuple[Number, str] | None:
    bare, unit = split_unit(text)
    found = number(bare)
    return None if found is None else (found._replace(percent=unit == "%"), unit)


_pool = ChildPool("harness.envs.math.symbolic", workers=WORKERS, start_seconds=START_SECONDS)
