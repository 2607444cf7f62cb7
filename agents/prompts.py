"""What an agent is told: prompt templates by name.

Knows texts only. A template's fields take `{instructions}` (of the world) and `{observation}`, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.envs.errors import UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """How a talk begins."""

    system: str
    """System message, with `{instructions}`; empty leaves it out."""
    opening: str
    """First user message, with `{observation}`."""


PROMPTS: Mapping[str, PromptTemplate] = {
    "react": PromptTemplate(
        system="""\
You solve a task in a text world, one step at a time. After each of your answers the world tells you what happened.

{instructions}

Answer in exactly this form, and write nothing after the action:
Thought: one or two sentences on what you know and what to do next
Action: one action, on one line""",
        opening="{observation}",
    ),
    # for a model that has been trained on the form and the world's rules: every word would only cost time
    "plain": PromptTemplate(system="", opening="{observation}"),
}


def prompt(name: str) -> PromptTemplate:
    """The template of this name. Raises UnknownName."""
    try:
        return PROMPTS[name]
    except KeyError:
        raise UnknownName("prompt", name, PROMPTS) from None
