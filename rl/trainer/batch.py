"""From experiences to tensors: rows sorted by length, cut into micro-batches by a token budget.

Invariant: a position's mask decides whether it carries loss; padding is told by length, never by a token's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..experience import Example, Expected, Experience, Pair

_WINDOW = 16
"""Batches' worth of examples that are sorted together: long enough to waste little padding, short enough to mix."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B rows padded to L tokens. Padding is at the right; `lengths` tells it, never a token id.

    `mask`, `logprobs` and `advantages` are aligned with `tokens`: entry [b, i] speaks of token i of row b, which the
    model predicts from position i - 1. So `mask[:, 0]` is False: nothing predicts a first token.
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
    values: torch.Tensor | None = None
    """float32[B, L] that the critic expected before the step, or None where there is none."""
    returns: torch.Tensor | None = None
    """float32[B, L] that it is to expect, or None."""
    expert: torch.Tensor | None = None
    """bool[B]: rows that somebody else than the policy under training has made (lineage `expert`); None for
    demonstrations and pairs."""
    counted: tuple[int, int] = (0, 0)
    """Loss tokens of the policy's rows and of the experts' in the whole batch, of which this may be a part: what a loss
    needs to weigh two means."""
    together: int = 1
    """Rows that belong together and never part: 2 where rows 2k and 2k + 1 are a pair (chosen, rejected)."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    def pick(self, rows: slice | torch.Tensor, device: torch.device | str = "cpu") -> Batch:
        """Some rows, without the columns that pad all of them; views where a slice stays on its device."""
        longest = int(self.lengths[rows].max())
        cut: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, torch.Tensor):
                part = value[rows]
                cut[f.name] = (part if part.ndim == 1 else part[:, :longest]).to(device)
        return replace(self, **cut)

    def with_reference(self, rows: Sequence[torch.Tensor]) -> Batch:
        """The same batch with `reference_logprobs`, given as float32[L of the row] for each row in order."""
        return replace(self, reference_logprobs=torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True))


def from_experiences(experiences: Sequence[Experience], expected: Mapping[str, Expected] | None = None) -> Batch:
    """All experiences as one batch, shortest first. expected: a critic's, by the experience's key.

    Raises ValueError where one has no advantages yet."""
    ordered = sorted(experiences, key=len)
    advantages = [e.advantages for e in ordered]
    missing = [e.key for e in ordered if e.advantages is None]
    if missing:
        raise ValueError(f"{len(missing)} experiences have no advantages, among them {missing[0]}")
    rows = _padded(ordered)
    expert = torch.tensor([bool(e.lineage.get("expert")) for e in ordered])
    mine = [expected[e.key] for e in ordered] if expected else None
    return Batch(
        **rows,
        values=_pad([m.values for m in mine], torch.float32) if mine else None,
        returns=_pad([m.returns for m in mine], torch.float32) if mine else None,
        logprobs=_pad([e.logprobs for e in ordered], torch.float32),
        advantages=_pad([a for a in advantages if a is not None], torch.float32),
        expert=expert,
        counted=(int(rows["mask"][~expert].sum()), int(rows["mask"][expert].sum())),
    )


def from_examples(examples: Sequence[Example | Experience]) -> Batch:
    """All demonstrations (or experiences, whose tokens and mask alone are asked for) as one batch, shortest first."""
    return Batch(**_padded(sorted(examples, key=len)))


def from_pairs(pairs: Sequence[Pair]) -> Batch:
    """All preferences as one batch, the shortest pair first: two rows each, the chosen one and then the rejected."""
    rows = [row for pair in sorted(pairs, key=len) for row in (pair.chosen, pair.rejected)]
    return Batch(**_padded(rows), together=2)


def split(batch: Batch, token_budget: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
    """Micro-batches of consecutive rows, every row in exactly one, and rows that belong together in the same.

    Each has at most `token_budget` tokens, padding included; a single row (or pair) longer than that stands alone.
    Rows sorted by length waste the least padding, but any order is right.
    """
    t = batch.together
    lengths = batch.lengths.view(-1, t).amax(1).tolist()
    for start, stop in _spans(lengths, token_budget // t):
        yield batch.pick(slice(start * t, stop * t), device)


def deal(batch: Batch, hands: int) -> list[Batch]:
    """The rows dealt out in turns, those that belong together to one hand, to each hand as many.

    Where they do not come out even, a hand is filled up with rows that carry no loss; they come last.
    """
    t = batch.together
    items = len(batch) // t
    each = -(-items // hands)
    dealt = []
    for hand in range(hands):
        mine = list(range(hand, items, hands))
        part = batch.pick(torch.tensor([i * t + j for i in mine + [0] * (each - len(mine)) for j in range(t)]))
        part.mask[len(mine) * t :] = False
        dealt.append(part)
    return dealt


def plan(lengths: Sequence[int], batch_tokens: int, passes: int, rng: np.random.Generator) -> list[list[int]]:
    """Indices of the examples of each optimizer step, each example `passes` times, in an order that `rng` draws.

    A batch holds examples of similar length, at most `batch_tokens` tokens padding included (or one longer example).
    """
    window: list[int] = []
    tokens = 0
    batches: list[list[int]] = []

    def flush(last: bool) -> None:
        nonlocal window, tokens
        window.sort(key=lambda i: lengths[i])
        cut = [window[a:b] for a, b in _spans([lengths[i] for i in window], batch_tokens)]
        # What does not fill a batch waits for the next window: a step on few examples would be a noisy one.
        window = [] if last else cut.pop()
        tokens = sum(lengths[i] for i in window)
        batches.extend(cut[i] for i in rng.permutation(len(cut)))

    for _ in range(passes):
        for index in rng.permutation(len(lengths)).tolist():
            window.append(index)
            tokens += lengths[index]
            if tokens >= _WINDOW * batch_tokens:
                flush(last=False)
    if window:
        flush(last=True)
    return batches


def _spans(lengths: Sequence[int], budget: int) -> Iterator[tuple[int, int]]:
    start, longest = 0, 0
    for stop, length in enumerate(lengths):
        longest = max(longest, length)
        if stop > start and (stop + 1 - start) * longest > budget:
            yield start, stop
            start, longest = stop, length
    if len(lengths):
        yield start, len(lengths)


def _padded(rows: Sequence[Experience | Example]) -> dict[str, Any]:
    mask = _pad([row.mask for row in rows], torch.bool)
    mask[:, 0] = False
    return {
        "tokens": _pad([row.tokens for row in rows], torch.int64),
        "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int64),
        "mask": mask,
    }


def _pad(rows: Sequence[NDArray[np.generic]], dtype: torch.dtype) -> torch.Tensor:
    out = torch.zeros(len(rows), max(map(len, rows)), dtype=dtype)
    view = out.numpy()
    for b, row in enumerate(rows):
        view[b, : len(row)] = row
    return out
