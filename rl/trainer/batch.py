"""From experiences to tensors: rows sorted by length, cut into micro-batches by a token budget.

Invariant: a position's mask decides whether it carries loss; padding is told by length, never by a token's id.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B rows padded to L tokens. Padding is at the right; `lengths` tells it, never a token id.

    `mask`, `logprobs` and `advantages` are aligned with `tokens`: entry [b, i] speaks of token i of row b, which the
    model predicts from position i - 1.
    """

    tokens: torch.Tensor
    """int64[B, L]"""
    lengths: torch.Tensor
    """int64[B]"""
    mask: torch.Tensor
    """bool[B, L]: tokens that carry loss."""
    logprobs: torch.Tensor | None = None
    """float32[B, L] of the sampling policy; None for demonstrations."""
    advantages: torch.Tensor | None = None
    """float32[B, L]; None for demonstrations."""
    reference_logprobs: torch.Tensor | None = None
    """float32[B, L] of the reference model, or None."""
