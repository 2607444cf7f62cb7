"""The ReAct agent: a thought and one action a turn, after Yao et al. 2023 (arXiv:2210.03629).

Knows prompts and the form of answers; keeps nothing between turns, the talk is the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.envs.base import WorldSpec

from .base import Offer
from .config import AgentConfig
from .models.base import Message
from .parse import Reply, parse, write
from .prompts import Words


class ReactAgent:
    """Tells the world's words as they are, cut where they are too long. Raises UnknownName on an unknown prompt."""

    name = "react"

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        self._words = Words(config, world)
        self.max_steps = world.max_steps if config.max_steps is None else config.max_steps
        self._thinking = config.thinking

    def start(self, observation: str, info: Mapping[str, Any], offer: Offer) -> Sequence[Message]:
        if self._thinking is not None:
            offer(thinking=self._thinking)
        return self._words.begin(observation, info.get("tools", ()))

    def read(self, answer: str) -> Reply:
        return parse(answer)

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        return self._words.tell(observation)

    def write(self, thought: str, action: str) -> str:
        return write(thought, action)
