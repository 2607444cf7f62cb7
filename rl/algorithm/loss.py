"""Token losses as pure functions on aligned arrays."""

from __future__ import annotations

from typing import Protocol

import torch

from ..trainer.batch import Batch


class LossFn(Protocol):
    """Loss of one micro-batch. Sums, not means: the engine divides once by the whole batch's count."""

    def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """logprobs_N: float32[N], of the policy under training, at the N positions where `batch.mask` is True, in
        row-major order. Returns (sum of weighted token losses, sums of metrics over those tokens)."""
