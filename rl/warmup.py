"""Demonstrations for the supervised warm-up: the world's expert plays, in the form that the agent will be asked for.

Where a world has no expert a novice plays, which teaches the form of answers and what actions look like, no more.
Knows worlds, experts and chats; not models. The tokens are those that a rollout of the same texts would hold, so the
policy starts where its own episodes will be. Invariant: a function of the plan alone, stable across processes.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.agents.chat import TokenChat
from harness.agents.registry import make
from harness.agents.types import Completion
from harness.envs.errors import UserError
from harness.envs.novice import Novice
from harness.envs.registry import world_class

from .config import Plan
from .experience import Example
from .explorer.curriculum import task_at

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.agents.base import Agent
    from harness.envs.base import Task, TextEnv

_OTHER_TASKS = 1_000_003
"""Added to the run's seed, so that the warm-up and the explorers do not draw the same tasks."""


def demonstrations(plan: Plan, tokenizer: PreTrainedTokenizerBase, context: int) -> list[list[Example]]:
    """Of each stage of `plan.warmup`, its demonstrations, one a task; those longer than `context` tokens are left out.

    A share `noise` of the steps is replaced by a slip; it carries no loss, and the expert's recovery from it does.
    Raises UserError where slips are wanted and the world's expert makes none (or there is no expert).
    """
    warmup, seed = plan.warmup, plan.run.seed
    world_type = world_class(plan.env.name)
    tasks = world_type.tasks(plan.env.split, **{**plan.env.options, **warmup.options})
    chosen = (task_at(tasks, i, seed + _OTHER_TASKS) for i in range(warmup.episodes))
    world, agent = world_type(), make(plan.agent, world_type.world)
    stages = []
    for number, stage in enumerate(warmup.stages):
        rng = random.Random(f"{seed}/stage {number}")
        turns = min(stage.turns or agent.max_steps, agent.max_steps)
        played = (
            demonstrate(world, task, agent, tokenizer, turns=turns, noise=warmup.noise, rng=rng)
            for task in itertools.islice(chosen, stage.episodes)
        )
        stages.append([example for example in played if len(example) <= context])
    return stages


def demonstrate(
    world: TextEnv,
    task: Task,
    agent: Agent,
    tokenizer: PreTrainedTokenizerBase,
    *,
    turns: int,
    noise: float,
    rng: random.Random,
) -> Example:
    """The first `turns` of an episode of the world's expert (or of a novice) as tokens, with loss on its own answers.

    Raises UserError where slips are wanted and the player makes none.
    """
    chat = TokenChat(tokenizer)
    tokens: list[int] = []
    mask: list[bool] = []
    observation, info = world.reset(seed=task.seed, options={"task": task})
    expert = world.expert() or Novice(type(world), task.key)
    slips: Any = getattr(expert, "slip", None)
    if noise and slips is None:
        raise UserError(f"the world '{world.world.id}' has no expert that makes slips. Set warmup.noise=0.")
    chat.add(*agent.start(observation, info, chat.offer))
    template = chat.template
    end = next(iter(template.closers), tokenizer.eos_token_id)
    for _ in range(turns):
        thought, action = expert.act(observation, info)
        slip = rng.random() < noise
        if slip:
            thought, action = slips(rng)
        chat.prompt()
        text = template.begin(agent.write(thought, action))
        answer = (*template.encode_after(text), *(() if end is None else (end,)))
        tokens += [*chat.sent, *answer]
        mask += [False] * len(chat.sent) + [not slip] * len(answer)
        chat.take(Completion(tokens=answer, logprobs=(0.0,) * len(answer), text=text, finish="stop"))
        observation, _, terminated, truncated, info = world.step(action)
        if terminated or truncated:
            break
        chat.add(*agent.tell(observation, info))
    return Example(tokens=np.array(tokens, np.int32), mask=np.array(mask, np.bool_))
