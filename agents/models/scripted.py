"""A model whose answers are written beforehand: for tests, benchmarks, and the expert's row on a board.

Knows no weights. Invariant: an answer depends on the prompt, the session and the seed alone, never on time or on what
other sessions do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.envs.errors import UserError

from ..parse import write
from ..template import template_of
from ..types import Completion
from .base import ContextFull, ModelError, Prompt, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from harness.envs.base import Expert, Task, TextEnv

Script = Callable[[Prompt, Sampling, str], str]
"""From prompt, sampling and session to the answer's text; may raise what a model may raise. Where it has a method
`release(session)`, that is called when the episode is over."""

LOGPROB = -0.5
"""What every token of a scripted answer is said to have been drawn with."""


class ScriptedModel:
    """Says what its script says. `answers`: texts said in turn in each session, or a function.

    With a tokenizer the text is encoded, the template's end token put behind it, and each token gets LOGPROB, so that
    all that follows is as with a real model. `seconds` is how long an answer takes.
    """

    def __init__(
        self,
        answers: Sequence[str] | Script,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        context: int = 1 << 20,
        seconds: float = 0.0,
        version: int = 0,
        name: str = "scripted",
    ) -> None:
        self.name, self.tokenizer, self.context, self.version = name, tokenizer, context, version
        self._script = answers if callable(answers) else self._in_turn
        self._answers = () if callable(answers) else tuple(answers)
        self._said: dict[str, int] = {}
        self._seconds = seconds
        self._encoded: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}

    @classmethod
    def expert(
        cls, world: type[TextEnv], tasks: Iterable[Task], *, say: Callable[[str, str], str] = write, **options: Any
    ) -> ScriptedModel:
        """Answers as the world's own expert does, for these tasks. Raises UserError where the world has none.

        The expert sees a second world of this process that is stepped beside the played one. `say` is how the agent
        writes a thought and an action (`Agent.write`); `options` as above.
        """
        name = f"{world.world.id}-expert"
        return cls(_Experts(world, {task.key: task for task in tasks}, say), **{"name": name, **options})

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        if self._seconds:
            await asyncio.sleep(self._seconds)
        text = self._script(prompt, sampling, session)
        tokens, logprobs = self._tokens(text)
        room = sampling.max_tokens if not prompt.tokens else min(sampling.max_tokens, self.context - len(prompt.tokens))
        if room < 1:
            raise ContextFull(f"{len(prompt.tokens)} tokens fill the context of {self.context}")
        if self.tokenizer is not None and len(tokens) > room:
            tokens, logprobs = tokens[:room], logprobs[:room]
            text = template_of(self.tokenizer).decode(tokens)
            return Completion(tokens=tokens, logprobs=logprobs, text=text, finish="length", version=self.version)
        return Completion(tokens=tokens, logprobs=logprobs, text=text, finish="stop", version=self.version)

    def release(self, session: str) -> None:
        self._said.pop(session, None)
        forget = getattr(self._script, "release", None)  # a script may keep something for each session
        if forget is not None:
            forget(session)

    async def close(self) -> None:
        """Nothing is held."""

    def _in_turn(self, prompt: Prompt, sampling: Sampling, session: str) -> str:
        said = self._said.get(session, 0)
        if said >= len(self._answers):
            raise ModelError(f"the script has {len(self._answers)} answers, and one more was asked for")
        self._said[session] = said + 1
        return self._answers[said]

    def _tokens(self, text: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
        if self.tokenizer is None:
            return (), ()
        if text not in self._encoded:
            template = template_of(self.tokenizer)
            if len(self._encoded) > 4096:
                self._encoded.clear()
            end = next(iter(template.closers), self.tokenizer.eos_token_id)
            tokens = (*template.encode_after(text), *(() if end is None else (end,)))
            self._encoded[text] = tokens, (LOGPROB,) * len(tokens)
        return self._encoded[text]


class _Experts:
    """One expert and one world for each session; as a script."""

    def __init__(self, world: type[TextEnv], tasks: Mapping[str, Task], say: Callable[[str, str], str]) -> None:
        self._world, self._tasks, self._say = world, tasks, say
        self._playing: dict[str, tuple[TextEnv, Expert, str]] = {}  # with what was done last

    def __call__(self, prompt: Prompt, sampling: Sampling, session: str) -> str:
        if session not in self._playing:
            task = self._tasks.get(session.rpartition("#")[0])
            if task is None:
                raise ModelError(f"the expert was not given the task of session {session}")
            world = self._world()
            observation, info = world.reset(seed=task.seed, options={"task": task})
            expert = world.expert()
            if expert is None:
                raise UserError(f"the world '{self._world.world.id}' has no expert.")
        else:
            world, expert, done = self._playing[session]
            observation, _, _, _, info = world.step(done)  # only now: nobody sees what follows the last action
        thought, action = expert.act(observation, info)
        self._playing[session] = world, expert, action
        return self._say(thought, action)

    def release(self, session: str) -> None:
        playing = self._playing.pop(session, None)
        if playing is not None:
            playing[0].close()
