"""What an agent is: it turns observations into messages, and answers into actions.

It does not talk to the model or the world itself; the player does (play.py). Invariant: an agent sees only what it is
given here, so two agents given the same do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .models.base import Message
    from .parse import Reply


class Agent(Protocol):
    """Plays one episode at a time."""

    name: str
    max_steps: int
    """Answers it may give in an episode."""

    def start(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        """A new episode: what to say first."""

    def read(self, answer: str) -> Reply:
        """What the model's answer means. Never raises: what cannot be read is a `problem`."""

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        """What to say after a step (or after a problem, which then is the observation)."""
