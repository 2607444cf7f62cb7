"""A vLLM server that is already running, in its own environment or on another machine, as a sampling engine.

Token ids go in, sampled ids and their logprobs come out. Knows the server's HTTP interface; vLLM need not be installed
here. The server cannot say which weights sampled which token. Invariant: an answer's `version` is the oldest in force
while it was under way, so bounds on staleness hold for all its tokens, as long as nobody else gives the server weights.
To be started, with the harness on its PYTHONPATH for the worker extension, as

    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER \\
        --logprobs-mode processed_logprobs --worker-extension-cls harness.agents.models.vllm_worker.Weights
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from transformers import AutoConfig, AutoTokenizer

from harness.envs.errors import UserError

from .base import ModelError
from .loading import end_tokens, generation_config, load_pretrained, parameter_shapes
from .openai import OpenAIModel
from .vllm_worker import EXTENSION, SHARED, write_weights

if TYPE_CHECKING:
    import torch

    from ..config import ModelConfig
    from ..types import Completion
    from .base import Policy, Prompt, Sampling

_PATIENCE = 600.0  # seconds that a server may take to load weights
_HOW = (
    "Start it as VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER --logprobs-mode "
    f"processed_logprobs --worker-extension-cls {EXTENSION}, with the harness on its PYTHONPATH."
)


class VllmServer(OpenAIModel):
    """Implements `Policy`. Logprobs are as `VllmModel` says."""

    def __init__(self, url: str, path: Path | str, config: ModelConfig) -> None:
        """`path` holds the tokenizer and configuration of the model that the server has.

        Raises UserError where the server does not answer, or was started without what training needs.
        """
        self._url = url.rstrip("/").removesuffix("/v1")
        shape = load_pretrained(AutoConfig, path)
        served, context = self._look()
        self._shapes = parameter_shapes(shape)
        tokenizer = load_pretrained(AutoTokenizer, path)
        context = min(context, config.context or context)
        super().__init__(served, base_url=f"{self._url}/v1", tokenizer=tokenizer, context=context)
        self._extra["stop_token_ids"] = end_tokens(generation_config(path), tokenizer)
        self._mode = "abort" if config.on_update == "restart" else "keep"
        self._exchange = Path(config.exchange or (SHARED if SHARED.is_dir() else tempfile.gettempdir()))
        self._prefix = Path(tempfile.mktemp(prefix="harness-vllm-", dir=self._exchange))  # noqa: S306 - a name alone
        self._numbers = count()
        self._file: Path | None = None
        self._updating = asyncio.Lock()

    @classmethod
    def from_folder(cls, path: Path | str, config: ModelConfig) -> Policy:
        """The server at `config.urls`, or all of them behind a router."""
        from .router import Router

        servers: list[Policy] = [cls(url, path, config) for url in config.urls]
        return servers[0] if len(servers) == 1 else Router(servers)

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Raises ModelError, ContextFull."""
        while True:
            began = self.version
            answer = await super().complete(prompt, sampling, session=session)
            if answer.finish != "abort" or not (self.version != began or self._updating.locked()):
                return replace(answer, version=began)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Have the server take new weights in place, from a file in `model.exchange`. Answers under way wait, and then
        go on from the token they are at, or begin again (`model.on_update`).

        Raises ValueError where the weights do not fit, ModelError where the server fails.
        """
        file = self._prefix.with_name(f"{self._prefix.name}-{next(self._numbers)}.safetensors")
        async with self._updating:
            try:
                await asyncio.to_thread(write_weights, weights, file, self._shapes)
            except OSError as error:
                raise ModelError(f"cannot write weights into {self._exchange}: {error}") from error
            await self._control("/pause", mode=self._mode)
            try:
                answer = await self._control(
                    "/collective_rpc", {"method": "take_weights", "kwargs": {"file": str(file)}}
                )
                await self._control("/reset_prefix_cache", reset_running_requests="true")
            finally:
                await self._control("/resume")
            if self._file is not None:
                self._file.unlink(missing_ok=True)
            self._file = file
            if problem := next(filter(None, answer.get("results", [])), ""):
                raise ValueError(f"the weights do not fit '{self.name}' at {self._url}: {problem[:300]}")
            self.version = version

    async def close(self) -> None:
        await super().close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    async def _control(self, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
        try:
            return await asyncio.to_thread(self._http, path + (f"?{urlencode(query)}" if query else ""), body or {})
        except urllib.error.HTTPError as error:
            said = " ".join(error.read().decode(errors="replace").split())[:300]
            raise ModelError(f"{self._url}{path} answered {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot reach {self._url}{path}: {error}") from error

    def _http(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """GET, or POST where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310
            raw = answer.read()
        found: dict[str, Any] = json.loads(raw) if raw else {}
        return found

    def _look(self) -> tuple[str, int]:
        """Name and context of what is served. Raises UserError."""
        if not self._url.startswith(("http://", "https://")):
            raise UserError(f"model.urls: '{self._url}' is no address; write http://host:port")
        try:
            (served, *_) = self._http("/v1/models")["data"]
            info = self._http("/server_info?config_format=json")["vllm_config"]["model_config"]
        except urllib.error.HTTPError as error:
            raise UserError(f"the vLLM server at {self._url} lacks what training needs ({error}). {_HOW}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"no vLLM server answers at {self._url} ({error}). {_HOW}") from error
        if info.get("logprobs_mode") != "processed_logprobs":
            raise UserError(
                f"the vLLM server at {self._url} gives logprobs before temperature (--logprobs-mode "
                f"{info.get('logprobs_mode')}), and the trainer needs them after it. {_HOW}"
            )
        return str(served["id"]), int(served["max_model_len"])
