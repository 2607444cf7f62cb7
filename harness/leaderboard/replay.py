"""An attempt played once more from what was answered, and where that differs from what was stored.

The stored answers go through `agents/play.py` itself, as from a model; so thought, action, observation, reward, outcome
and, where there is a tokenizer, every id of the prompts are made anew by the one episode loop. Knows no board.
Invariant: of the stored attempt only the answers are used; the task is the world's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from harness.agents.config import LimitsConfig
from harness.agents.models.base import ContextFull, ModelError, Prompt, Sampling
from harness.agents.play import play
from harness.agents.types import Completion, Outcome, Trajectory, Turn

from .seal import is_sealed, sealed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.agents.base import Agent
    from harness.envs.base import Task
    from harness.envs.host import HostPool

LIMITS = LimitsConfig(episode_seconds=600.0, call_retries=0, episode_retries=0)
EXACT = 1e-9
"""Rewards are sums of few floats, made in the same order both times."""


class Fault(StrEnum):
    """What a check can find; the name under which a report tells it."""

    DIGEST = "changed file"
    RECORD = "edited record"
    RULES = "against the rules"
    TASKS = "not the board's tasks"
    TASK = "swapped task"
    ATTEMPTS = "wrong attempts"
    ANSWER = "edited action"
    TOKENS = "ids do not say the text"
    OBSERVATION = "edited observation"
    REWARD = "forged reward"
    OUTCOME = "forged outcome"
    FIGURES = "edited figure"
    PLAYER = "not this player's answers"
    REPLAY = "cannot be replayed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    fault: Fault
    where: str
    """Attempt, file or setting."""
    text: str
    """What is there, and what should be."""

    def __str__(self) -> str:
        return f"{self.fault}: {self.where}: {self.text}"


class Recorded:
    """The answers of one stored attempt, as a `Model`."""

    def __init__(self, stored: Trajectory, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.name = "recorded"
        self.tokenizer = tokenizer
        self.context = 1 << 62
        self._left = [turn.completion for turn in reversed(stored.turns)]
        self._outcome = stored.outcome

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        if self._left:
            return self._left.pop()
        if self._outcome is Outcome.CONTEXT_LIMIT:
            raise ContextFull("the stored answers end here")
        raise ModelError("the stored answers end here")

    def release(self, session: str) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """Nothing is held."""


Pair = tuple[Trajectory, Trajectory]
"""An attempt as it was stored, and as it was played again."""


async def replays(
    attempts: Iterator[tuple[Task, Trajectory]],
    *,
    hosts: HostPool,
    agent: Callable[[], Agent],
    tokenizer: PreTrainedTokenizerBase | None,
    in_flight: int,
) -> AsyncIterator[Pair]:
    """Play each stored attempt again on the given task, `in_flight` at a time; pairs come in the given order."""

    async def again(task: Task, stored: Trajectory) -> Pair:
        async with hosts.lease() as host:
            played = await play(
                task,
                host=host,
                agent=agent(),
                model=Recorded(stored, tokenizer),
                limits=LIMITS,
                sampling=Sampling(max_tokens=1 << 31),
                attempt=stored.attempt,
            )
        return stored, played

    flying: list[asyncio.Task[Pair]] = []
    try:
        for task, stored in attempts:
            flying.append(asyncio.create_task(again(task, stored)))
            if len(flying) >= in_flight:
                yield await flying.pop(0)
        while flying:
            yield await flying.pop(0)
    finally:
        for waiting in flying:
            waiting.cancel()
        await asyncio.gather(*flying, return_exceptions=True)


def differences(stored: Trajectory, again: Trajectory, tokenizer: PreTrainedTokenizerBase | None) -> Iterator[Finding]:
    """What was stored otherwise than it comes out. Of the turns, the first that differs is told."""
    where = label(stored)

    def found(fault: Fault, text: str) -> Finding:
        return Finding(fault, where, text)

    if is_sealed(stored):
        again = sealed(again)
    if again.outcome in (Outcome.ENV_ERROR, Outcome.GRADER_ERROR, Outcome.TIMEOUT) and stored.scored:
        yield found(Fault.REPLAY, f"the replay ended in {again.outcome}: {again.error}")
        return
    if stored.opening != again.opening:
        yield found(Fault.OBSERVATION, _differ("the opening", stored.opening, again.opening))
        return
    if stored.task_type != again.task_type:
        yield found(Fault.TASK, _differ("the task type", stored.task_type, again.task_type))
    for i, (was, now) in enumerate(zip(stored.turns, again.turns, strict=False)):
        at = f"turn {i}"
        if tokenizer is not None and (was.prompt_tokens, was.restart) != (now.prompt_tokens, now.restart):
            yield found(Fault.TOKENS, f"{at}: the prompt's ids are not those of what was said")
            return
        if (was.thought, was.action, was.problem) != (now.thought, now.action, now.problem):
            yield found(Fault.ANSWER, f"{at}: " + _differ("the action", _done(was), _done(now)))
            return
        if was.observation != now.observation or was.refused != now.refused:
            yield found(Fault.OBSERVATION, f"{at}: " + _differ("the observation", was.observation, now.observation))
            return
        if not abs(was.reward - now.reward) <= EXACT:  # nan is never near
            yield found(Fault.REWARD, f"{at}: the entry says {was.reward:g}, the world gives {now.reward:g}")
            return
    yield from (found(fault, text) for fault, text in _ending(stored, again))


def _ending(stored: Trajectory, again: Trajectory) -> Iterator[tuple[Fault, str]]:
    more = len(stored.turns) - len(again.turns)
    if more > 0:
        yield Fault.OUTCOME, f"the episode was over after turn {len(again.turns) - 1}; {more} more turns are stored"
    elif stored.scored and stored.outcome is not again.outcome:
        said = "had not ended" if again.outcome is Outcome.MODEL_ERROR else f"ended in {again.outcome}"
        yield Fault.OUTCOME, f"the entry says {stored.outcome}, the world {said} after {len(again.turns)} turns"
    elif not stored.scored and again.scored:
        yield Fault.OUTCOME, f"declared lost ({stored.outcome}), but it was played to its end: {again.outcome}"
    if not abs(stored.reward - again.reward) <= EXACT:
        yield Fault.REWARD, f"the entry says {stored.reward:g} in sum, the world gives {again.reward:g}"
    for name in ("steps", "invalid", "refused"):
        noted = stored.metrics.get(name)
        if noted is not None and noted != again.metrics[name]:
            yield Fault.FIGURES, f"metric {name}: the entry says {noted:g}, the replay {again.metrics[name]:g}"


def answers(stored: Trajectory, tokenizer: PreTrainedTokenizerBase | None, longest: int | None) -> Iterator[Finding]:
    """What is wrong with the answers themselves: ids, their number, their text, their logprobs.

    longest: most ids of one answer, where the record sets a limit.
    """
    for i, turn in enumerate(stored.turns):
        c = turn.completion
        problem = ""
        if c.logprobs and (len(c.logprobs) != len(c.tokens) or not all(p <= EXACT for p in c.logprobs)):
            problem = f"{len(c.tokens)} ids come with {len(c.logprobs)} logprobs, or with ones above 0"
        elif longest is not None and len(c.tokens) > longest:
            problem = f"{len(c.tokens)} ids, and at most {longest} may be sampled"
        elif tokenizer is not None and (text := _decoded(c.tokens, tokenizer)) != c.text:
            problem = _differ("the answer", c.text, text)
        if problem:
            yield Finding(Fault.TOKENS, label(stored), f"turn {i}: {problem}")
            return
    for name, said in (
        ("tokens_in", sum(len(t.prompt_tokens) for t in stored.turns)),
        ("tokens_out", sum(len(t.completion.tokens) for t in stored.turns)),
    ):
        noted = stored.metrics.get(name)
        if noted is not None and noted != said:
            yield Finding(Fault.FIGURES, label(stored), f"metric {name}: the entry says {noted:g}, it holds {said}")


def label(trajectory: Trajectory) -> str:
    """An attempt, for people."""
    return f"{trajectory.task.id}#{trajectory.attempt}"


def _decoded(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str | None:
    if ids and not 0 <= min(ids) <= max(ids) < len(tokenizer):
        return None
    return str(tokenizer.decode(list(ids), skip_special_tokens=True))


def _done(turn: Turn) -> str:
    return turn.action or turn.problem or turn.thought


def _differ(what: str, said: str | None, true: str | None) -> str:
    """Both texts from a little before the place where they part."""
    if said is None or true is None:
        return f"{what}: {said!r} is stored, and {true!r} comes out"
    same = next((i for i, (a, b) in enumerate(zip(said, true, strict=False)) if a != b), min(len(said), len(true)))
    start = max(0, same - 20)

    def part(text: str) -> str:
        return ("..." if start else "") + text[start : start + 80] + ("..." if len(text) > start + 80 else "")

    return f"{what}: {part(said)!r} is stored, and {part(true)!r} comes out"
