"""The ReAct agent: a thought and one action a turn, after Yao et al. 2023 (arXiv:2210.03629).

Knows prompts and the form of answers; keeps nothing between turns, the talk is the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.envs.base import WorldSpec

from .base import Offer
from .calls import described
from .config import AgentConfig
from .history import cut
from .models.base import Message
from .parse import Reply, parse, write
from .prompts import prompt_of


class ReactAgent:
    """Tells the world's words as they are, cut where they are too long. Raises UnknownName on an unknown prompt."""

    name = "react"

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        template = prompt_of(config)
        self._system = template.system.format(instructions=world.instructions).strip()
        self._tools = template.tools
        self.max_steps = world.max_steps if config.max_steps is None else config.max_steps
        self._opening = template.opening
        self._thinking = config.thinking
        self._longest = config.observation_chars

    def start(self, observation: str, info: Mapping[str, Any], offer: Offer) -> Sequence[Message]:
        if self._thinking is not None:
            offer(thinking=self._thinking)
        system, tools = self._system, info.get("tools")
        if tools and self._tools:
            system += self._tools.format(tools=described(tools))
        opening = self._opening.format(observation=cut(observation, self._longest))
        rules = (Message(role="system", content=system),) if system else ()
        return (*rules, Message(role="user", content=opening))

    def read(self, answer: str) -> Reply:
        return parse(answer)

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        return (Message(role="user", content=cut(observation, self._longest)),)

    def write(self, thought: str, action: str) -> str:
        return write(thought, action)
