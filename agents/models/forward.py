"""One pass of a model over the tokens that are due in many rows, and the proof that it computes what the model does.

Knows a model and a cache of rows; nothing of requests, sampling or sessions. Invariant: a model is only served after
its logits on two short sequences, computed this way, equalled those of its own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.envs.errors import UserError

from .cache import ATTENTION, Ints, RowCache
from .decoder import Decoder, serves

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Forward:
    """Takes the model over: it is switched to this attention. Raises UserError where it cannot be served so."""

    def __init__(self, model: PreTrainedModel, name: str, rows: int) -> None:
        self._model, self._name = model, name
        self._decoder = Decoder(model) if serves(model) else None
        self._check()
        self.cache = RowCache(rows)

    @torch.inference_mode()
    def __call__(self, flat: Ints, rows: Ints, starts: Ints, counts: Ints, last: Ints) -> torch.Tensor:
        """Logits [len(last), vocabulary] at the flat positions `last`.

        flat: the new tokens of all rows behind one another, `counts` of each, which stand from `starts` on; rows with
        one new token come first (see `RowCache.plan`).
        """
        device = self._model.device
        positions = self.cache.plan(rows, starts, counts, device)
        tokens, keep = torch.from_numpy(flat).to(device), torch.from_numpy(last).to(device)
        if self._decoder is not None:
            return self._decoder(tokens, positions, keep, self.cache)
        output = self._model(
            input_ids=tokens[None], position_ids=positions, use_cache=False, logits_to_keep=keep, row_cache=self.cache
        )
        return output.logits[0]  # type: ignore[no-any-return]  # transformers' output is untyped

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` tokens of one row's cache become those of another's."""
        self.cache.copy(source, target, length)

    def forget(self) -> None:
        """Free the cache's storage."""
        self.cache = RowCache(self.cache.rows)

    def _check(self) -> None:
        """Compare with the model's own code, on two short sequences in two passes.

        A model with a state besides keys and values, or with attention of its own, would be served wrongly: refuse it.
        """
        self.cache = RowCache(2)
        embedding: Any = self._model.get_input_embeddings()
        ids = np.random.default_rng(0).integers(0, int(embedding.weight.shape[0]), (2, 12))
        try:
            self._model.set_attn_implementation("eager")
            with torch.inference_mode():
                tokens = torch.from_numpy(ids).to(self._model.device)
                truth = torch.cat([self._model(tokens[:1]).logits[:, 11], self._model(tokens[1:, :7]).logits[:, 6]])
            self._model.set_attn_implementation(ATTENTION)
            rows = np.array([0, 1])
            self(np.concatenate([ids[0, :8], ids[1, :6]]), rows, rows * 0, np.array([8, 6]), rows)
            flat = np.concatenate([ids[1, 6:7], ids[0, 8:]])
            ours = self(flat, rows[::-1], np.array([6, 8]), np.array([1, 4]), np.array([4, 0]))
            error = float((ours - truth).abs().max() / (1 + truth.abs().max()))
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError, IndexError) as failed:
            raise UserError(f"{self._refusal()} ({type(failed).__name__}: {failed})") from failed
        if not error < (1e-3 if truth.dtype == torch.float32 else 5e-2):
            raise UserError(f"{self._refusal()} (logits differ by {error:.2g})")

    def _refusal(self) -> str:
        return (
            f"model.engine 'local' cannot serve '{self._name}': {type(self._model).__name__} does not compute through "
            "transformers' attention interface alone. Choose another engine"
        )
