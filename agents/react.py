"""The ReAct agent: a thought and one action a turn, after Yao et al. 2023 (arXiv:2210.03629).

Knows prompts and the form of answers; keeps nothing between turns, the talk is the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.envs.base import WorldSpec

from .config import AgentConfig
from .models.base import Message
from .parse import Reply, parse
from .prompts import prompt


class ReactAgent:
    """Tells the world's words as they are, cut where they are too long. Raises UnknownName on an unknown prompt."""

    name = "react"

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        template = prompt(config.prompt)
        system = template.system.format(instructions=world.instructions).strip()
        self.max_steps = world.max_steps if config.max_steps is None else config.max_steps
        self._rules = (Message(role="system", content=system),) if system else ()
        self._opening = template.opening
        self._longest = config.observation_chars

    def start(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        opening = self._opening.format(observation=self._cut(observation))
        return (*self._rules, Message(role="user", content=opening))

    def read(self, answer: str) -> Reply:
        return parse(answer)

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        return (Message(role="user", content=self._cut(observation)),)

    def _cut(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        return f"{text[: self._longest]}\n[{len(text) - self._longest} more characters cut]"
