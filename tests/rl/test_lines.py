"""A file of talks: what is in it, what carries loss, which step gets which line, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from harness.agents.config import AgentConfig, TinyConfig
from harness.agents.models.base import Message
from harness.agents.models.tiny import make_tiny
from harness.agents.registry import make
from harness.envs.echo import Echo
from harness.envs.errors import UserError
from harness.rl.lines import Lines, encode
from harness.rl.warmup import demonstrate


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder: Path = tmp_path_factory.mktemp("tiny")
    make_tiny(folder, TinyConfig(layers=1, width=32, heads=1, kv_heads=1, mlp=32), Echo.texts(), seed=0)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return found


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def file(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


TALK = [user("The word is apple."), assistant("say apple"), user("Yes. The word is jacket."), assistant("say jacket")]


def said(tokenizer: PreTrainedTokenizerBase, tokens: Any, mask: Any) -> str:
    return str(tokenizer.decode(tokens[mask].tolist()))


def test_loss_is_on_what_the_assistant_says_and_nothing_else(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    lines = Lines(file(tmp_path, {"messages": TALK}), pairs=False)
    (example,) = lines.examples(0, tokenizer)
    assert said(tokenizer, example.tokens, example.mask) == "say apple<|end|>say jacket<|end|>"
    rest = said(tokenizer, example.tokens, ~example.mask)
    assert "The word is apple." in rest
    assert "say" not in rest


def test_a_talk_has_the_tokens_of_the_warm_ups_own(tokenizer: PreTrainedTokenizerBase) -> None:
    import random

    world, task = Echo(), Echo.tasks("train")[3]
    agent = make(AgentConfig(prompt="plain"), world.world)
    shown = demonstrate(world, task, agent, tokenizer, turns=9, noise=0.0, rng=random.Random(0))
    talk: list[Message] = []
    observation, info = world.reset(seed=task.seed, options={"task": task})
    talk += agent.start(observation, info, lambda tools=(), *, thinking=None: None)
    for turn in range(2):
        talk.append(Message(role="assistant", content=agent.write("I repeat it.", f"say {world.words[turn]}")))
        observation, _, done, _, info = world.step(f"say {world.words[turn]}")
        if not done:
            talk += agent.tell(observation, info)
    (example,) = encode(talk, tokenizer)
    assert example.tokens.tolist() == shown.tokens.tolist()
    assert example.mask.tolist() == shown.mask.tolist()


def test_of_a_pair_only_the_answers_carry_loss(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    line = {"prompt": TALK[:3], "chosen": [assistant("say jacket")], "rejected": [assistant("say apple")]}
    pair = Lines(file(tmp_path, line), pairs=True).pair(0, tokenizer)
    assert said(tokenizer, pair.chosen.tokens, pair.chosen.mask) == "say jacket<|end|>"
    assert said(tokenizer, pair.rejected.tokens, pair.rejected.mask) == "say apple<|end|>"
    start = int(np.flatnonzero(pair.chosen.mask)[0])
    assert pair.chosen.tokens[:start].tolist() == pair.rejected.tokens[:start].tolist()


def test_each_pass_gives_every_line_once_whatever_the_batch(tmp_path: Path) -> None:
    lines = Lines(file(tmp_path, *[{"messages": TALK}] * 7), pairs=False)
    steps = [lines.chosen(step, 3, seed=1) for step in range(14)]
    flat = [i for step in steps for i in step]
    for one_pass in range(6):
        assert sorted(flat[7 * one_pass : 7 * one_pass + 7]) == list(range(7))
    assert Counter(flat) == dict.fromkeys(range(7), 6)
    assert [lines.chosen(step, 3, seed=1) for step in range(14)] == steps
    assert [lines.chosen(step, 3, seed=2) for step in range(14)] != steps


GOOD = json.dumps({"messages": TALK})
PAIR = {"prompt": TALK[:1], "chosen": [assistant("a")], "rejected": [assistant("b")]}


@pytest.mark.parametrize(
    ("line", "pairs", "why"),
    [
        ("{", False, "line 3: no JSON"),
        ("[]", False, "a list, where an object"),
        ({"text": "x"}, False, "no 'messages' in it"),
        (PAIR, False, "choose algorithm.name=dpo"),
        ({"messages": TALK}, True, "choose algorithm.name=sft"),
        ({"messages": TALK, "weight": 2}, False, "'weight' would be ignored"),
        ({"messages": "hello"}, False, "must be a list of messages"),
        ({"messages": []}, False, "must begin with what the assistant answers"),
        ({"messages": TALK[1:]}, False, "must begin with what the assistant answers"),
        ({"messages": TALK[:3]}, False, "must end with the assistant"),
        ({"messages": [*TALK, assistant("x")]}, False, "twice in a row"),
        ({"messages": [{"role": "robot", "content": "x"}]}, False, "no role 'robot'"),
        ({"messages": [{"role": "user", "content": None}]}, False, "'content' must be text"),
        ({"messages": [{**TALK[0], "name": "x"}, TALK[1]]}, False, r"messages\[0\] must be an object"),
        ({**PAIR, "prompt": TALK[:2]}, True, "ends with the assistant"),
        ({**PAIR, "chosen": [user("x"), assistant("a")]}, True, "'chosen' must begin with the assistant"),
        ({**PAIR, "rejected": []}, True, "'rejected' must end with the assistant"),
        ({**PAIR, "rejected": PAIR["chosen"]}, True, "are the same"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, line: Any, pairs: bool, why: str) -> None:
    good = json.dumps(PAIR) if pairs else GOOD
    with pytest.raises(UserError, match=f"line 3: .*{why.removeprefix('line 3: ')}"):
        Lines(file(tmp_path, good, "", line, good), pairs=pairs)


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        Lines(tmp_path / "none.jsonl", pairs=False)
    with pytest.raises(UserError, match="has no lines"):
        Lines(file(tmp_path, ""), pairs=False)
