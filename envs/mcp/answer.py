"""Whether a final answer is the one that was wanted.

Invariant: it is the whole answer that counts; one that lists several is wrong.
"""

from __future__ import annotations

import math
import re


def same_answer(given: str, wanted: str) -> bool:
    """Equal as texts, apart from case, spaces, quotes around and a full stop behind; or equal as numbers.

    >>> same_answer(" 42.0", "42"), same_answer("41 or 42", "42"), same_answer('"Ada".', "ada")
    (True, False, True)
    """
    left, right = _plain(given), _plain(wanted)
    if left == right:
        return True
    a, b = _number(left), _number(right)
    return a is not None and b is not None and a == b


def _plain(text: str) -> str:
    words = " ".join(text.split()).casefold().removesuffix(".")
    return words[1:-1] if len(words) > 1 and words[0] == words[-1] and words[0] in "\"'`" else words


def _number(text: str) -> float | None:
    if not re.fullmatch(r"[-+]?\d{1,15}(\.\d{1,9})?", text, re.ASCII):
        return None
    number = float(text)
    return number if math.isfinite(number) else None
