"""Demonstrations for the supervised warm-up: the world's expert plays, in the form that the agent will be asked for.

Knows worlds, experts and chats; not models. The tokens are those that a rollout of the same texts would hold, so the
policy starts where its own episodes will be. Invariant: a function of the plan alone, stable across processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.agents.chat import TokenChat
from harness.agents.parse import write
from harness.agents.registry import make
from harness.agents.template import template_of
from harness.agents.types import Completion
from harness.envs.errors import UserError
from harness.envs.registry import world_class

from .config import Plan
from .experience import Example
from .explorer.curriculum import tasks_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.agents.base import Agent
    from harness.envs.base import Expert, Task, TextEnv


def demonstrations(plan: Plan, tokenizer: PreTrainedTokenizerBase, context: int) -> Iterator[Example]:
    """`plan.warmup.episodes` demonstrations, one a task; those longer than `context` tokens are left out.

    A share `noise` of the steps is replaced by what a beginner might do; it carries no loss, and the expert's recovery
    from it does. Raises UserError where the world has no expert.
    """
    world_type = world_class(plan.env.name)
    tasks = world_type.tasks(plan.env.split, **{**plan.env.options, **plan.warmup.options})
    world, agent = world_type(), make(plan.agent, world_type.world)
    for number, task in enumerate(tasks_for(tasks, 0, plan.warmup.episodes, plan.run.seed + 1_000_003)):
        rng = random.Random(f"{plan.run.seed}/demonstration {number}")
        example = demonstrate(world, task, agent, tokenizer, noise=plan.warmup.noise, rng=rng)
        if len(example) <= context:
            yield example


def demonstrate(
    world: TextEnv,
    task: Task,
    agent: Agent,
    tokenizer: PreTrainedTokenizerBase,
    *,
    noise: float,
    rng: random.Random,
) -> Example:
    """One episode of the world's expert as tokens, with loss on its own answers. Raises UserError without an expert."""
    template = template_of(tokenizer)
    end = next(iter(template.closers), tokenizer.eos_token_id)
    chat = TokenChat(tokenizer)
    tokens: list[int] = []
    mask: list[bool] = []
    observation, info = world.reset(seed=task.seed, options={"task": task})
    expert = world.expert()
    if expert is None:
        raise UserError(
            f"the world '{world.world.id}' has no expert to learn from. Set warmup.episodes=0, or give it one."
        )
    chat.add(*agent.start(observation, info))
    for _ in range(agent.max_steps):
        thought, action = expert.act(observation, info)
        slip = rng.random() < noise
        if slip:
            thought, action = _slip(expert, info, rng, thought, action)
        chat.prompt()
        text = write(thought, action)
        answer = (*template.encode_after(text), *(() if end is None else (end,)))
        tokens += [*chat.sent, *answer]
        mask += [False] * len(chat.sent) + [not slip] * len(answer)
        chat.take(Completion(tokens=answer, logprobs=(0.0,) * len(answer), text=text, finish="stop"))
        observation, _, terminated, truncated, info = world.step(action)
        if terminated or truncated:
            break
        chat.add(*agent.tell(observation, info))
    return Example(tokens=np.array(tokens, np.int32), mask=np.array(mask, np.bool_))


def _slip(
    expert: Expert, info: Mapping[str, Any], rng: random.Random, thought: str, action: str
) -> tuple[str, str]:
    """Another action than the expert's: the world's own offer, and the expert is told where it wants to know."""
    others: Sequence[str] = info.get("admissible") or (action,)
    chosen = rng.choice(others)
    acted = getattr(expert, "acted", None)
    if acted is not None:
        acted(chosen)
    return thought, chosen
