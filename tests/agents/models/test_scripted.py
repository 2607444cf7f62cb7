"""Answers written beforehand, as text and as tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerFast

from harness.agents.models.base import ContextFull, Message, ModelError, Prompt, Sampling
from harness.agents.models.scripted import LOGPROB, ScriptedModel
from harness.agents.parse import parse
from harness.envs.echo import Echo

Get = Callable[[str], PreTrainedTokenizerFast]
PROMPT = Prompt(messages=(Message(role="user", content="Hi"),), tokens=(5, 6, 7))


def ask(model: ScriptedModel, session: str = "s", **sampling: int) -> str:
    return asyncio.run(model.complete(PROMPT, Sampling(**sampling), session=session)).text  # type: ignore[arg-type]


def test_answers_are_said_in_turn_in_each_session() -> None:
    model = ScriptedModel(["one", "two"])
    assert [ask(model), ask(model, "t"), ask(model)] == ["one", "one", "two"]
    with pytest.raises(ModelError, match="has 2 answers"):
        ask(model)
    model.release("s")
    model.release("never seen")
    assert ask(model) == "one"


def test_a_function_sees_prompt_sampling_and_session() -> None:
    model = ScriptedModel(lambda prompt, sampling, session: f"{prompt.messages[-1].content} {sampling.seed} {session}")
    assert ask(model, "x", seed=3) == "Hi 3 x"


def test_with_a_tokenizer_there_are_tokens_that_end_as_the_template_ends(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    completion = asyncio.run(
        ScriptedModel(["go to desk 1"], tokenizer=tok, version=4).complete(PROMPT, Sampling(), session="s")
    )
    assert completion.tokens[-1] == tok.convert_tokens_to_ids("<|im_end|>")
    assert tok.decode(list(completion.tokens[:-1])) == completion.text == "go to desk 1"
    assert completion.logprobs == (LOGPROB,) * len(completion.tokens)
    assert (completion.finish, completion.version) == ("stop", 4)


def test_an_answer_is_cut_at_its_limit_and_at_the_context(tokenizer: Get) -> None:
    tok = tokenizer("chatml")
    for context, most in ((100, 2), (5, 64)):
        model = ScriptedModel(["go to desk 1 and look"], tokenizer=tok, context=context)
        completion = asyncio.run(model.complete(PROMPT, Sampling(max_tokens=most), session="s"))
        assert (len(completion.tokens), completion.finish) == (2, "length")
        assert completion.text == tok.decode(list(completion.tokens))
    with pytest.raises(ContextFull):
        ask(ScriptedModel(["x"], tokenizer=tok, context=3))


def test_the_expert_answers_as_the_world_would(tokenizer: Get) -> None:
    task = Echo.tasks("train")[3]
    model = ScriptedModel.expert(Echo, [task], tokenizer=tokenizer("chatml"))
    world = Echo()
    world.reset(seed=task.seed, options={"task": task})
    total = 0.0
    for _ in range(2):
        total += world.step(parse(ask(model, f"{task.key}#0")).action)[1]
    assert total == 1.0
    with pytest.raises(ModelError, match="was not given the task"):
        ask(model, "echo/train/99#0")
