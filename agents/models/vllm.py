"""vLLM as a sampling engine: its asynchronous engine, in processes of its own below this one.

Token ids go in, sampled ids and their logprobs come out; no text is ever tokenized again. Knows vLLM; not who asks, nor
where new weights come from. Invariant: each token of an answer is tagged with the weights that sampled it, also where
they came in its middle, and after the engine died and was replaced.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoConfig, AutoTokenizer

from harness.envs.errors import UserError

from ..types import Completion
from .base import ContextFull, ModelError
from .collective import exchange
from .loading import context_of, end_tokens, generation_config, load_pretrained, parameter_shapes
from .vllm_start import arguments, cause, check_installed, environment, why
from .vllm_worker import SHARED, write_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..config import ModelConfig
    from .base import Policy, Prompt, Sampling
    from .collective import Sender


class VllmModel:
    """Implements `Policy`: one engine on `config.tensor_parallel` devices.

    Logprobs are natural logs of the distribution that was drawn from, after temperature and top_p; of a greedy answer
    (temperature 0), which draws nothing, at temperature 1: as the local engine's are, and as the trainer computes them.
    A seed makes an answer repeatable, up to the last bits of floating point; on a CPU it is the answer that the local
    engine draws from it, on a GPU vLLM draws another.

    New weights go through a file in shared memory, from which each of vLLM's workers reads its part. The file stays
    until the next one, so that an engine that takes a dead one's place begins where that was. Or its workers take them
    from a process group (`pull`), and such an engine asks for them again.
    """

    def __init__(self, path: Path | str, config: ModelConfig, *, index: int = 0) -> None:
        """Starts the engine, which takes from half a minute to some minutes. index: which of the explorer's engines.

        Raises UserError where vLLM is missing or of another version, there is no model, or it does not start.
        """
        check_installed()
        self.tokenizer: PreTrainedTokenizerBase | None = load_pretrained(AutoTokenizer, path)
        shape = load_pretrained(AutoConfig, path)
        limit = context_of(shape)
        self.name, self.version = Path(path).name, 0
        self.context = min(limit, config.context or limit)
        self._vocabulary = int(shape.vocab_size)
        self._shapes = parameter_shapes(shape)
        self._ends = end_tokens(generation_config(path), self.tokenizer)
        self._mode: Literal["keep", "abort"] = "abort" if config.on_update == "restart" else "keep"
        self._folder = tempfile.TemporaryDirectory(prefix="harness-vllm-")
        self._log = Path(self._folder.name) / "engine.log"
        self._weights: Path | None = None
        self._sender: Sender | None = None
        self._joined: Any = None  # the engine whose workers are in the sender's group
        self._numbers = count()
        self._running: dict[str, str] = {}  # session -> request
        self._updating = asyncio.Lock()
        self._bed = asyncio.Lock()
        self._asleep = False
        self._starting: asyncio.Task[None] | None = None
        self._arguments = arguments(path, config, shape, self.context, index)
        self._config = config
        self._engine: Any = None
        self._fresh: Any = self._start()  # an engine that nobody has spoken to, since that needs an event loop

    @classmethod
    def from_folder(cls, path: Path | str, config: ModelConfig) -> Policy:
        """One engine, or `config.engines` behind a router. Raises UserError as the engine does."""
        from .router import Router

        engines: list[Policy] = [cls(path, config, index=i) for i in range(config.engines)]
        return engines[0] if len(engines) == 1 else Router(engines)

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Sample an answer. Raises ContextFull, and ModelError on a bad request and where the engine died; the next
        call then waits for a new one."""
        size = len(prompt.tokens)
        if size >= self.context:
            raise ContextFull(f"the prompt has {size} tokens, the context of '{self.name}' {self.context}")
        if not size or min(prompt.tokens) < 0 or max(prompt.tokens) >= self._vocabulary or sampling.max_tokens < 1:
            raise ModelError(
                f"cannot complete: prompt of {size} tokens, max_tokens {sampling.max_tokens}; want at least one of "
                f"each, ids from 0 to {self._vocabulary - 1}"
            )
        while True:
            engine, began = await self._alive(), self.version
            answer = await self._ask(engine, prompt, sampling, session)
            updated = self.version != began or self._updating.locked()
            if answer.finish != "abort" or not updated or session not in self._running:
                break
        self._running.pop(session, None)
        return answer

    def release(self, session: str) -> None:
        """An answer under way comes back as it stands, finish "abort". vLLM looks after its cache itself."""
        request = self._running.pop(session, None)
        if request is not None and self._engine is not None:
            self._aborting = asyncio.ensure_future(self._engine.abort(request))

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Take new weights in place. Answers under way wait, and then go on from the token they are at, computed anew
        under the new weights, or begin again (`config.on_update`).

        Raises ValueError where the weights do not fit; the engine then keeps those it has.
        """
        file = self._fresh_file()
        await asyncio.to_thread(write_weights, weights, file, self._shapes)
        await self.update_from(file, version)

    async def update_from(self, file: Path, version: int) -> None:
        """As `update`, from a safetensors file, which is kept as long as these weights are in use."""
        engine = await self._alive()
        async with self._updating:
            try:
                await self._take(engine, file, version)
            except _dead_errors() as error:
                self._bury(engine)
                raise ModelError(f"the engine of '{self.name}' died as it took version {version}") from error
            if self._weights is not None and self._weights != file:
                self._weights.unlink(missing_ok=True)
            self._weights = file

    async def pull(self, sender: Sender, version: int) -> int:
        """See `Puller`. Answers under way fare as by `update`."""
        engine, self._sender = await self._alive(), sender
        async with self._updating:
            return await self._pull(engine, version)

    async def sleep(self) -> None:
        """See `Sleeper`. The weights wait in the host's memory, keys and values are dropped."""
        async with self._bed:
            if (engine := self._engine) is not None and not self._asleep:
                self._asleep = True
                try:
                    await engine.sleep(level=1)
                except _dead_errors():
                    self._bury(engine)

    async def close(self) -> None:
        engine, self._engine, self._joined, self._fresh = self._engine or self._fresh, None, None, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)
        if self._weights is not None:
            self._weights.unlink(missing_ok=True)
        self._folder.cleanup()

    async def _take(self, engine: Any, file: Path, version: int) -> None:
        async with self._paused(engine):
            problems = await engine.collective_rpc("take_weights", args=(str(file),))
            # What the old weights computed is of no use: beginnings that are kept, and requests that were stopped.
            await engine.reset_prefix_cache(reset_running_requests=True)
            if problem := next(filter(None, problems), ""):
                raise ValueError(f"the weights do not fit '{self.name}': {problem[:300]}")
            # Before it goes on: what was sampled so far has been handed over while the workers were asked.
            self.version = version

    async def _pull(self, engine: Any, version: int) -> int:
        from .vllm_group import receive

        if (sender := self._sender) is None:
            raise RuntimeError("nobody to pull weights from")
        try:
            meeting, self._joined = await self._meeting(engine, sender), None
            async with self._paused(engine):
                sent = await exchange(sender, version, receive(engine, meeting))
                await engine.reset_prefix_cache(reset_running_requests=True)
                self.version = sent
        except Exception as error:  # vLLM tells what its workers raised by a bare Exception: a boundary
            self._bury(engine)
            raise ConnectionError(f"'{self.name}' did not get version {version}: {cause(self._log, error)}") from error
        self._joined = engine
        return sent

    async def _meeting(self, engine: Any, sender: Sender) -> dict[str, Any] | None:
        """Where the engine's workers are to meet the sender; None where they have."""
        if self._joined is engine:
            return None
        size = 1 + self._config.tensor_parallel
        host, port = await sender.listen(size)
        return {"host": host, "port": port, "size": size, "device": sender.device, "seconds": sender.seconds}

    @asynccontextmanager
    async def _paused(self, engine: Any) -> AsyncIterator[None]:
        await engine.pause_generation(mode=self._mode, clear_cache=True)
        try:
            yield
        finally:
            await engine.resume_generation()

    async def _ask(self, engine: Any, prompt: Prompt, sampling: Sampling, session: str) -> Completion:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        request = f"{session}/{next(self._numbers)}"
        self._running[session] = request
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=min(sampling.max_tokens, self.context - len(prompt.tokens)),
            seed=sampling.seed,
            stop=list(sampling.stop),
            stop_token_ids=self._ends,
            include_stop_str_in_output=True,
            logprobs=0,
            output_kind=RequestOutputKind.DELTA,
        )
        tokens: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        text, finish = "", None
        try:
            async for output in engine.generate({"prompt_token_ids": list(prompt.tokens)}, parameters, request):
                new = output.outputs[0]
                tokens += new.token_ids
                logprobs += [float(at[t].logprob) for t, at in zip(new.token_ids, new.logprobs or (), strict=False)]
                versions += [self.version] * len(new.token_ids)
                text, finish = text + new.text, new.finish_reason
        except _dead_errors() as error:
            self._bury(engine)
            raise ModelError(f"the engine of '{self.name}' died: {cause(self._log)}") from error
        except (ValueError, TypeError) as error:
            raise ModelError(f"the engine of '{self.name}' refused the request: {error}") from error
        if len(logprobs) != len(tokens) or not math.isfinite(sum(logprobs)):
            raise ModelError(f"'{self.name}' (version {self.version}) gave probabilities that are not numbers")
        return Completion(
            tokens=tuple(tokens),
            logprobs=tuple(logprobs),
            text=text,
            finish=finish if finish in ("stop", "length") else "abort",
            version=versions[-1] if versions else self.version,
            versions=tuple(versions) if len(set(versions)) > 1 else (),
        )

    async def _alive(self) -> Any:
        """The engine; where the last one died, a new one with the weights that it had."""
        while self._engine is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._begin())
            # Whoever gives up waiting does not stop the start, which the others wait for too.
            await asyncio.shield(self._starting)
        if self._asleep:
            async with self._bed:
                if self._asleep:
                    await self._engine.wake_up()
                    self._asleep = False
        return self._engine

    async def _begin(self) -> None:
        engine, self._fresh = self._fresh, None
        failures: tuple[type[Exception], ...] = (UserError, ConnectionError, *_dead_errors())
        try:
            engine = engine or await asyncio.to_thread(self._start)
            await engine.collective_rpc("draw_as_local")
            if self._sender is not None:
                await self._pull(engine, self.version)
            elif self._weights is not None:
                await self._take(engine, self._weights, self.version)
        except failures as error:
            raise ModelError(f"the engine died, and another one could not be started: {error}") from error
        self._engine = engine

    def _bury(self, engine: Any) -> None:
        if self._engine is engine:
            self._engine, self._joined, self._asleep = None, None, False
            engine.shutdown()

    def _start(self) -> Any:
        with environment(self._config, self._log):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            try:
                return AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments))
            except Exception as error:  # whatever vLLM raises here, it did not start: a boundary
                where = f"the vLLM engine for '{self.name}' did not start"
                raise UserError(f"{where}: {why(self._log, error)}") from error

    def _fresh_file(self) -> Path:
        folder = SHARED if SHARED.is_dir() else Path(self._folder.name)
        return folder / f"{Path(self._folder.name).name}-{next(self._numbers)}.safetensors"


def _dead_errors() -> tuple[type[Exception], ...]:
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    return EngineDeadError, EngineGenerateError
