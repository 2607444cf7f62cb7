"""What an episode leaves behind: completions, turns, a trajectory, and how it ended.

Knows nothing of worlds beyond `Task`, nor of training. Invariant: tokens here are those that were sent and sampled;
none is ever made again from text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from harness.envs.base import Task


class Outcome(StrEnum):
    """How an episode ended. Only `SCORED` ones carry a reward that the agent earned."""

    DONE = "done"
    STEP_LIMIT = "step_limit"
    CONTEXT_LIMIT = "context_limit"
    TIMEOUT = "timeout"
    ENV_ERROR = "env_error"
    MODEL_ERROR = "model_error"
    GRADER_ERROR = "grader_error"
    CANCELLED = "cancelled"


SCORED = frozenset({Outcome.DONE, Outcome.STEP_LIMIT, Outcome.CONTEXT_LIMIT})
"""Outcomes in which the agent had its chance: the reward counts. All others are lost attempts, never a 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of a model.

    >>> Completion(tokens=(5, 2), logprobs=(-0.1, -0.2), text="look", finish="stop", version=3).version
    3
    """

    tokens: tuple[int, ...]
    """Sampled ids in order, the end token included where it was sampled; empty for a text-only endpoint."""
    logprobs: tuple[float, ...]
    """Natural log of the probability each token was drawn with (after temperature and truncation), one a token."""
    text: str
    """The tokens decoded without special tokens."""
    finish: Literal["stop", "length", "abort"]
    """stop: end token or stop string; length: max_tokens or context; abort: cancelled."""
    version: int = 0
    """Policy version that sampled it (its last token, where weights came in the middle)."""
    versions: tuple[int, ...] = ()
    """Policy version that sampled each token, where they differ; empty where `version` sampled them all."""
    usage: tuple[int, int] | None = None
    """Tokens read and written, as a text-only endpoint counts them; None where the ids say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange: what was sent, what came back, what it did in the world."""

    prompt_tokens: tuple[int, ...]
    """Ids appended to the stream before the completion (the whole prompt where `restart`)."""
    restart: bool
    """The stream began anew here: the first turn, or a chat template rewrote history."""
    completion: Completion
    thought: str
    """Reasoning part of the completion, or empty."""
    action: str
    """What was done in the world, or empty where nothing parsed."""
    problem: str | None
    """Why no action could be read, or None."""
    observation: str
    """The world's answer to the action (or the notice about the problem)."""
    reward: float
    """Reward of this step."""
    refused: bool = False
    """No action could be read, or the world says that it could not be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One attempt at one task, whatever became of it."""

    task: Task
    attempt: int
    """0-based number of this attempt within its group."""
    opening: str
    """First observation, from the world's reset."""
    task_type: str = ""
    """What kind of task the world says it is, for figures per kind."""
    turns: tuple[Turn, ...]
    reward: float
    """Sum of the turns' rewards; meaningful only where `scored`."""
    outcome: Outcome
    error: str | None = None
    """One line on what broke, or None."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Seconds in the world and in the model, retries, drift counters, and so on."""

    @property
    def scored(self) -> bool:
        """The agent earned this reward."""
        return self.outcome in SCORED

    @property
    def versions(self) -> tuple[int, int]:
        """Oldest and newest policy version that sampled here; (0, 0) where nothing was sampled."""
        seen = [v for t in self.turns for v in (t.completion.version, *t.completion.versions)] or [0]
        return min(seen), max(seen)

    @property
    def trainable(self) -> bool:
        """Scored, and every completion came with its tokens and logprobs."""
        answers = [t.completion for t in self.turns]
        complete = all(c.tokens and len(c.tokens) == len(c.logprobs) for c in answers)
        return self.scored and bool(answers) and complete
