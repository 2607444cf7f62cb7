"""The one thing an agent asks of a model: complete this prompt.

A model that samples tokens reads `Prompt.tokens` and returns ids with logprobs; a text-only endpoint reads
`Prompt.messages` and returns text. Both are the same Protocol, so agents, evaluation and training need no branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from ..types import Completion
    from .collective import Sender


class ModelError(Exception):
    """The model server failed, or answered what cannot be used: becomes Outcome.MODEL_ERROR."""


class ContextFull(Exception):
    """The prompt leaves no room for an answer in the model's context: becomes Outcome.CONTEXT_LIMIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What to complete, in both forms."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    """The whole context as ids; empty where the model has no tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw tokens."""

    temperature: float = 1.0
    """0 is greedy. Logprobs are of the distribution after temperature, so that trainer and sampler agree."""
    top_p: float = 1.0
    max_tokens: int = 64
    seed: int | None = None
    """Makes this one completion repeatable on the same engine; None draws from the engine's generator."""
    stop: tuple[str, ...] = ()
    """The answer ends where its text holds one of these, with the token that completed it."""


class Model(Protocol):
    """A policy that can be asked. `session` names an episode: an engine may keep its cache between turns."""

    name: str
    tokenizer: PreTrainedTokenizerBase | None
    """None for a text-only endpoint."""
    context: int
    """Largest number of tokens of prompt and answer together."""

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Raises ModelError, ContextFull."""

    def release(self, session: str) -> None:
        """The episode is over: its cache may go. Unknown sessions are ignored."""

    async def close(self) -> None:
        """Free whatever it holds; the model is not used again."""


class Policy(Model, Protocol):
    """A model whose weights can be set while it serves: what training samples with."""

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Sample with these named weights from here on, as `version`: all of them, or a low-rank change of those that
        the model's folder holds (see adapter.py). Raises ValueError where they do not fit."""


class Puller(Protocol):
    """What fetches new weights itself, through a process group."""

    async def pull(self, sender: Sender, version: int) -> int:
        """As `Policy.update`: have rank 0 send `version`, or one after it, and sample with that, which is returned.

        Raises ConnectionError where they do not get here; what it samples with is then unknown.
        """


class Sleeper(Protocol):
    """What shares a device and can make room there."""

    async def sleep(self) -> None:
        """Give the device's memory back, with nothing under way; the next request, or new weights, end it."""
