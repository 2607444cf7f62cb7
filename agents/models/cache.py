"""Keys and values of many sequences at once, and the attention that reads them.

A forward computes a flat run of tokens, [1, N], whatever sequences they belong to; only attention knows rows. It is
plugged into transformers' attention interface, so any decoder whose attention goes through that interface is served
by its own code, unpadded. Knows nothing of requests, sampling or sessions.
Invariant: a row's entries up to the position of its newest token are valid; what lies beyond is masked, never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "harness_rows"
"""Name of `attend` in transformers' attention interface."""

Ints = NDArray[np.int64]

_RUN = 16  # most rows attended together: bounds what rows of unequal length waste, costs one kernel call each


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive tokens of a pass that attend in one call: one new token of each of several rows, or several new
    tokens of one row."""

    start: int
    stop: int
    rows: slice
    length: int
    """Cached tokens to look at, the new ones included."""

    @property
    def alone(self) -> bool:
        """All its tokens belong to one row."""
        return int(self.rows.stop) - int(self.rows.start) == 1


class RowCache:
    """Storage for `rows` sequences: per layer keys and values of shape [rows, kv_heads, capacity, head_dim].

    Capacity grows by doubling, up to what the longest row needs.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._stores: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._parts: list[_Part] = []
        self._needed = 0
        self._row_N = self._position_N = torch.empty(0, dtype=torch.int64)
        self._biases: dict[tuple[int | None, int], list[torch.Tensor]] = {}

    def plan(self, rows: Ints, starts: Ints, counts: Ints, device: torch.device) -> torch.Tensor:
        """Announce the next forward: `counts` new tokens at positions from `starts` on for each of `rows`.

        Rows with one new token must come first, in ascending order. Returns the positions, int64[1, N].
        """
        ends = np.cumsum(counts)
        offsets = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        positions = np.repeat(starts, counts) + offsets
        lengths = starts + counts
        self._parts = []
        singles = int((counts == 1).sum())
        first = 0
        for i in range(1, singles + 1):
            if i == singles or rows[i] != rows[i - 1] + 1 or i - first == _RUN:
                span = slice(int(rows[first]), int(rows[i - 1]) + 1)
                self._parts.append(_Part(first, i, span, int(lengths[first:i].max())))
                first = i
        for i in range(singles, len(rows)):
            row = int(rows[i])
            self._parts.append(_Part(int(ends[i] - counts[i]), int(ends[i]), slice(row, row + 1), int(lengths[i])))
        self._needed = int(lengths.max())
        self._row_N = torch.from_numpy(np.repeat(rows, counts)).to(device)
        self._position_N = torch.from_numpy(positions).to(device)
        self._biases = {}
        return self._position_N[None]

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` entries of one row become those of another."""
        for store in self._stores.values():
            for tensor in store:
                tensor[target, :, :length] = tensor[source, :, :length]

    def attend(
        self,
        layer: int,
        query_NHD: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """Store the new keys and values, [N, kv_heads, head_dim], and attend each token to its own row up to itself.

        Returns [N, heads, head_dim]. With `window`, a token sees the last `window` ones, itself included.
        """
        keys, values = self._store(layer, key, value)
        keys[self._row_N, :, self._position_N] = key
        values[self._row_N, :, self._position_N] = value
        tokens, heads, size = query_NHD.shape
        kv_heads = key.shape[1]
        shared = heads // kv_heads
        # Query heads that share a key head become further queries of it: nothing is repeated.
        query_NKSD = query_NHD.view(tokens, kv_heads, shared, size)
        out_NKSD = query_NHD.new_empty(tokens, kv_heads, shared, value.shape[2])
        for part, bias in zip(self._parts, self._bias(window, shared, query_NHD.dtype), strict=True):
            queries, out = query_NKSD[part.start : part.stop], out_NKSD[part.start : part.stop]
            row_keys, row_values = keys[part.rows, :, : part.length], values[part.rows, :, : part.length]
            if part.alone:
                queries = queries.transpose(0, 1).reshape(1, kv_heads, -1, size)
            seen = scaled_dot_product_attention(queries, row_keys, row_values, attn_mask=bias, scale=scale)
            if part.alone:
                seen = seen.view(kv_heads, -1, shared, out.shape[3]).transpose(0, 1)
            out.copy_(seen)
        return out_NKSD.flatten(1, 2)

    def _store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        store = self._stores.get(layer)
        if store is None or store[0].shape[2] < self._needed:
            capacity = max(256, 1 << (self._needed - 1).bit_length())
            # Zeros, not whatever was there: a masked weight of 0 times a stray NaN would still be NaN.
            new = tuple(x.new_zeros(self.rows, x.shape[1], capacity, x.shape[2]) for x in (key, value))
            for old, grown in zip(store or (), new, strict=False):
                grown[:, :, : old.shape[2]] = old
            self._stores[layer] = store = (new[0], new[1])
        return store

    def _bias(self, window: int | None, shared: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """0 where a token may look, minus infinity elsewhere, for each part: [rows or 1, 1, queries or 1, length].

        Made once a pass for all layers (layers differ by their window at most).
        """
        found = self._biases.get((window, shared))
        if found is None:
            found = []
            reach = torch.arange(self._needed, device=self._position_N.device)
            for part in self._parts:
                at = self._position_N[part.start : part.stop, None]
                hidden = reach[: part.length] > at
                if window is not None:
                    hidden |= reach[: part.length] <= at - window
                bias = torch.zeros(hidden.shape, dtype=dtype, device=at.device).masked_fill_(hidden, -torch.inf)
                found.append(bias.repeat_interleave(shared, 0)[None, None] if part.alone else bias[:, None, None])
            self._biases[window, shared] = found
        return found


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    *,
    row_cache: RowCache,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer; `row_cache` travels there as an argument of the model's forward."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = module.layer_idx
    assert isinstance(layer, int)
    query_NHD, key, value = (x[0].transpose(0, 1) for x in (query, key, value))  # given as [1, heads, N, head_dim]
    return row_cache.attend(layer, query_NHD, key, value, scale, sliding_window)[None], None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend)
