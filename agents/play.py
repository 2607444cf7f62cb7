"""The one episode loop, and the one boundary where whatever breaks is given an Outcome.

Knows a host (a world), an agent and a model by their contracts; not groups, rewards' use or training. Invariant: `play`
returns a Trajectory whatever the world, the model or the agent did; only a UserError that is not theirs gets out.

| what happens                                             | outcome       |
|----------------------------------------------------------|---------------|
| the world says terminated                                | DONE          |
| the world says truncated, or max_steps answers were used | STEP_LIMIT    |
| no room for an answer                                    | CONTEXT_LIMIT |
| a reset, step, call or the episode took too long         | TIMEOUT       |
| the world raised, or its reward is not allowed           | ENV_ERROR     |
| the grader raised                                        | GRADER_ERROR  |
| the model failed as often as it may; the agent raised    | MODEL_ERROR   |
| the episode's asyncio task was cancelled                 | CANCELLED     |

An answer without an action costs a step: the world is not asked, and the problem is what the agent observes.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from hashlib import blake2b
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

from harness.envs.errors import GraderError, UserError, WorldTimeout

from .chat import Chat, History, open_chat
from .config import LimitsConfig
from .models.base import ContextFull, Model, ModelError, Prompt, Sampling
from .types import Completion, Outcome, Trajectory, Turn

if TYPE_CHECKING:
    from harness.envs.base import Task
    from harness.envs.host import Host

    from .base import Agent

FIRST_PAUSE = 0.25
"""Seconds before the first further try of a failed call; doubled each time, and drawn from its half to its whole."""

_SESSIONS = count()


def turn_seed(seed: int, task_key: str, attempt: int, turn: int) -> int:
    """Seed of one completion, in [0, 2**63): the same whatever else is played beside it, and in any process."""
    digest = blake2b(f"{seed}/{attempt}/{turn}/{task_key}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def pause(done: int) -> float:
    """Seconds to wait before the next try, after `done` further tries: growing, and never the same for two."""
    return float(FIRST_PAUSE * 2**done) * random.uniform(0.5, 1.0)


async def play(
    task: Task,
    *,
    host: Host,
    agent: Agent,
    model: Model,
    limits: LimitsConfig,
    sampling: Sampling,
    attempt: int = 0,
    history: History = "keep",
) -> Trajectory:
    """Play one episode to its end, whatever that is.

    `sampling.seed` is the run's: each turn is drawn with `turn_seed`. The model's session is `<task key>#<n>`. To
    cancel, cancel the asyncio task that awaits this: the episode so far is returned, as CANCELLED. Metrics:
    seconds_model, seconds_world, seconds_other; steps; retries (further model calls); tokens_in (ids sent) and
    tokens_out; invalid (answers without an action); refused (those, and actions that the world
    did not carry out); drift and restarts (chat.py); progress, where the world tells.
    """
    episode = _Episode(task, host, agent, model, limits, sampling, attempt)
    began = perf_counter()
    error: str | None = None
    try:
        async with asyncio.timeout(limits.episode_seconds) as deadline:
            outcome = await episode.run(open_chat(model, history=history))
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            current.uncancel()
            outcome = Outcome.CANCELLED
        else:  # a library of the world or the model raised it by itself
            outcome, error = episode.blame(RuntimeError("cancelled itself"))
    except TimeoutError as late:
        if deadline.expired():
            outcome, error = Outcome.TIMEOUT, f"the episode took longer than {limits.episode_seconds:g} s"
        else:
            outcome, error = episode.blame(late)
    except Exception as fault:  # the one boundary: whatever escapes is attributed, and becomes data
        if episode.phase == "agent" and isinstance(fault, UserError):
            raise
        outcome, error = episode.blame(fault)
    finally:
        model.release(episode.session)
    return episode.trajectory(outcome, error, perf_counter() - began)


class _Episode:
    """One episode under way: its turns and counters, and whose turn it is (`phase`: world, model or agent)."""

    def __init__(
        self, task: Task, host: Host, agent: Agent, model: Model, limits: LimitsConfig, sampling: Sampling, attempt: int
    ) -> None:
        self.task, self.host, self.agent, self.model = task, host, agent, model
        self.limits, self.sampling, self.attempt = limits, sampling, attempt
        self.session = f"{task.key}#{next(_SESSIONS)}"
        self.phase = "agent"
        self.opening = self.task_type = ""
        self.turns: list[Turn] = []
        self.chat: Chat | None = None
        self.progress: float | None = None
        self.retries = self.refused = self.invalid = self.tokens_in = self.tokens_out = 0
        self.in_model = self.in_world = 0.0

    async def run(self, chat: Chat) -> Outcome:
        agent, turns = self.agent, self.turns
        self.chat = chat
        self.phase = "world"
        start = perf_counter()
        try:
            self.opening, info = await self.host.reset(self.task)
        finally:
            self.in_world += perf_counter() - start
        self.phase = "agent"
        self.task_type = str(info.get("task_type", ""))
        chat.add(*agent.start(self.opening, info, chat.offer))
        while len(turns) < agent.max_steps:
            prompt = chat.prompt()
            sent, restarted = chat.sent, chat.restarted
            self.phase = "model"
            start = perf_counter()
            try:
                completion = await self._complete(prompt)
            finally:
                self.in_model += perf_counter() - start
            self.phase = "agent"
            self.tokens_in += len(sent)
            self.tokens_out += len(completion.tokens)
            reply = agent.read(chat.take(completion))
            reward, terminated, truncated, refused = 0.0, False, False, True
            if reply.problem is None:
                self.phase = "world"
                start = perf_counter()
                try:
                    observation, reward, terminated, truncated, info = await self.host.step(reply.action)
                finally:
                    self.in_world += perf_counter() - start
                self.phase = "agent"
                self.progress = info.get("progress")
                refused = bool(info.get("refused", False))
            else:
                observation = reply.problem
                self.invalid += 1
            turns.append(
                Turn(
                    prompt_tokens=sent,
                    restart=restarted,
                    completion=completion,
                    thought=reply.thought,
                    action=reply.action,
                    problem=reply.problem,
                    observation=observation,
                    reward=reward,
                    refused=refused,
                )
            )
            self.refused += refused
            if terminated:
                return Outcome.DONE
            if truncated:
                return Outcome.STEP_LIMIT
            chat.add(*agent.tell(observation, info))
        return Outcome.STEP_LIMIT

    async def _complete(self, prompt: Prompt) -> Completion:
        """One answer, asked for again after a failure or a late answer, as often as the limits allow."""
        sampling = self._sampling(len(prompt.tokens))
        tries = self.limits.call_retries
        while True:
            try:
                async with asyncio.timeout(self.limits.call_seconds):
                    completion = await self.model.complete(prompt, sampling, session=self.session)
                if completion.finish == "abort":
                    raise ModelError("the answer was broken off")
                return completion
            except (ModelError, TimeoutError):
                if not tries:
                    raise
            done = self.limits.call_retries - tries
            tries -= 1
            self.retries += 1
            await asyncio.sleep(pause(done))

    def _sampling(self, length: int) -> Sampling:
        """This turn's seed, and no more tokens than the context has room for. Raises ContextFull."""
        base = self.sampling
        longest = base.max_tokens
        if length:
            room = self.model.context - length
            if room < 1:
                raise ContextFull(f"{length} tokens fill the context of {self.model.context}")
            longest = min(longest, room)
        if base.seed is None:
            return base if longest == base.max_tokens else replace(base, max_tokens=longest)
        seed = turn_seed(base.seed, self.task.key, self.attempt, len(self.turns))
        return replace(base, max_tokens=longest, seed=seed)

    def blame(self, error: Exception) -> tuple[Outcome, str]:
        """Whose fault it is, and one line about it."""
        line = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ContextFull):
            return Outcome.CONTEXT_LIMIT, line
        if isinstance(error, WorldTimeout):
            return Outcome.TIMEOUT, line
        if isinstance(error, GraderError):
            return Outcome.GRADER_ERROR, line
        if isinstance(error, TimeoutError):
            late = f"no answer of the model within {self.limits.call_seconds:g} s" if self.phase == "model" else line
            return Outcome.TIMEOUT, late
        if not isinstance(error, (ModelError, UserError)) and not type(error).__module__.startswith("harness."):
            line = f"{type(error).__name__}: {line}"
        if self.phase == "world":
            return Outcome.ENV_ERROR, line
        if self.phase == "agent":
            line = f"agent {self.agent.name}: {line}"
        return Outcome.MODEL_ERROR, line

    def trajectory(self, outcome: Outcome, error: str | None, seconds: float) -> Trajectory:
        metrics: dict[str, float] = {
            "seconds_model": self.in_model,
            "seconds_world": self.in_world,
            "seconds_other": seconds - self.in_model - self.in_world,
            "steps": len(self.turns),
            "retries": self.retries,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "invalid": self.invalid,
            "refused": self.refused,
            "drift": self.chat.drift if self.chat else 0,
            "restarts": self.chat.restarts if self.chat else 0,
        }
        if isinstance(self.progress, (int, float)):
            metrics["progress"] = float(self.progress)
        return Trajectory(
            task=self.task,
            attempt=self.attempt,
            opening=self.opening,
            task_type=self.task_type,
            turns=tuple(self.turns),
            reward=float(sum(turn.reward for turn in self.turns)),
            outcome=outcome,
            error=error,
            metrics=metrics,
        )
