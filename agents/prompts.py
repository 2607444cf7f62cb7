"""What an agent is told: prompt templates by name.

Knows texts only. A template's fields take `{instructions}` (of the world) and `{observation}`, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.envs.errors import UnknownName, UserError

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
