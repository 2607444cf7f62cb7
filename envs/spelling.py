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
    text = " ".join(unicodedata.normalize("NFKC", action).casefold().split())
    while (shorter := text.strip(_AROUND).rstrip(_END)) != text:
        text = shorter
    return text
