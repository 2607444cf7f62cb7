"""Rows to tensors and tensors to micro-batches: nothing lost, nothing twice, padding told by length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.rl.experience import Example, Experience, Pair
from harness.rl.trainer.batch import deal, from_examples, from_experiences, from_pairs, plan, split

Lengths = st.lists(st.integers(1, 60), min_size=1, max_size=30)


def examples(lengths: list[int]) -> list[Example]:
    """Each has tokens of its own, so that rows can be told apart; every token carries loss."""
    return [Example(tokens=np.full(n, i, np.int32), mask=np.ones(n, np.bool_)) for i, n in enumerate(lengths)]


@given(Lengths, st.integers(1, 200))
def test_micro_batches_hold_every_row_once_and_keep_to_the_budget(lengths: list[int], budget: int) -> None:
    seen = []
    for micro in split(from_examples(examples(lengths)), budget):
        assert micro.tokens.numel() <= budget or len(micro) == 1
        assert micro.tokens.shape == micro.mask.shape == (len(micro), int(micro.lengths.max()))
        for row, mask, n in zip(micro.tokens, micro.mask, micro.lengths.tolist(), strict=True):
            name = int(row[0])
            assert (row[:n] == name).all()
            assert mask.tolist() == [0 < i < n for i in range(len(row))]
            seen.append((name, n))
    assert sorted(seen) == list(enumerate(lengths))


@given(Lengths)
def test_micro_batches_come_in_the_order_of_the_batch(lengths: list[int]) -> None:
    batch = from_examples(examples(lengths))
    assert batch.lengths.tolist() == sorted(lengths)
    assert torch.cat([m.lengths for m in split(batch, 64)]).equal(batch.lengths)


@given(st.lists(st.tuples(st.integers(2, 60), st.integers(2, 60)), min_size=1, max_size=20), st.integers(1, 300))
def test_pairs_are_never_parted(lengths: list[tuple[int, int]], budget: int) -> None:
    made = [examples(list(pair)) for pair in lengths]
    batch = from_pairs([Pair(chosen=a, rejected=b) for a, b in made])
    seen = []
    for micro in split(batch, budget):
        assert micro.together == 2
        assert micro.tokens.numel() <= budget or len(micro) == 2
        assert (micro.tokens[0::2, 0] == 0).all()
        assert (micro.tokens[1::2, 0] == 1).all()
        seen += micro.lengths.view(-1, 2).tolist()
    assert sorted(map(tuple, seen)) == sorted(lengths)


@given(Lengths, st.integers(1, 5), st.booleans())
def test_dealt_rows_are_all_there_once_and_every_hand_has_as_many(lengths: list[int], hands: int, paired: bool) -> None:
    made = examples([max(2, n) for n in lengths])
    batch = from_pairs([Pair(chosen=e, rejected=e) for e in made]) if paired else from_examples(made)
    parts = deal(batch, hands)
    assert len(parts) == hands
    assert len({len(part) for part in parts}) == 1
    seen = [int(row[0]) for part in parts for row, mask in zip(part.tokens, part.mask, strict=True) if mask.any()]
    assert sorted(seen) == sorted(batch.tokens[:, 0].tolist())
    if paired:
        assert all((part.tokens[0::2, 0] == part.tokens[1::2, 0]).all() for part in parts)
    # Row r is where the engine looks for it.
    t = batch.together
    for r, n in enumerate(batch.lengths.tolist()):
        part = parts[(r // t) % hands]
        assert int(part.lengths[r // t // hands * t + r % t]) == n


@given(Lengths, st.integers(1, 200), st.integers(1, 3), st.integers(0, 5))
def test_a_plan_uses_every_example_once_a_pass(lengths: list[int], tokens: int, passes: int, seed: int) -> None:
    batches = plan(lengths, tokens, passes, np.random.default_rng(seed))
    assert sorted(i for b in batches for i in b) == sorted(list(range(len(lengths))) * passes)
    assert all(len(b) * max(lengths[i] for i in b) <= tokens or len(b) == 1 for b in batches)
    assert batches == plan(lengths, tokens, passes, np.random.default_rng(seed))


def test_a_plan_wastes_little_on_padding_and_differs_by_seed() -> None:
    lengths = np.random.default_rng(0).integers(50, 500, 1000).tolist()
    batches = plan(lengths, 4096, 1, np.random.default_rng(0))
    padded = sum(len(b) * max(lengths[i] for i in b) for b in batches)
    assert sum(lengths) / padded > 0.9
    assert batches != plan(lengths, 4096, 1, np.random.default_rng(1))
    firsts = [max(lengths[i] for i in b) for b in batches[:12]]
    assert firsts != sorted(firsts)


def test_a_token_that_looks_like_padding_is_kept() -> None:
    """C7: pad id = eos id = 2; a row of length 6 that ends in eos, padded to 8."""
    eos = 2
    mask = np.array([False, False, True, True, True, True])
    short = Experience(
        key="a",
        task_key="t",
        group="g",
        attempt=0,
        versions=(0, 0),
        reward=1.0,
        tokens=np.array([0, 1, 5, 6, 7, eos], np.int32),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        advantages=mask.astype(np.float32),
    )
    long = Example(tokens=np.arange(8, dtype=np.int32), mask=np.ones(8, np.bool_))
    batch = from_examples([long, Example(tokens=short.tokens, mask=short.mask)])
    assert batch.tokens.shape == (2, 8)
    assert batch.mask[0].tolist() == [False, False, True, True, True, True, False, False]
    assert batch.lengths.tolist() == [6, 8]
    assert from_experiences([short]).mask[0, 5]


def test_what_is_aligned_stays_aligned_and_a_reference_fits() -> None:
    rng = np.random.default_rng(0)
    made = []
    for i, n in enumerate((9, 4, 6)):
        floats = np.arange(n, dtype=np.float32) + 10 * i
        made.append(
            Experience(
                key=str(i),
                task_key="t",
                group="g",
                attempt=i,
                versions=(0, 0),
                reward=0.0,
                tokens=rng.integers(0, 9, n, dtype=np.int32),
                mask=np.ones(n, np.bool_),
                logprobs=floats,
                advantages=-floats,
            )
        )
    batch = from_experiences(made)
    batch = batch.with_reference([torch.arange(n, dtype=torch.float32) for n in batch.lengths.tolist()])
    for micro in split(batch, 14):
        assert micro.logprobs is not None
        assert micro.advantages is not None
        assert micro.reference_logprobs is not None
        for b, n in enumerate(micro.lengths.tolist()):
            source = next(e for e in made if len(e) == n)
            assert micro.tokens[b, :n].tolist() == source.tokens.tolist()
            assert micro.logprobs[b, :n].tolist() == source.logprobs.tolist()
            assert micro.advantages[b, :n].tolist() == (-source.logprobs).tolist()
            assert micro.reference_logprobs[b, :n].tolist() == list(range(n))


def test_experiences_without_advantages_are_refused() -> None:
    e = Experience(
        key="k",
        task_key="t",
        group="g",
        attempt=0,
        versions=(0, 0),
        reward=0.0,
        tokens=np.zeros(2, np.int32),
        mask=np.array([False, True]),
        logprobs=np.zeros(2, np.float32),
    )
    with pytest.raises(ValueError, match="k"):
        from_experiences([e])
