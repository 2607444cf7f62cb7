"""Any OpenAI-compatible endpoint as a model.

Without a tokenizer it is a text endpoint: chat completions, nothing to train on. With one, the server must be vLLM (or
answer as it does): the prompt goes as token ids to the completions endpoint, and sampled ids and logprobs come back.
Invariant: the API key comes from the environment and appears in no message.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import openai

from harness.envs.errors import UserError

from ..types import Completion
from .base import ContextFull, ModelError, Prompt, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


KEY = "OPENAI_API_KEY"
"""Environment variable that holds the key; servers of one's own seldom ask for one."""

_TOO_LONG = ("context_length_exceeded", "context length", "maximum context", "maximum model length", "too many tokens")


class OpenAIModel:
    """Asks `base_url` (None: OpenAI itself, or what OPENAI_BASE_URL says) for completions of `name`.

    `context` is the server's limit. vLLM reports logprobs before temperature and top_p unless it is started with
    `--logprobs-mode processed_logprobs`; train on a temperature other than 1 only with that. A failed call is not
    tried again here: the player does it, and counts. Raises UserError where no key is set and none can be done without.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        context: int = 32768,
        version: int = 0,
    ) -> None:
        self.name, self.tokenizer, self.context, self.version = name, tokenizer, context, version
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        self._key = os.environ.get(KEY, "")
        if not self._key and base_url is None:
            raise UserError(f"no API key: set the environment variable {KEY}, or give the base_url of your own server.")
        self._own = base_url is not None
        self._where = base_url or "api.openai.com"
        # An answer ends with the token that completed its stop string, and its text says so too.
        self._extra: dict[str, Any] = {"return_token_ids": True, "include_stop_str_in_output": True}
        self._client = openai.AsyncOpenAI(api_key=self._key or "none", base_url=base_url, max_retries=0)

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        try:
            return await (self._text(prompt, sampling) if self.tokenizer is None else self._tokens(prompt, sampling))
        except openai.APITimeoutError as error:
            raise ModelError(f"{self._where} did not answer in time") from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise ModelError(f"cannot reach {self._where}: {self._line(str(cause) or type(cause).__name__)}") from error
        except openai.APIStatusError as error:
            said = self._line(error.message)
            if error.status_code in (400, 413, 422) and any(sign in said.lower() for sign in _TOO_LONG):
                raise ContextFull(said) from error
            raise ModelError(f"{self._where} answered {error.status_code}: {said}") from error
        except openai.OpenAIError as error:
            raise ModelError(f"{self._where}: {self._line(str(error))}") from error

    def release(self, session: str) -> None:
        """The server manages its own cache."""

    async def close(self) -> None:
        await self._client.close()

    async def _text(self, prompt: Prompt, sampling: Sampling) -> Completion:
        longest: dict[str, Any] = {"max_tokens" if self._own else "max_completion_tokens": sampling.max_tokens}
        answer = await self._client.chat.completions.create(
            model=self.name,
            messages=[{"role": m.role, "content": m.content} for m in prompt.messages],  # type: ignore[misc]  # by role
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=openai.omit if sampling.seed is None else sampling.seed,
            stop=list(sampling.stop) or openai.omit,
            **longest,
        )
        choice = self._only(answer)
        return Completion(
            tokens=(),
            logprobs=(),
            text=choice.message.content or "",
            finish=_finish(choice.finish_reason),
            version=self.version,
        )

    async def _tokens(self, prompt: Prompt, sampling: Sampling) -> Completion:
        answer = await self._client.completions.create(
            model=self.name,
            prompt=list(prompt.tokens),
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=openai.omit if sampling.seed is None else sampling.seed,
            logprobs=0,
            stop=list(sampling.stop) or openai.omit,
            extra_body=self._extra,
        )
        choice = self._only(answer)
        tokens = getattr(choice, "token_ids", None)
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        if tokens is None or logprobs is None or len(tokens) != len(logprobs) or None in logprobs:
            raise ModelError(
                f"{self._where} gives no token ids with logprobs (return_token_ids): it must be vLLM, or be used "
                "without a tokenizer"
            )
        return Completion(
            tokens=tuple(tokens),
            logprobs=tuple(map(float, logprobs)),
            text=choice.text,
            finish=_finish(choice.finish_reason),
            version=self.version,
        )

    def _only(self, answer: Any) -> Any:
        choices = getattr(answer, "choices", None)
        if not choices:
            raise ModelError(f"{self._where} answered without a choice: is it an OpenAI-compatible endpoint?")
        return choices[0]

    def _line(self, text: str) -> str:
        """One line of at most 300 characters, without the key."""
        shown = text.replace(self._key, "***") if self._key else text
        return " ".join(shown.split())[:300]


def _finish(reason: str | None) -> Literal["stop", "length", "abort"]:
    if reason in ("length", "abort"):
        return reason  # type: ignore[return-value]  # just compared
    return "stop"
