"""reasoning-gym itself, in a process of its own: it makes questions, and its graders judge answers.

The one file that imports the package. Knows nothing of worlds. Invariants: a question belongs to one split, whichever
index led to it (a hash of the question decides); nothing that an agent wrote is run as code; a verdict says "wrong"
only where the grader worked.
"""

from __future__ import annotations

import copy
import logging
import re
import resource
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import reasoning_gym
from reasoning_gym.factory import CURRICULA, DATASETS

from ..child import packed, serve
from ..errors import one_line
from ..math.extract import canonical
from ..math.numbers import number, same_number

MEMORY = 6 << 30
"""Address space of the process, bytes: a power tower ends here, not in the machine's swap."""
LANES = 1 << 25
"""Seeds of one index are this far apart; all lie below 2**32."""
TRIES = 120
"""Seeds of one index that are looked at for a question of its split."""
FULL = 1.0 - 1e-9

_LISTS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Graders that run an answer through `eval` to see whether it is a list."""
_FORMULAS = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Graders that run an answer through sympy's `parse_expr`, which is `eval` too."""
_FUNCTIONS = re.compile(r"(?:a?(?:sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|[Aa]bs|pi|erf)")
_DRAWN_AT_ONCE = frozenset({"acre", "gsm_symbolic", "list_functions"})
"""Data sets that draw all their questions when they are made, so that another seed needs another data set."""
_NONSENSE = ("0", "nonsense", "[]")
"""Answers that earn nothing, unless one of them is the stored answer."""
_BAD_ANSWER = (ValueError, TypeError, LookupError, AttributeError, SyntaxError, ArithmeticError, RecursionError)
"""What graders raise at an answer that they cannot read."""


@cache
def _made(task: str, level: int | None) -> Any:
    return _make(task, level, 0)


def _make(task: str, level: int | None, seed: int) -> Any:
    """A data set of one question."""
    if level is None:
        return reasoning_gym.create_dataset(task, seed=seed, size=1)
    curriculum = CURRICULA[task]()
    curriculum.set_global_level(level)
    return DATASETS[task][0](curriculum.generate_configuration({"seed": seed, "size": 1}))


def _of_seed(task: str, level: int | None, seed: int) -> tuple[Any, dict[str, Any]]:
    if task in _DRAWN_AT_ONCE:
        dataset = _make(task, level, seed)
    else:  # what is read from files stays; only the seed is another
        dataset = copy.copy(_made(task, level))
        dataset.seed = seed
        dataset.config = replace(dataset.config, seed=seed)
    return dataset, dataset[0]


@lru_cache(maxsize=256)
def entry(task: str, level: int | None, seed: int, held_out: bool) -> tuple[Any, dict[str, Any]]:
    """The data set and the question of an index; every other question, by its hash, is held out.

    Raises LookupError where the task has too few questions for two splits, and whatever the package raises.
    """
    for lane in range(TRIES):
        dataset, found = _of_seed(task, level, seed + lane * LANES)
        if zlib.crc32(found["question"].encode()) % 2 == held_out:
            return dataset, found
    raise LookupError(f"{task} has no further question for this split")


def judge(task: str, level: int | None, seed: int, held_out: bool, answer: str) -> tuple[str, float, str]:
    """What an answer is worth: kind (correct, wrong, unparsed, broken), the grader's share of full marks, and why.

    Some graders give full marks to anything, or to a first digit; where one of them does so for this very question,
    the stored answer decides, by its letters or by its value. Some pay a little for nonsense: such a share is 0.
    """
    dataset, found = entry(task, level, seed, held_out)
    stored = found["answer"]
    if stored is not None and answer.strip() == stored.strip():
        return "correct", 1.0, ""
    if not answer.strip():
        return "unparsed", 0.0, "no answer"
    if not harmless(task, answer):
        return "unparsed", 0.0, "not read: its grader would run it as code"

    def score(text: str) -> float:
        return float(dataset.score_answer(text, copy.deepcopy(found)))

    try:
        share = score(answer)
    except _BAD_ANSWER as error:
        return _of_error(error, score, stored)
    if not 0.0 <= share <= FULL + 1e-6:
        return "broken", 0.0, f"the grader gave {share}"
    junk = max((_tried(score, text) for text in _NONSENSE if text != stored), default=0.0)
    if junk >= FULL and stored is not None:
        return ("correct", 1.0, "") if _same(stored, answer) else ("wrong", 0.0, "")
    if share >= FULL:
        return "correct", 1.0, ""
    return "wrong", share if share > junk else 0.0, ""


def harmless(task: str, answer: str) -> bool:
    """Whether the grader of this task, some of which call `eval`, may be given this answer.

    >>> harmless("countdown", "(3 + 4) * sqrt(4)"), harmless("countdown", "open(1)"), harmless("n_queens", "f()")
    (True, False, False)
    """
    if task in _LISTS:
        return "(" not in answer and "__" not in answer
    if task in _FORMULAS:
        names = re.findall(r"[^\W\d]\w*", answer)
        known = all(len(name) == 1 or _FUNCTIONS.fullmatch(name) for name in names)
        return known and re.search(r"[\"'\\\[\]{}@:;=_]|\.\s*[^\W\d]", answer) is None
    return True


def _of_error(error: Exception, score: Callable[[str], float], stored: str | None) -> tuple[str, float, str]:
    """The answer's fault where the grader works for the stored answer (or, without one, for an empty list)."""
    try:
        works = score("[]" if stored is None else stored) >= (0.0 if stored is None else FULL)
    except _BAD_ANSWER:
        works = False
    return ("unparsed" if works else "broken"), 0.0, one_line(error)


def _tried(score: Callable[[str], float], text: str) -> float:
    try:
        return score(text)
    except _BAD_ANSWER:
        return 0.0


def _same(stored: str, answer: str) -> bool:
    if stored.strip().casefold() == answer.strip().casefold():
        return True
    s, a = number(canonical(stored)), number(canonical(answer))
    return s is not None and a is not None and same_number(s, a)


def _answer(message: list[Any]) -> bytes:
    if not message:
        return packed("ready")
    what, *arguments = message
    try:
        if what == "judge":
            return packed(judge(*arguments))
        found = entry(*arguments)[1]
        return packed({"question": found["question"], "answer": found["answer"]})
    except Exception as error:  # the package's boundary: what it raises is told, and the process goes on
        return packed(["broken", 0.0, one_line(error)] if what == "judge" else {"error": one_line(error)})


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    serve(_answer, int(sys.argv[1]))
