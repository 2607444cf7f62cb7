"""What an agent is: it turns observations into messages, and answers into actions.

It does not talk to the model or the world itself; the player does (play.py). Invariant: an agent sees only what it is
given here, so two agents given the same do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .calls import CallForm
    from .models.base import Message
    from .parse import Reply


class Offer(Protocol):
    """Asks the talk to show tools through the model's own template, and to switch its thinking (chat.py)."""

    def __call__(self, tools: Sequence[Mapping[str, Any]] = (), *, thinking: bool | None = None) -> CallForm | None:
        """The form in which the model will call, or None where it has no way of its own: the agent tells of the tools.

        Raises UserError where there is no thinking to be switched.
        """


class Agent(Protocol):
    """Plays one episode at a time."""

    name: str
    max_steps: int
    """Answers it may give in an episode."""

    def start(self, observation: str, info: Mapping[str, Any], offer: Offer) -> Sequence[Message]:
        """A new episode: what to say first. What is to be shown besides is offered before."""

    def read(self, answer: str) -> Reply:
        """What the model's answer means. Never raises: what cannot be read is a `problem`."""

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        """What to say after a step (or after a problem, which then is the observation)."""

    def write(self, thought: str, action: str) -> str:
        """The answer that `read` reads as this thought and action: for experts, in the episode that was started."""
