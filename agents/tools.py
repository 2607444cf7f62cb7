"""The agent that calls tools in the model's own way: one call a turn, and an answer without a call ends the task.

Knows worlds of tools by their `info["tools"]` and the form of their actions (envs/mcp/action.py). The tools are shown
through the model's chat template where it can; otherwise the system message tells them, in the form of Hermes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.envs.base import WorldSpec
from harness.envs.errors import UserError
from harness.envs.mcp.action import Answer, Call, Refused, read_action

from .base import Offer
from .calls import HERMES, CallForm
from .config import AgentConfig
from .models.base import Message
from .parse import UNFINISHED, Reply, split_thinking
from .prompts import Words

NO_ANSWER = "error: neither a tool call nor an answer"
"""What the model is told after an answer with nothing in it."""


class ToolsAgent:
    """Raises UserError in a world that has no tools."""

    name = "tools"

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        self._words = Words(config, world)
        self.max_steps = world.max_steps if config.max_steps is None else config.max_steps
        self._thinking = config.thinking
        self._world = world.id
        self._form: CallForm = HERMES
        self._called = False

    def start(self, observation: str, info: Mapping[str, Any], offer: Offer) -> Sequence[Message]:
        tools = info.get("tools")
        if not tools:
            raise UserError(f"agent.name=tools: the world '{self._world}' lists no tools. Take agent.name=react.")
        form = offer(tools, thinking=self._thinking)
        self._form, self._called = form or HERMES, False
        return self._words.begin(observation, tools if form is None else ())

    def read(self, answer: str) -> Reply:
        reasoning, content, finished = split_thinking(answer)
        self._called = False
        if not finished:
            return Reply(thought=reasoning, action="", problem=UNFINISHED)
        before, said = self._form.read(content)
        text = before.strip()
        if said is None:
            if not text:
                return Reply(thought=reasoning, action="", problem=NO_ANSWER)
            return Reply(thought=reasoning, action=f"answer {text}", problem=None)
        self._called = True
        thought = f"{reasoning}\n{text}".strip()
        if isinstance(said, Refused):
            return Reply(thought=thought, action="", problem=f"error: {said.reason}")
        return Reply(thought=thought, action=said.canonical, problem=None)

    def tell(self, observation: str, info: Mapping[str, Any]) -> Sequence[Message]:
        return self._words.tell(observation, "tool" if self._called else "user")

    def write(self, thought: str, action: str) -> str:
        match read_action(action):
            case Call() as call:
                return f"{thought}\n{self._form.write(call)}".lstrip()
            case Answer(text=text):
                return text
            case Refused():
                return action
