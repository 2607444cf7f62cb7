"""From the text of an answer to a thought and an action, whatever a model wrote.

Knows the ReAct form (`Thought: ...`, `Action: ...`); not worlds. Invariant: `parse` never raises, and what it gives
is either an action or a problem. Choices made here:
- The first action counts. Later ones were written before the world had answered (as a rule behind an observation that
  the model made up), so they are left out.
- An action is one line. Only a fenced block right after `Action:` may have several.
- What stands in `<think>` is a thought, never an action: a model may consider actions there. A `<think>` that did not
  end leaves no action.
- Text without a label is no action: a guess would be an action that the model did not choose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_ACTION = "No action found. Answer with a line that starts with Action:"
EMPTY_ACTION = "The action is empty. Answer with a line that starts with Action:"
UNFINISHED = "The thought did not end, so no action was read."
PROBLEMS = (NO_ACTION, EMPTY_ACTION, UNFINISHED)
"""Every problem there is, as the model is told; a vocabulary made from scratch should hold these words."""

_ACTION = re.compile(
    r"^([ \t>#*_`-]*)(?:final[ \t]+)?action([*_`]*)[ \t]*[:\uff1a]([^\n]*)", re.IGNORECASE | re.MULTILINE
)
_THOUGHT = re.compile(r"^[ \t>#*_`-]*thoughts?[*_`]*[ \t]*[:\uff1a][ \t*_`]*", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"\s*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ \t]*```[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an answer says.

    >>> parse("Thought: It is dark.\\nAction: light the lamp")
    Reply(thought='It is dark.', action='light the lamp', problem=None)
    """

    thought: str
    """Reasoning, or empty."""
    action: str
    """What to do in the world; empty exactly where there is a problem."""
    problem: str | None
    """Why there is no action, in words that the model can use, or None."""


def parse(text: str) -> Reply:
    """Read one answer."""
    reasoning, content, finished = split_thinking(text) if "think>" in text else ("", text, True)
    found = _ACTION.search(content)
    if found is None:
        thought = _thought(reasoning, content)
        return Reply(thought=thought, action="", problem=NO_ACTION if finished else UNFINISHED)
    thought = _thought(reasoning, content[: found.start()])
    action = found[3].strip()
    if not action or action.startswith("```"):
        action = _below(content[found.end(3) - len(found[3].lstrip()) :])
    if found[1] or found[2] or action[:1] in "*`":
        action = _undecorated(action, found[1].strip(" \t>#-"))
    if not action:
        return Reply(thought=thought, action="", problem=EMPTY_ACTION)
    return Reply(thought=thought, action=action, problem=None)


def write(thought: str, action: str) -> str:
    """The answer that `parse` reads as this thought and action; an action of several lines stands in a fence."""
    if "\n" in action:
        action = f"\n```\n{action}\n```"
    return f"Thought: {thought}\nAction: {action}" if thought else f"Action: {action}"


def split_thinking(text: str) -> tuple[str, str, bool]:
    """Reasoning, the rest, and whether the reasoning ended. A missing `<think>` was in the prompt. Never raises."""
    head, closed, rest = text.rpartition("</think>")
    if closed:
        return head.replace("<think>", "").strip(), rest, True
    before, opened, after = text.partition("<think>")
    return (after.strip(), before, False) if opened else ("", text, True)


def _thought(reasoning: str, before: str) -> str:
    said = _THOUGHT.sub("", before)
    if "```" in said:
        said = _FENCE_LINE.sub("", said)
    said = said.strip()
    return f"{reasoning}\n{said}" if reasoning and said else reasoning or said


def _below(rest: str) -> str:
    """The action that stands under its label: a fenced block, or the next line with something in it."""
    fenced = _FENCE.match(rest)
    if fenced is not None:
        return fenced[1].strip()
    line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    return "" if _THOUGHT.match(line) or _ACTION.match(line) else line


def _undecorated(action: str, lead: str) -> str:
    """Without the bold, italic or code marks around it or left over from its label."""
    if lead:
        action = action.removeprefix(lead).removesuffix(lead).strip()
    for mark in ("**", "```", "`", "*"):
        inner = action[len(mark) : -len(mark)]
        if inner and action.startswith(mark) and action.endswith(mark) and mark not in inner:
            action = inner.strip()
    return action
