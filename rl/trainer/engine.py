"""What a training back end must do, and the table of those there are.

An engine holds the model, its optimizer and their state; it computes losses and steps, and knows nothing of buffers,
groups or explorers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from ..algorithm.loss import LossFn
    from .batch import Batch

ENGINES: Mapping[str, str] = {"local": "harness.rl.trainer.local:LocalEngine"}


class TrainEngine(Protocol):
    """One model under training."""

    def step(self, batch: Batch, loss: LossFn) -> dict[str, float]:
        """One optimizer step on the whole batch (micro-batches by token budget are its own affair).

        Returns loss, grad_norm, lr, tokens and whatever the loss reports, as means over the batch's loss tokens.
        """

    def logprobs(self, batch: Batch) -> list[torch.Tensor]:
        """Log-probability of each token given those before it, float32[L] a row, 0.0 at position 0; no gradient."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Named weights as transformers names them, streamed for synchronization."""

    def save(self, folder: Path) -> None:
        """Model and tokenizer in transformers format, optimizer and schedule beside them, into an empty folder."""

    def load(self, folder: Path) -> None:
        """The state that `save` wrote."""
