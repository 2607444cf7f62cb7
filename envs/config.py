"""The `env` section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvConfig:
    """Which world, and which of its tasks."""

    name: str = "alfworld"
    """A name from `harness env list`, or the path of a Python file that holds a world."""
    split: str = "train"
    """Tasks to train on."""
    eval_split: str = "valid_unseen"
    """Held-out tasks to score on."""
    options: dict[str, Any] = field(default_factory=dict)
    """Handed to the world's `tasks(split, **options)`; see the world's card."""
