"""A file of talks to learn from: one JSON object a line, a demonstration or a preference pair.

    {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    {"prompt": [{"role": "user", "content": "2+2?"}], "chosen": [{"role": "assistant", "content": "4"}],
     "rejected": [{"role": "assistant", "content": "5"}]}

Knows files and chats; not models, nor what is learned. The tokens are those that a rollout of the same talk would hold
(agents/chat.py), with loss on exactly what the assistant says: its text and the end token behind it; of a pair, on
what `chosen` and `rejected` add to the prompt. Invariants: every line is looked at before the first is used; which
lines a step gets is a function of the file, the seed and the step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.agents.chat import TokenChat
from harness.agents.models.base import Message
from harness.agents.types import Completion
from harness.envs.errors import UserError

from .experience import Example, Pair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = ("system", "user", "assistant", "tool")
DEMONSTRATION, PAIR = ("messages",), ("prompt", "chosen", "rejected")


class Lines:
    """The lines of one file. Only their places are kept; a line is read and encoded when it is asked for."""

    def __init__(self, path: Path, *, pairs: bool) -> None:
        """Raises UserError, with the line's number, where one is no demonstration (or no pair, with `pairs`)."""
        self.path, self.pairs = path, pairs
        self._places: list[tuple[int, int]] = []
        digest, at = sha256(), 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    digest.update(line)
                    if line.strip():
                        self._read(line, number)
                        self._places.append((at, number))
                    at += len(line)
        except OSError as error:
            raise UserError(f"data.file: '{path}' cannot be read: {error.strerror}.") from error
        if not self._places:
            raise UserError(f"data.file: '{path}' has no lines, so there is nothing to learn from.")
        self.digest = digest.hexdigest()
        """Of the file's bytes."""

    def __len__(self) -> int:
        return len(self._places)

    def chosen(self, step: int, size: int, seed: int) -> list[int]:
        """Indices of the lines that training step `step` learns from: shuffled passes over the file, one after the
        other, cut into pieces of `size`."""
        places = (divmod(i, len(self)) for i in range(step * size, (step + 1) * size))
        return [int(_order(len(self), seed, one_pass)[place]) for one_pass, place in places]

    def number(self, index: int) -> int:
        """Number of the line in its file, from 1."""
        return self._places[index][1]

    def examples(self, index: int, tokenizer: PreTrainedTokenizerBase) -> list[Example]:
        """The demonstration at `index`: one sequence, or more where the template begins a new one (chat.py)."""
        return encode(self._at(index)[0], tokenizer)

    def pair(self, index: int, tokenizer: PreTrainedTokenizerBase) -> Pair:
        """The preference at `index`. Raises UserError where the template cannot hold one of its talks in one piece."""
        prompt, *answers = self._at(index)
        talks = [encode([*prompt, *answer], tokenizer, loss_from=len(prompt)) for answer in answers]
        if any(len(talk) > 1 for talk in talks):
            raise UserError(
                f"{self.path}, line {self.number(index)}: the chat template begins this talk anew in its middle, and "
                "a pair needs whole ones. Split it at the assistant's answers."
            )
        return Pair(chosen=talks[0][0], rejected=talks[1][0])

    def _at(self, index: int) -> list[list[Message]]:
        at, number = self._places[index]
        with self.path.open("rb") as file:
            file.seek(at)
            return self._read(file.readline(), number)

    def _read(self, line: bytes, number: int) -> list[list[Message]]:
        try:
            return _talks(line, PAIR if self.pairs else DEMONSTRATION)
        except ValueError as error:
            raise UserError(f"{self.path}, line {number}: {error}.") from None


def encode(talk: Sequence[Message], tokenizer: PreTrainedTokenizerBase, *, loss_from: int = 0) -> list[Example]:
    """The talk as the tokens that a rollout of it would hold, with loss on what the assistant says in the messages from
    number `loss_from` on. Several sequences where the template begins a new stream; those without loss are left out."""
    chat = TokenChat(tokenizer)
    end = next(iter(chat.template.closers), tokenizer.eos_token_id)
    streams: list[tuple[list[int], list[bool]]] = []
    for number, message in enumerate(talk):
        if message.role != "assistant":
            chat.add(message)
            continue
        chat.prompt()
        if chat.restarted:
            streams.append(([], []))
        tokens, mask = streams[-1]
        text = chat.template.begin(message.content)
        answer = (*chat.template.encode_after(text), *(() if end is None else (end,)))
        tokens += [*chat.sent, *answer]
        mask += [False] * len(chat.sent) + [number >= loss_from] * len(answer)
        chat.take(Completion(tokens=answer, logprobs=(0.0,) * len(answer), text=text, finish="stop"))
    made = (Example(tokens=np.array(t, np.int32), mask=np.array(m, np.bool_)) for t, m in streams)
    return [example for example in made if example.mask[1:].any()]


def _talks(line: bytes, keys: Sequence[str]) -> list[list[Message]]:
    """The talks under `keys`. Raises ValueError, told without a full stop."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}, where an object with {_listed(keys)} is wanted")
    if missing := [key for key in keys if key not in found]:
        other = " (this is a pair; choose algorithm.name=dpo)" if set(PAIR) <= found.keys() else ""
        other = other or (" (this is a demonstration; choose algorithm.name=sft)" if "messages" in found else "")
        raise ValueError(f"no {_listed(missing)} in it{other}")
    if more := sorted(found.keys() - set(keys)):
        raise ValueError(f"{_listed(more)} would be ignored; an object has {_listed(keys)} and no more")
    talks = [_messages(found[key], key) for key in keys]
    begins = talks[0][:1]
    if (begins and begins[0].role == "assistant") or not begins:
        raise ValueError(f"'{keys[0]}' must begin with what the assistant answers")
    for key, talk in zip(keys, talks, strict=True):
        if key == "prompt":
            if talk[-1].role == "assistant":
                raise ValueError("'prompt' ends with the assistant; its answer belongs into chosen and rejected")
            continue
        if not talk or talk[-1].role != "assistant":
            raise ValueError(f"'{key}' must end with the assistant: nothing is learned from what comes after it")
        if keys is PAIR and talk[0].role != "assistant":
            raise ValueError(f"'{key}' must begin with the assistant: it is the answer to the prompt")
    if keys is PAIR and talks[1] == talks[2]:
        raise ValueError("'chosen' and 'rejected' are the same")
    return talks


def _messages(found: Any, key: str) -> list[Message]:
    if not isinstance(found, list):
        raise ValueError(f"'{key}' must be a list of messages, not a {type(found).__name__}")
    messages: list[Message] = []
    for i, message in enumerate(found):
        where = f"{key}[{i}]"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise ValueError(f"{where} must be an object with 'role' and 'content' and no more")
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise ValueError(f"{where}: there is no role {role!r}; there are {_listed(ROLES)}")
        if not isinstance(content, str):
            raise ValueError(f"{where}: 'content' must be text, not a {type(content).__name__}")
        if role == "assistant" and messages and messages[-1].role == "assistant":
            raise ValueError(f"{where}: the assistant speaks twice in a row; join the two")
        messages.append(Message(role=role, content=content))
    return messages


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


@lru_cache(maxsize=4)
def _order(length: int, seed: int, one_pass: int) -> Any:
    return np.random.default_rng([seed, 2, one_pass]).permutation(length)
