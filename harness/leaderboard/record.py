"""What an entry says of how it was made: everything that moves a score, and nothing else.

Knows settings and hashes, no files. Invariant: two entries with equal records are draws from one distribution.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness.agents.prompts import prompt_of

if TYPE_CHECKING:
    from harness.agents.config import AgentConfig
    from harness.envs.base import WorldSpec

_SINCE = {"repeats": 1, "grader_version": "1"}
"""Fields that came later, with what they were before: left out of a digest there, so that old digests stand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Everything that moves a score. Two entries with equal records are draws from one distribution."""

    model: str
    """Name to show."""
    model_digest: str | None
    """SHA-256 over the checkpoint's files; None for an endpoint or a scripted player."""
    engine: str
    """What sampled: local, openai, expert, random."""
    engine_options: dict[str, Any] = field(default_factory=dict)
    """dtype, URL and the like."""
    tokenizer_hash: str | None = None
    """SHA-256 over vocabulary and chat template."""
    env: str
    world_version: str
    grader_version: str = "1"
    split: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the world's `tasks`."""
    task_ids: list[str]
    """All tasks of the entry, in the split's order."""
    repeats: int = 1
    """Attempts at each task."""
    success_at: float
    """Summed reward from which an episode is a success."""
    max_steps: int
    """Actions before an episode is cut."""
    agent: dict[str, Any] = field(default_factory=dict)
    """The `agent` section."""
    prompt_hash: str | None = None
    """SHA-256 over the prompt's text."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """The `sampling` section."""
    seed: int = 0
    """Seeds the sampler of each episode, together with the task."""
    seed_reaches_sampler: bool = True
    """False for endpoints that may ignore it."""
    limits: dict[str, Any] = field(default_factory=dict)
    """The `limits` section."""
    harness_version: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        facts = {k: v for k, v in asdict(self).items() if k not in _SINCE or v != _SINCE[k]}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def attempts(self) -> Iterator[tuple[str, int]]:
        """Every attempt the entry must hold, as (task id, number), in the order of a finished entry."""
        return ((task, number) for task in self.task_ids for number in range(self.repeats))


def prompt_hash(agent: AgentConfig, world: WorldSpec) -> str:
    """SHA-256 over all that an agent is told in a world before it sees anything of a task. Raises UserError."""
    template = prompt_of(agent)
    text = "\0".join((template.system, template.opening, template.tools, world.instructions))
    return hashlib.sha256(text.encode()).hexdigest()
