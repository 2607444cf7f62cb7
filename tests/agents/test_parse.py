"""Reading answers: whatever a model writes, there is an action or a problem, never an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.parse import EMPTY_ACTION, NO_ACTION, PROBLEMS, UNFINISHED, parse, write

F = "```"


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("Thought: dark.\nAction: light the lamp", "dark.", "light the lamp"),
        ("Action: look", "", "look"),
        ("thought: a\n  ACTION :  go to desk 1  ", "a", "go to desk 1"),
        ("I should look.\nAction: look", "I should look.", "look"),
        ("Thought: a\nb\n\nAction: look\n", "a\nb", "look"),
        ("**Thought:** a\n**Action:** go to desk 1", "a", "go to desk 1"),
        ("**Action: go to desk 1**", "", "go to desk 1"),
        ("Action: `look`", "", "look"),
        ("Action: ```look```", "", "look"),
        ("> Thought: a\n> Action: look", "a", "look"),
        ("Final Action: 42", "", "42"),
        ("Thought\uff1a a\nAction\uff1a look", "a", "look"),
        # the first action counts, what was made up behind it does not
        ("Thought: a\nAction: x\nObservation: fine\nThought: b\nAction: y", "a", "x"),
        # on the next line, or in a fence
        ("Thought: a\nAction:\nlook", "a", "look"),
        (f"Thought: a\nAction:\n{F}python\nx = 1\nprint(x)\n{F}\nthat is it", "a", "x = 1\nprint(x)"),
        (f"Action:\n{F}\nlook", "", "look"),
        (f"{F}\nThought: a\nAction: look\n{F}", "a", "look"),
        # reasoning
        ("<think>hm\nAction: wrong</think>\nThought: a\nAction: look", "hm\nAction: wrong\na", "look"),
        ("2+2 equals 4.\n</think>\n\nAction: answer 4", "2+2 equals 4.", "answer 4"),
        ("<think></think>Action: look", "", "look"),
        ("Action: look\n<think>and then", "", "look"),
        ("Action: say 2*3 = `6`", "", "say 2*3 = `6`"),
        ("Action: *a* and *b*", "", "*a* and *b*"),
    ],
)
def test_an_action_is_found(text: str, thought: str, action: str) -> None:
    reply = parse(text)
    assert (reply.thought if "and then" not in text else "", reply.action, reply.problem) == (thought, action, None)


@pytest.mark.parametrize(
    ("text", "problem", "thought"),
    [
        ("", NO_ACTION, ""),
        ("go to desk 1", NO_ACTION, "go to desk 1"),
        ("Thought: only this", NO_ACTION, "only this"),
        ("<think>Action: go", UNFINISHED, "Action: go"),
        ("<think>\nhm</think>", NO_ACTION, "hm"),
        ("Action:", EMPTY_ACTION, ""),
        ("Action:\n\nThought: b\nAction: y", EMPTY_ACTION, ""),
        (f"Thought: a\nAction:\n{F}\n{F}", EMPTY_ACTION, "a"),
        ("Reaction: none\nInteraction: none", NO_ACTION, "Reaction: none\nInteraction: none"),
    ],
)
def test_a_problem_is_named(text: str, problem: str, thought: str) -> None:
    reply = parse(text)
    assert (reply.problem, reply.thought, reply.action) == (problem, thought, "")


PARTS = [
    "Thought:",
    "Action:",
    "action :",
    "<think>",
    "</think>",
    "```",
    "\n",
    "**",
    "`",
    ":",
    " ",
    "go",
    "\r",
    "\u2028",
]


@given(st.text() | st.lists(st.sampled_from(PARTS) | st.text(max_size=3)).map("".join))
def test_any_text_gives_an_action_or_a_problem(text: str) -> None:
    reply = parse(text)
    assert (reply.action == "") == (reply.problem is not None)
    assert reply.problem is None or reply.problem in PROBLEMS
    assert reply.action == reply.action.strip()


LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1).map(str.strip)
PLAIN = LINE.filter(lambda s: s and "think>" not in s and "```" not in s and s[0] not in "*`_>#-:\uff1a")


@given(PLAIN | st.just(""), PLAIN)
def test_what_is_written_is_read_again(thought: str, action: str) -> None:
    if "action" in thought.lower() or "thought" in (thought + action).lower():
        return
    reply = parse(write(thought, action))
    assert (reply.thought, reply.action, reply.problem) == (thought, action, None)
