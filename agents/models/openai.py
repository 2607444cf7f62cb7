"""Any OpenAI-compatible endpoint as a model.

Without a tokenizer it is a text endpoint: chat completions, nothing to train on. With one, the server must be vLLM (or
answer as it does): the prompt goes as token ids to the completions endpoint, and sampled ids and logprobs come back.
Plain HTTP by aiohttp: the official client spends several milliseconds of CPU a call once hundreds are in flight (see
benchmarks/eval.py). Invariant: the API key comes from the environment and appears in no message.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from harness.envs.errors import UserError

from ..types import Completion
from .base import ContextFull, ModelError, Prompt, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


KEY = "OPENAI_API_KEY"
"""Environment variable that holds the key; servers of one's own seldom ask for one."""
HOME = "https://api.openai.com/v1"

_TOO_LONG = ("context_length_exceeded", "context length", "maximum context", "maximum model length", "too many tokens")


class OpenAIModel:
    """Asks `base_url` (None: OpenAI itself, or what OPENAI_BASE_URL says) for completions of `name`.

    `context` is the server's limit. vLLM reports logprobs before temperature and top_p unless it is started with
    `--logprobs-mode processed_logprobs`; train on a temperature other than 1 only with that. A failed call is not
    tried again here, and none is given up for being late: the player does both, and counts. All calls come from one
    event loop. Raises UserError where no key is set and none can be done without.
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
        self._where = (base_url or HOME).rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        # An answer ends with the token that completed its stop string, and its text says so too.
        self._extra: dict[str, Any] = {"return_token_ids": True, "include_stop_str_in_output": True}

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        return await (self._text(prompt, sampling) if self.tokenizer is None else self._tokens(prompt, sampling))

    def release(self, session: str) -> None:
        """The server manages its own cache."""

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _text(self, prompt: Prompt, sampling: Sampling) -> Completion:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens" if self._own else "max_completion_tokens": sampling.max_tokens,
            **_given(sampling),
        }
        answer = await self._ask("/chat/completions", body)
        choice = self._only(answer)
        try:
            text = choice["message"]["content"]
            assert text is None or isinstance(text, str)
        except (KeyError, TypeError, AssertionError):
            raise ModelError(f"{self._where} answered without a text: is it an OpenAI-compatible endpoint?") from None
        return Completion(
            tokens=(),
            logprobs=(),
            text=_whole(text or ""),
            finish=_finish(choice.get("finish_reason")),
            version=self.version,
            usage=_usage(answer),
        )

    async def _tokens(self, prompt: Prompt, sampling: Sampling) -> Completion:
        body: dict[str, Any] = {
            "model": self.name,
            "prompt": list(prompt.tokens),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "logprobs": 0,
            **_given(sampling),
            **self._extra,
        }
        choice = self._only(await self._ask("/completions", body))
        tokens = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if tokens is None or logprobs is None or len(tokens) != len(logprobs) or None in logprobs:
            raise ModelError(
                f"{self._where} gives no token ids with logprobs (return_token_ids): it must be vLLM, or be used "
                "without a tokenizer"
            )
        return Completion(
            tokens=tuple(tokens),
            logprobs=tuple(map(float, logprobs)),
            text=_whole(str(choice.get("text") or "")),
            finish=_finish(choice.get("finish_reason")),
            version=self.version,
        )

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send, and give the answer's JSON object. Raises ModelError, ContextFull."""
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # how many are in flight is the player's business
                timeout=aiohttp.ClientTimeout(total=None),
                headers=headers,
                proxy=_proxy(self._where),  # looked up once: `trust_env` does it in a thread at every call
            )
        try:
            async with self._session.post(self._where + path, json=body) as response:
                raw = await response.read()
        except TimeoutError as error:
            raise ModelError(f"{self._where} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            why = self._line(str(error) or type(error).__name__)
            raise ModelError(f"cannot reach {self._where}: {why}") from error
        if response.status >= 400:
            said = self._line(_complaint(raw))
            if response.status in (400, 413, 422) and any(sign in said.lower() for sign in _TOO_LONG):
                raise ContextFull(said)
            raise ModelError(f"{self._where} answered {response.status}: {said}")
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ModelError(f"{self._where} answered without JSON: is it an OpenAI-compatible endpoint?")
        return answer

    def _only(self, answer: dict[str, Any]) -> dict[str, Any]:
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ModelError(f"{self._where} answered without a choice: is it an OpenAI-compatible endpoint?")
        return choices[0]

    def _line(self, text: str) -> str:
        """One line of at most 300 characters, without the key."""
        shown = text.replace(self._key, "***") if self._key else text
        return " ".join(shown.split())[:300]


def _proxy(url: str) -> str | None:
    """Proxy that the environment names for `url` (HTTPS_PROXY, NO_PROXY and so on)."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _whole(text: str) -> str:
    """Text that can be written down: half of a character that takes two, as cut-off answers have, is marked as lost."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _complaint(raw: bytes) -> str:
    """What an error's body says: OpenAI's form, FastAPI's, or the text as it is."""
    text = raw.decode(errors="replace")
    try:
        said = json.loads(text)
    except ValueError:
        return text
    for key in ("error", "message", "detail"):
        if isinstance(said, dict) and key in said:
            said = said[key]
    return said if isinstance(said, str) else text


def _usage(answer: dict[str, Any]) -> tuple[int, int] | None:
    match answer.get("usage"):
        case {"prompt_tokens": int(read), "completion_tokens": int(written)}:
            return read, written
    return None


def _given(sampling: Sampling) -> dict[str, Any]:
    """What is left out of a request where it was not asked for."""
    seed: dict[str, Any] = {} if sampling.seed is None else {"seed": sampling.seed}
    return seed | ({"stop": list(sampling.stop)} if sampling.stop else {})


def _finish(reason: str | None) -> Literal["stop", "length", "abort"]:
    if reason in ("length", "abort"):
        return reason  # type: ignore[return-value]  # just compared
    return "stop"
