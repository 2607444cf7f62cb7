"""An action without what does not change its meaning; for worlds that compare it with a word of theirs.

Knows no worlds. Invariant: `plain` never raises, and what it gives is a fixed point: it is its own plain form.
"""

from __future__ import annotations

import unicodedata

_AROUND = " \t\r\n\"'`*_“”‘’«»"
_END = ".!,;:"


def plain(action: str) -> str:
    """Small letters, single spaces, usual digits; no quotes, code or bold marks around it, no full stop behind it.

    >>> plain(' **Say  "Apple".** ')
    'say "apple'
    >>> plain("`４２.`")
    '42'
    """
    text = action
    while (shorter := _plainer(text)) != text:
        text = shorter
    return text


def _plainer(text: str) -> str:
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(words).strip(_AROUND).rstrip(_END)
