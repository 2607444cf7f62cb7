"""One episode as people read it: thoughts, actions and observations, or every token with its mask.

Knows trajectories only. Invariant: texts are shown as they are; nothing in them is taken for markup.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from harness.agents.types import Trajectory
from harness.envs.errors import UserError

from .leaderboard.score import succeeded

Decode = Callable[[int], str]
"""From a token id to its text."""


def print_episode(trajectory: Trajectory, console: Console, *, success_at: float = 1.0) -> None:
    """The episode as a transcript."""
    t = trajectory
    console.print(Text(t.task.key, style="bold"))
    console.print(Padding(Text(t.opening), (0, 0, 1, 2)))
    for number, turn in enumerate(t.turns, start=1):
        if turn.thought:
            console.print(Text(f"{number:>3}  {turn.thought}", style="italic dim"))
        action = turn.action or turn.completion.text.strip().replace("\n", " ")
        console.print(Text(f"{'' if turn.thought else number:>3}> {action}", style="bold cyan"))
        style = "yellow" if turn.problem else ""
        console.print(Padding(Text(turn.observation.strip(), style=style), (0, 0, 0, 5)))
    if not t.scored:
        end, style = f"lost ({t.outcome}): {t.error or 'no reason given'}; not scored", "bold red"
    elif succeeded(t, success_at):
        end, style = f"success: reward {t.reward:g} in {len(t.turns)} steps", "bold green"
    else:
        end, style = f"no success ({t.outcome}): reward {t.reward:g} in {len(t.turns)} steps", "bold yellow"
    console.print(Text(end, style=style))


def print_tokens(trajectory: Trajectory, decode: Decode, console: Console) -> None:
    """Every token of the episode's streams; green ones were sampled (mask True), the others were sent to the model.

    Raises UserError where the episode was played without tokens.
    """
    if not any(turn.completion.tokens for turn in trajectory.turns):
        raise UserError("this episode was played without tokens (a text-only or scripted player).")
    streams: list[Text] = []
    sent = sampled = 0
    for turn in trajectory.turns:
        if turn.restart or not streams:
            streams.append(Text())
        for ids, style in ((turn.prompt_tokens, "dim"), (turn.completion.tokens, "black on green")):
            for i, token in enumerate(ids):
                streams[-1].append(decode(token), style=style if i % 2 == 0 else f"{style} underline")
        sent, sampled = sent + len(turn.prompt_tokens), sampled + len(turn.completion.tokens)
    legend = Text.assemble(("sampled: trained on", "black on green"), "  ", ("sent: masked", "dim"))
    console.print(Panel(Group(*streams), title=f"{sent} sent, {sampled} sampled tokens", title_align="left"))
    console.print(legend)


def decoder(folder: str) -> Decode:
    """Of the tokenizer in a model folder."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
