"""The `env` section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Faults:
    """Faults put into a world on purpose, to see what the rest makes of them.

    Each is a share of the world's answers (resets and steps), at most 1 together. A faulty world lives in worker
    processes, whatever it declares.
    """

    slow: float = 0.0
    """Comes `slow_seconds` late."""
    hang: float = 0.0
    """Never comes."""
    error: float = 0.0
    """Raises an exception."""
    exit: float = 0.0
    """The world's process is gone."""
    garbage: float = 0.0
    """The observation is junk."""
    lost: float = 0.0
    """The connection to what is behind the world is lost, until the next reset."""
    slow_seconds: float = 1.0
    seed: int = 0
    """Together with task, step and action it decides which answers are struck."""

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return self.total > 0

    @property
    def total(self) -> float:
        """Share of answers that are struck."""
        return self.slow + self.hang + self.error + self.exit + self.garbage + self.lost


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """Which world, and which of its tasks."""

    name: str = "alfworld"
    """A name from `harness env list`, the path of a Python file that holds a world, or a Gymnasium id."""
    split: str = "train"
    """Tasks to train on."""
    eval_split: str = "valid_unseen"
    """Held-out tasks to score on."""
    options: dict[str, Any] = field(default_factory=dict)
    """Handed to the world's `tasks(split, **options)`; see the world's card."""
    faults: Faults = field(default_factory=Faults)
