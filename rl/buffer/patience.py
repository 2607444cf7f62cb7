"""Waiting for a server that has gone away: it may be starting again.

Knows clocks, no servers. Invariant: what is tried again is tried until it works, fails in another way, or the time is
over; so whatever is tried must come to the same when it is done twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

OPENING = 30.0
"""Seconds that a server may take to answer the first time, when its address may be wrong."""
RUNNING = 300.0
"""Seconds that it may be gone in the middle of a run."""
_FIRST, _LAST = 0.02, 1.0


def until_it_answers(action: Callable[[], T], gone: Callable[[Exception], bool], seconds: float) -> T:
    """What `action` returns, tried again with growing pauses while it raises what `gone` knows as a lost server."""
    deadline, pause = time.monotonic() + seconds, _FIRST
    while True:
        try:
            return action()
        except Exception as error:
            if not gone(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))  # apart, so that not all come at once
        pause = min(_LAST, 2 * pause)
