"""The agent for one question and one answer: the whole answer is the action, what was thought before it left out.

Knows thinking by its `<think>` tags; whether a model thinks is its template's to say, or `agent.thinking`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.envs.base import WorldSpec
from harness.envs.errors import UserError

from .base import Offer
from .config import AgentConfig
from .models.base import Message
from .parse import UNFINISHED, Reply, split_thinking
from .prompts import Words

EMPTY = "The answer is empty."
"""What is noted of an answer with nothing in it."""


class SingleAgent:
    """Answers once, whatever the world would allow. Raises UserError where more steps are asked for."""

    name = "single"
    max_steps = 1

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        if config.max_steps not in (None, 1):
            raise UserError(f"agent.max_steps={config.max_steps} would be ignored: the agent 'single' answers once.")
        self._words = Words(config, world)
        self._thinking = config.thinking

    def start(self, observation: str, info: Mapping[str, Any], offer: Offer) -> Sequence[Message]:
        if self._thinking is not None:
            offer(thinking=self._thinking)
        return self._words.begin(observation)

    def read(self, answer: str) -> Reply:
        reasoning, content, finished = split_thinking(answer)
        action = content.strip()
        if not finished or not action:
            return Reply(thought=reasoning, action="", problem=EMPTY if finished else UNFINISHED)
        return Reply(thought=reasoning, action=action, problem=None)

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        return self._words.tell(observation)

    def write(self, thought: str, action: str) -> str:
        return f"<think>\n{thought}\n</think>\n\n{action}" if thought and self._thinking is not False else action
