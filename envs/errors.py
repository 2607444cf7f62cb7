"""What may go wrong in a world, as one small family.

`UserError` is the root of every mistake that a person can mend: it carries what, where and what to do, and the
command line prints it without a traceback. It lives here because this is the lowest floor.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class UserError(Exception):
    """A mistake that the user can mend. The message says what, where and what to do."""


class UnknownName(UserError):
    """A name that is in no table, with the nearest ones that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1)
        guess = f" Did you mean '{near[0]}'?" if near else ""
        listed = f" Known: {', '.join(names)}." if names else ""
        super().__init__(f"unknown {kind} '{name}'.{guess}{listed}{' ' + hint if hint else ''}")


class WorldError(Exception):
    """The world broke (not the agent): becomes Outcome.ENV_ERROR."""


class WorldTimeout(WorldError):
    """The world did not answer within its deadline: becomes Outcome.TIMEOUT."""


class GraderError(Exception):
    """The grader broke or could not decide: becomes Outcome.GRADER_ERROR, never reward 0."""


def one_line(error: BaseException) -> str:
    """An exception as one line of a report: its type and its words."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
