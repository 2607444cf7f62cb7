"""What an agent is told: prompt templates by name, and the words of one agent in one world.

Knows texts only. A template's fields take `{instructions}` (of the world), `{observation}` and `{tools}`, nothing else.
Invariant: what was cut of an observation is said, with how much it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.envs.base import WorldSpec
from harness.envs.errors import UnknownName, UserError

from .calls import described
from .models.base import Message

if TYPE_CHECKING:
    from .config import AgentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """How a talk begins."""

    system: str
    """System message, with `{instructions}`; empty leaves it out."""
    opening: str
    """First user message, with `{observation}`."""
    tools: str = ""
    """Put behind the system message with `{tools}` where a world lists some and the model's template does not."""


PROMPTS: Mapping[str, PromptTemplate] = {
    "react": PromptTemplate(
        system="""\
You solve a task in a text world, one step at a time. After each of your answers the world tells you what happened.

{instructions}

Answer in exactly this form, and write nothing after the action:
Thought: one or two sentences on what you know and what to do next
Action: one action, on one line""",
        opening="{observation}",
        tools="\n\nThe tools are:\n{tools}",
    ),
    "tools": PromptTemplate(
        system="""\
Use the tools to do what you are asked, with one tool call at a time. When all is done, answer without a tool call, and
say nothing but the answer.""",
        opening="{observation}",
        tools="""

The tools are:
{tools}

To call one, end your message with exactly this, and write nothing behind it:
<tool_call>
{{"name": "the tool", "arguments": {{"its": "arguments"}}}}
</tool_call>""",
    ),
    "single": PromptTemplate(system="{instructions}", opening="{observation}"),
    # for a model that has been trained on the form and the world's rules: every word would only cost time
    "plain": PromptTemplate(system="", opening="{observation}"),
}


def prompt_of(config: AgentConfig) -> PromptTemplate:
    """The template that this agent takes. Raises UnknownName, or UserError where it is another agent's."""
    name = config.name if config.prompt is None else config.prompt
    template = prompt(name)
    if name not in (config.name, "plain"):
        raise UserError(f"agent.prompt={name} is the prompt of the agent '{name}', not of '{config.name}'.")
    return template


def prompt(name: str) -> PromptTemplate:
    """The template of this name. Raises UnknownName."""
    try:
        return PROMPTS[name]
    except KeyError:
        raise UnknownName("prompt", name, PROMPTS) from None


class Words:
    """How an agent's talks begin in a world, and what it tells of the world's own words.

    Raises UnknownName on an unknown prompt, UserError on another agent's.
    """

    def __init__(self, config: AgentConfig, world: WorldSpec) -> None:
        self._template = prompt_of(config)
        self._system = self._template.system.format(instructions=world.instructions).strip()
        self._longest = config.observation_chars

    def begin(self, observation: str, tools: Sequence[Mapping[str, Any]] = ()) -> Sequence[Message]:
        """The first messages, with these tools told in them where the prompt has a place for tools."""
        system = self._system
        if tools:
            system += self._template.tools.format(tools=described(tools))
        rules = (Message(role="system", content=system),) if system else ()
        opening = self._template.opening.format(observation=cut(observation, self._longest))
        return (*rules, Message(role="user", content=opening))

    def tell(self, observation: str, role: Literal["user", "tool"] = "user") -> Sequence[Message]:
        """What the world said."""
        return (Message(role=role, content=cut(observation, self._longest)),)


def cut(text: str, longest: int) -> str:
    """The first `longest` characters, and a mark where there were more."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n[{len(text) - longest} more characters cut]"
