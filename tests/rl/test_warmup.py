"""Demonstrations hold the tokens of an agent's own episodes, with loss on what the expert said."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from harness.agents.config import AgentConfig, TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.agents.registry import make
from harness.envs.alfworld.world import ALFWorld
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.rl.experience import Example
from harness.rl.warmup import demonstrate


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder: Path = tmp_path_factory.mktemp("tiny")
    make_tiny(folder, TinyConfig(layers=1, width=32, heads=1, kv_heads=1, mlp=32), ALFWorld.texts(), seed=0)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return found


def shown(tokenizer: PreTrainedTokenizerBase, *, turns: int = 50, noise: float = 0.0, seed: int = 0) -> Example:
    world = ALFWorld()
    agent = make(AgentConfig(prompt="plain"), world.world)
    task = ALFWorld.tasks("train", source="generated")[seed]
    return demonstrate(world, task, agent, tokenizer, turns=turns, noise=noise, rng=random.Random(seed))


def answers(tokenizer: PreTrainedTokenizerBase, example: Example) -> list[str]:
    """What carries loss, cut at the end token."""
    text = str(tokenizer.decode(example.tokens[example.mask].tolist()))
    return text.split("<|end|>")[:-1]


def test_loss_is_on_the_experts_answers_and_nothing_else(tokenizer: PreTrainedTokenizerBase) -> None:
    example = shown(tokenizer)
    said = answers(tokenizer, example)
    assert said
    assert all(answer.startswith("Thought: ") and "\nAction: " in answer for answer in said)
    rest = str(tokenizer.decode(example.tokens[~example.mask].tolist()))
    assert "Thought:" not in rest
    assert "Your task is to:" in rest


def test_the_tokens_are_those_of_the_whole_text(tokenizer: PreTrainedTokenizerBase) -> None:
    example = shown(tokenizer)
    text = str(tokenizer.decode(example.tokens.tolist()))
    assert tokenizer.encode(text, add_special_tokens=False) == example.tokens.tolist()


def test_a_shortened_episode_is_the_beginning_of_the_whole_one(tokenizer: PreTrainedTokenizerBase) -> None:
    whole, short = shown(tokenizer), shown(tokenizer, turns=2)
    assert len(answers(tokenizer, short)) == 2
    assert np.array_equal(whole.tokens[: len(short)], short.tokens)


def test_slips_are_there_without_loss(tokenizer: PreTrainedTokenizerBase) -> None:
    example = shown(tokenizer, noise=0.5, seed=3)
    turns = int((example.tokens == tokenizer.convert_tokens_to_ids("<|assistant|>")).sum())
    assert 0 < len(answers(tokenizer, example)) < turns


def test_an_expert_that_makes_no_slips_is_said_so(tokenizer: PreTrainedTokenizerBase) -> None:
    world = Echo()
    agent = make(AgentConfig(prompt="plain"), world.world)
    with pytest.raises(UserError, match=r"warmup\.noise=0"):
        demonstrate(world, Echo.tasks("train")[0], agent, tokenizer, turns=5, noise=0.1, rng=random.Random(0))
