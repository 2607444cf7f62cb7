"""A sampling engine in this process: any decoder that transformers loads, many episodes side by side.

Continuous batching: requests join and leave between steps, and each step is one forward over every token that is due
(the next one of rows that decode, the new ones of rows that were just asked). A row keeps its episode's cache between
turns, so that a turn costs its new tokens. Steps run inside the event loop, which they hold while they compute: on one
core that is the quickest, and nothing changes between the lines of a step. Knows nothing of worlds, chats or training.
Invariant: `_ids[row, :_cached[row]]` are exactly the tokens whose keys and values the cache holds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..types import Completion
from .adapter import Weights
from .base import ContextFull, ModelError
from .cache import Ints
from .draw import draw, uniform
from .forward import Forward
from .loading import context_of, end_tokens, load_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..config import ModelConfig
    from .base import Prompt, Sampling

_STEP_TOKENS = 2048  # most tokens of one forward: a long prompt is read in parts, the others go on meanwhile
_IDLE_STEPS = 8  # a session that has not come back after so many steps may lose its row to one that waits
_SHARE = 16  # shortest common beginning that is copied from another row and not computed again
_TICKS = 3  # turns of the event loop between steps: answered episodes play on and ask again before the next one


@dataclass(slots=True)
class Stats:
    """Sums since the engine was made."""

    steps: int = 0
    read: int = 0
    """Tokens that were computed but not sampled: prompts and observations."""
    sampled: int = 0
    seconds: float = 0.0
    """Wall time of forwards and sampling."""

    def copy(self) -> Stats:
        return replace(self)


@dataclass(slots=True, eq=False)
class _Request:
    prompt: Ints
    sampling: Sampling
    session: str
    answer: asyncio.Future[Completion]


class LocalModel:
    """Implements `Model`.

    Sessions beyond `slots` wait for a row. One whose row was given away while its world took long is computed anew
    when it comes back: slower, never an error. Keep at most `slots` episodes in flight for speed.

    Logprobs are natural logs of the distribution that was drawn from, after temperature and top_p; of a greedy answer
    (temperature 0), which draws nothing, at temperature 1. A seed makes an answer repeatable whatever else is in
    flight, up to the last bits of floating point.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "local",
        slots: int = 64,
        context: int | None = None,
        restart: bool = False,
    ) -> None:
        """Takes the model over: it is switched to eval and to this engine's attention.

        restart: an update makes answers under way begin again; else they go on from the token they are at.
        Raises UserError where the model does not compute through transformers' attention interface.
        """
        self.name = name
        self.tokenizer: PreTrainedTokenizerBase | None = tokenizer
        limit = context_of(model.config)
        self.context = min(limit, context or limit)
        self.version = 0
        self.stats = Stats()
        self._forward = Forward(model.train(False).requires_grad_(False), name, slots)
        self._restart = restart
        self._weights = Weights(model.state_dict())
        embedding: Any = model.get_input_embeddings()
        self._vocabulary = int(embedding.weight.shape[0])
        self._ends = np.array(end_tokens(model.generation_config, tokenizer), np.int64)
        self._seeds = np.random.default_rng()
        self._waiting: deque[_Request] = deque()
        self._task: asyncio.Task[None] | None = None
        # One entry a row.
        self._active: list[_Request | None] = [None] * slots
        self._owner: list[str | None] = [None] * slots
        self._row_of: dict[str, int] = {}
        self._used = np.zeros(slots, np.int64)  # step in which it was last active
        self._ids = np.zeros((slots, self.context), np.int64)
        self._logprobs = np.zeros((slots, self.context), np.float64)
        self._versions = np.zeros((slots, self.context), np.int64)
        self._known = np.zeros(slots, np.int64)  # tokens of the stream so far
        self._cached = np.zeros(slots, np.int64)  # how many of them are in the cache
        self._start = np.zeros(slots, np.int64)  # length of the prompt
        self._limit = np.zeros(slots, np.int64)  # length at which the answer is cut
        self._temperature = np.ones(slots, np.float32)
        self._top_p = np.ones(slots, np.float32)
        self._seed = np.zeros(slots, np.uint64)

    @classmethod
    def from_folder(cls, path: Path | str, config: ModelConfig, device: str | None = None) -> LocalModel:
        """Load a folder (or hub name) in transformers format; cuda where there is one, unless `device` says otherwise.

        Raises UserError where nothing usable is found there.
        """
        tokenizer = load_pretrained(AutoTokenizer, path)
        model = load_pretrained(
            AutoModelForCausalLM, path, dtype=getattr(torch, config.dtype), attn_implementation="eager"
        )
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(
            model.to(place),
            tokenizer,
            name=Path(path).name,
            slots=config.slots,
            context=config.context,
            restart=config.on_update == "restart",
        )

    async def complete(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Sample an answer; `version` of the completion is the one that sampled its last token,
        `versions` tells them apart where weights came in the middle.

        Raises ContextFull where the prompt leaves no room, ModelError on ids outside the vocabulary and where the
        forward fails.
        """
        tokens = np.array(prompt.tokens, np.int64)
        if len(tokens) >= self.context:
            raise ContextFull(f"the prompt has {len(tokens)} tokens, the context of '{self.name}' {self.context}")
        if not len(tokens) or tokens.min() < 0 or tokens.max() >= self._vocabulary or sampling.max_tokens < 1:
            raise ModelError(
                f"cannot complete: prompt of {len(tokens)} tokens, max_tokens {sampling.max_tokens}; want at least one "
                f"of each, ids from 0 to {self._vocabulary - 1}"
            )
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            if self._task is not None:
                self._ended(self._task)
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._ended)
        request = _Request(tokens, sampling, session, loop.create_future())
        self._waiting.append(request)
        return await request.answer

    def release(self, session: str) -> None:
        """Free the session's row; an answer under way comes back as it stands, finish "abort"."""
        row = self._row_of.get(session)
        if row is None:
            return
        if self._active[row] is not None:
            self._finish(row, "abort")
        self._free(row)

    async def update(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Take new weights, or a change of those that were loaded (see `Weights`), between two steps, in place. All
        caches are dropped; answers under way go on, computed anew under the new weights, or begin again (`restart`).

        Raises ValueError on what does not fit the model, or where a weight is missing: the model is then unusable
        until a whole update has come.
        """
        self._cached[:] = 0
        if self._restart:
            under_way = [request is not None for request in self._active]
            self._known[under_way] = self._start[under_way]
        self._weights.take(weights)
        self.version = version

    async def close(self) -> None:
        """Answers under way fail with ModelError; storage goes."""
        if self._task is not None:
            self._task.cancel()
        self._drop(ModelError(f"the engine of '{self.name}' was closed"))
        self._forward.forget()

    async def _run(self) -> None:
        while True:
            for _ in range(_TICKS):
                await asyncio.sleep(0)
            for row, request in enumerate(self._active):
                if request is not None and request.answer.done():  # cancelled by whoever asked
                    self._active[row] = None
            self._admit()
            rows = np.flatnonzero([request is not None for request in self._active])
            if len(rows):
                self._step(rows)
            elif not self._waiting:
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        """See to the requests that an ended loop left behind; after a normal end there are none."""
        if task is not self._task:
            return
        if not task.done() or task.cancelled():
            self._drop(None)
        elif error := task.exception():
            self._cached[:] = 0
            self._drop(error if isinstance(error, ModelError) else ModelError(f"{type(error).__name__}: {error}"))

    def _drop(self, error: ModelError | None) -> None:
        """Give up all requests: with the error, or by cancelling them."""
        requests = [r for r in (*self._active, *self._waiting) if r is not None and not r.answer.done()]
        self._active = [None] * len(self._active)
        self._waiting.clear()
        for request in requests:
            if request.answer.get_loop().is_closed():
                continue
            if error is None:
                request.answer.cancel()
            else:
                request.answer.set_exception(error)

    def _admit(self) -> None:
        """Give waiting requests their rows: that of their session, a free one, or one that has long been idle."""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if request.answer.done():
                continue
            row = self._row_of.get(request.session)
            if row is None:
                row = self._new_row(request.session, request.prompt)
            if row is None or self._active[row] is not None:  # one answer at a time a session
                self._waiting.append(request)
            else:
                self._seat(row, request)

    def _seat(self, row: int, request: _Request) -> None:
        prompt, sampling = request.prompt, request.sampling
        size = len(prompt)
        kept = _common(self._ids[row : row + 1, : self._cached[row]], prompt)[0]
        self._cached[row] = min(kept, size - 1)  # the last token is computed in any case: it predicts the answer
        self._ids[row, kept:size] = prompt[kept:]
        self._known[row] = self._start[row] = size
        self._limit[row] = min(size + sampling.max_tokens, self.context)
        self._temperature[row] = sampling.temperature
        self._top_p[row] = sampling.top_p
        seed = int(self._seeds.integers(2**63)) if sampling.seed is None else sampling.seed
        self._seed[row] = seed % 2**64
        self._active[row] = request

    def _vacant(self) -> int | None:
        for row, owner in enumerate(self._owner):
            if owner is None:
                return row
        idle = [row for row, request in enumerate(self._active) if request is None]
        if not idle:
            return None
        row = min(idle, key=lambda r: int(self._used[r]))
        if len(idle) < len(self._active) and self.stats.steps - self._used[row] < _IDLE_STEPS:
            return None
        self._free(row)
        return row

    def _new_row(self, session: str, prompt: Ints) -> int | None:
        """A row for a new session, with the longest beginning that any row holds already copied into it.

        None: no row is vacant, or a longer beginning is just being computed for another session of the same group.
        """
        size = len(prompt) - 1
        shared = _common(self._ids[:, :size], prompt[:size])
        ready = np.minimum(shared, self._cached)
        best = int(ready.argmax())
        length = int(ready[best])
        coming = [min(int(shared[r]), int(self._start[r])) for r, asked in enumerate(self._active) if asked is not None]
        if max(coming, default=0) >= length + _SHARE:
            return None
        row = self._vacant()
        if row is None:
            return None
        if best != row:
            self._cached[row] = 0
            if length >= _SHARE:
                self._forward.copy(best, row, length)
                self._ids[row, :length] = prompt[:length]
                self._cached[row] = length
        self._owner[row] = session
        self._row_of[session] = row
        return row

    def _free(self, row: int) -> None:
        """The row has no owner any more; what it holds stays useful as somebody's beginning."""
        owner = self._owner[row]
        assert owner is not None
        del self._row_of[owner]
        self._owner[row] = None

    def _finish(self, row: int, finish: Literal["stop", "length", "abort"]) -> None:
        request = self._active[row]
        assert request is not None
        self._active[row] = None
        if request.answer.done():
            return
        span = slice(int(self._start[row]), int(self._known[row]))
        tokens = self._ids[row, span].tolist()
        versions = self._versions[row, span].tolist()
        request.answer.set_result(
            Completion(
                tokens=tuple(tokens),
                logprobs=tuple(self._logprobs[row, span].tolist()),
                text=str(self.tokenizer.decode(tokens, skip_special_tokens=True)) if self.tokenizer else "",
                finish=finish,
                version=versions[-1] if versions else self.version,
                versions=tuple(versions) if len(set(versions)) > 1 else (),
            )
        )

    def _step(self, rows: Ints) -> None:
        """One forward of what is due in these rows, and one more token for those whose stream is then complete."""
        began = time.perf_counter()
        due = self._known[rows] - self._cached[rows]
        rows = rows[np.argsort(due > 1, kind="stable")]
        due = self._known[rows] - self._cached[rows]
        room = np.maximum(_STEP_TOKENS - (np.cumsum(due) - due), 0)
        counts = np.minimum(due, room)
        # A part of a prompt that happens to be one token long would have to stand among the singles: leave it out.
        keep = (counts > 1) | ((counts == 1) & (due == 1))
        rows, due, counts = rows[keep], due[keep], counts[keep]
        starts = self._cached[rows]
        flat = np.concatenate([self._ids[r, s : s + n] for r, s, n in zip(rows, starts, counts, strict=True)])
        whole = counts == due
        last = (np.cumsum(counts) - 1)[whole]
        logits = self._forward(flat, rows, starts, counts, last)
        self._cached[rows] += counts
        sampled = rows[whole]
        if len(sampled):
            at = self._known[sampled]
            tokens, logprobs = self._draw(logits, sampled, at)
            if not math.isfinite(logprobs.sum()):
                raise ModelError(f"'{self.name}' (version {self.version}) gave probabilities that are not numbers")
            self._ids[sampled, at] = tokens
            self._logprobs[sampled, at] = logprobs
            self._versions[sampled, at] = self.version
            self._known[sampled] += 1
        self.stats.steps += 1
        self.stats.sampled += len(sampled)
        self.stats.read += len(flat) - int((due == 1).sum())
        self._used[rows] = self.stats.steps
        self.stats.seconds += time.perf_counter() - began
        if len(sampled):
            stopped = np.isin(tokens, self._ends) | self._says_stop(sampled)
            for row in sampled[stopped].tolist():
                self._finish(row, "stop")
            for row in sampled[~stopped & (self._known[sampled] >= self._limit[sampled])].tolist():
                self._finish(row, "length")

    def _says_stop(self, rows: Ints) -> NDArray[np.bool_]:
        """Which of these rows hold one of their stop strings by now."""
        found = np.zeros(len(rows), np.bool_)
        for i, row in enumerate(rows.tolist()):
            request = self._active[row]
            if request is not None and request.sampling.stop and self.tokenizer is not None:
                answer = self.tokenizer.decode(self._ids[row, self._start[row] : self._known[row]])
                found[i] = any(stop in answer for stop in request.sampling.stop)
        return found

    def _draw(self, logits: torch.Tensor, rows: Ints, at: Ints) -> tuple[Ints, NDArray[np.float64]]:
        """The next token of each row, which will stand at position `at`, and its logprob."""
        return draw(logits, self._temperature[rows], self._top_p[rows], uniform(self._seed[rows], at))


def _common(ids_RL: Ints, prompt_L: Ints) -> Ints:
    """How many leading tokens of each row equal the prompt's: int64[R], at most the shorter length."""
    length = min(ids_RL.shape[1], len(prompt_L))
    same = ids_RL[:, :length] == prompt_L[:length]
    return np.where(same.all(1), length, same.argmin(1) if length else 0)
