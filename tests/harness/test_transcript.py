"""Episodes as people read them."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from harness.agents.types import Completion, Outcome, Trajectory, Turn
from harness.envs.base import Task
from harness.envs.errors import UserError
from harness.transcript import print_episode, print_tokens

from .conftest import text_of


def turn(sent: tuple[int, ...], sampled: tuple[int, ...], restart: bool = False) -> Turn:
    completion = Completion(tokens=sampled, logprobs=(-1.0,) * len(sampled), text="hm [b]", finish="stop")
    return Turn(
        prompt_tokens=sent,
        restart=restart,
        completion=completion,
        thought="",
        action="",
        problem="no action in it",
        observation="[red]say what?",
        reward=0.0,
    )


EPISODE = Trajectory(
    task=Task(env="e", id="1", split="s"),
    attempt=0,
    opening="[bold]hello",
    turns=(turn((1, 2), (3,), restart=True), turn((4,), (5, 6))),
    reward=0.0,
    outcome=Outcome.TIMEOUT,
    error="late",
)


def test_transcript_shows_text_as_it_is_and_says_what_was_lost(console: Console) -> None:
    print_episode(EPISODE, console)
    text = text_of(console)
    assert "[bold]hello" in text
    assert "> hm [b]" in text
    assert "[red]say what?" in text
    assert "lost (timeout): late; not scored" in text


def test_tokens_are_coloured_by_mask() -> None:
    console = Console(record=True, width=80, force_terminal=True, color_system="standard", file=io.StringIO())
    print_tokens(EPISODE, lambda i: f"<{i}>", console)
    text = Text.from_ansi(console.export_text(styles=True, clear=False))
    green = {
        text.plain[span.start : span.end] for span in text.spans if getattr(span.style, "bgcolor", None) is not None
    }
    assert {"<3>", "<5>", "<6>"} <= green
    assert not green & {"<1>", "<2>", "<4>"}
    assert "3 sent, 3 sampled tokens" in text.plain


def test_a_restarted_stream_begins_anew(console: Console) -> None:
    again = replace(EPISODE, turns=(EPISODE.turns[0], replace(EPISODE.turns[1], restart=True)))
    print_tokens(again, lambda i: f"<{i}>", console)
    lines = [line for line in text_of(console).splitlines() if "<" in line]
    assert [line.strip("│ ") for line in lines] == ["<1><2><3>", "<4><5><6>"]


def test_text_only_episodes_have_no_tokens(console: Console) -> None:
    mute = replace(EPISODE.turns[0], completion=replace(EPISODE.turns[0].completion, tokens=(), logprobs=()))
    with pytest.raises(UserError, match="without tokens"):
        print_tokens(replace(EPISODE, turns=(mute,)), str, console)
