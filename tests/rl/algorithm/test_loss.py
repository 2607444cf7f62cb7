"""Losses against loops over tokens in numpy, gradients against plain autograd, and independence of micro-batches."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.rl.algorithm.loss import ClippedLoss, DpoLoss, LossFn, ReinforceLoss, SftLoss, ValueLoss, k3
from harness.rl.trainer.batch import Batch

LENGTHS = (7, 5, 9, 3)


def make_batch(seed: int = 0, *, lengths: tuple[int, ...] = LENGTHS, spread: float = 0.6) -> tuple[torch.Tensor, Batch]:
    """Logprobs of the policy (float64[B, L]) and a batch whose behaviour and reference differ from it by `spread`."""
    r = np.random.default_rng(seed)
    B, L = len(lengths), max(lengths)
    mask = r.random((B, L)) < 0.6
    mask[:, 0] = False
    for b, n in enumerate(lengths):
        mask[b, n:] = False
        mask[b, 1] = True
    policy = -r.random((B, L)) * 3

    def near() -> torch.Tensor:
        return torch.tensor(np.where(mask, policy + r.normal(0, spread, (B, L)), 0.0))

    batch = Batch(
        tokens=torch.tensor(r.integers(0, 9, (B, L))),
        lengths=torch.tensor(lengths),
        mask=torch.tensor(mask),
        logprobs=near(),
        advantages=torch.tensor(np.where(mask, r.normal(0, 1, (B, L)), 0.0)),
        reference_logprobs=near(),
    )
    return torch.tensor(policy), batch


def rows(batch: Batch, index: list[int]) -> Batch:
    def pick(x: torch.Tensor | None) -> torch.Tensor:
        assert x is not None
        return x[index]

    return Batch(
        tokens=pick(batch.tokens),
        lengths=pick(batch.lengths),
        mask=pick(batch.mask),
        logprobs=pick(batch.logprobs),
        advantages=pick(batch.advantages),
        reference_logprobs=pick(batch.reference_logprobs),
    )


def by_hand(
    policy: torch.Tensor, batch: Batch, low: float, high: float, kl: float, per_sequence: bool
) -> dict[str, Any]:
    """The same figures, a token at a time."""
    assert batch.logprobs is not None
    assert batch.advantages is not None
    assert batch.reference_logprobs is not None
    total, clipped, k3_behaviour, k3_reference, ratio_max = 0.0, 0.0, 0.0, 0.0, 0.0
    for b in range(len(policy)):
        weight = 1 / int(batch.mask[b].sum()) if per_sequence else 1.0
        for i in range(policy.shape[1]):
            if not batch.mask[b, i]:
                continue
            new, old, ref = (float(x[b, i]) for x in (policy, batch.logprobs, batch.reference_logprobs))
            a, ratio = float(batch.advantages[b, i]), math.exp(new - old)
            surrogate = min(ratio * a, min(max(ratio, 1 - low), 1 + high) * a)
            clipped += weight * ((a > 0 and ratio > 1 + high) or (a < 0 and ratio < 1 - low))
            behind = math.exp(ref - new) - (ref - new) - 1
            total += weight * (-surrogate + kl * behind)
            k3_behaviour += weight * (ratio - 1 - math.log(ratio))
            k3_reference += weight * behind
            ratio_max = max(ratio_max, ratio)
    return {
        "loss": total,
        "clip_fraction": clipped,
        "kl_behaviour": k3_behaviour,
        "kl_reference": k3_reference,
        "ratio_max": ratio_max,
    }


@pytest.mark.parametrize("aggregate", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("kl", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_clipped_loss_and_metrics_against_a_loop_over_tokens(aggregate: Any, kl: float, seed: int) -> None:
    policy, batch = make_batch(seed)
    loss, metrics = ClippedLoss(clip_low=0.2, clip_high=0.4, kl=kl, aggregate=aggregate)(policy[batch.mask], batch)
    expected = by_hand(policy, batch, 0.2, 0.4, kl, aggregate != "token-mean")
    assert loss.item() == pytest.approx(expected.pop("loss"), rel=1e-6)
    if not kl:
        expected.pop("kl_reference")
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, rel=1e-6)
    assert metrics["clip_fraction"] > 0


@pytest.mark.parametrize("aggregate", ["token-mean", "seq-mean-token-mean"])
def test_gradient_of_the_clipped_loss_against_plain_autograd(aggregate: Any) -> None:
    policy, batch = make_batch(5)
    ours = policy.clone().requires_grad_()
    ClippedLoss(clip_low=0.2, clip_high=0.28, kl=0.1, aggregate=aggregate)(ours[batch.mask], batch)[0].backward()

    plain = policy.clone().requires_grad_()
    assert batch.logprobs is not None
    assert batch.advantages is not None
    assert batch.reference_logprobs is not None
    ratio = torch.exp(plain - batch.logprobs)
    surrogate = torch.min(ratio * batch.advantages, torch.clip(ratio, 0.8, 1.28) * batch.advantages)
    away = batch.reference_logprobs - plain
    losses = (-surrogate + 0.1 * (torch.exp(away) - 1 - away)) * batch.mask
    if aggregate == "seq-mean-token-mean":
        losses = losses / batch.mask.sum(dim=1, keepdim=True)
    losses.sum().backward()

    assert ours.grad is not None
    assert plain.grad is not None
    torch.testing.assert_close(ours.grad, plain.grad)
    assert ours.grad.abs().sum() > 0


@pytest.mark.parametrize("aggregate", ["token-mean", "seq-mean-token-mean"])
def test_value_loss_against_a_loop_over_tokens(aggregate: Any) -> None:
    """And its gradient: taken away where the value has gone its clip towards the return, and further."""
    _, batch = make_batch(3)
    r = np.random.default_rng(3)
    now, old, returns = (torch.tensor(r.normal(0, 0.4, batch.mask.shape)) for _ in range(3))
    batch = replace(batch, values=old, returns=returns)
    leaf = now.clone().requires_grad_()
    loss, metrics = ValueLoss(clip=0.2, aggregate=aggregate)(leaf[batch.mask], batch)
    loss.backward()
    total, clipped = 0.0, 0.0
    for b, i in batch.mask.nonzero().tolist():
        weight = 1.0 if aggregate == "token-mean" else 1 / int(batch.mask[b].sum())
        v, o, want = float(now[b, i]), float(old[b, i]), float(returns[b, i])
        held = min(max(v, o - 0.2), o + 0.2)
        total += weight * max((v - want) ** 2, (held - want) ** 2) / 2
        gone = abs(v - o) > 0.2 and abs(held - want) > abs(v - want)
        clipped += weight * gone
        assert leaf.grad is not None
        assert float(leaf.grad[b, i]) == pytest.approx(0.0 if gone else weight * (v - want))
    assert loss.item() == pytest.approx(total)
    assert metrics["clip_fraction"].item() == pytest.approx(clipped)
    assert clipped > 0


def test_on_policy_gradient_is_reinforce() -> None:
    policy, batch = make_batch(1, spread=0.0)
    grads = []
    for loss in (ClippedLoss(), ReinforceLoss()):
        leaf = policy.clone().requires_grad_()
        loss(leaf[batch.mask], batch)[0].backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_clip_takes_the_gradient_only_where_it_would_go_further() -> None:
    # Rows: ratio 2 and 0.5, advantage +1 and -1. Held: (2, +1) and (0.5, -1).
    ratio = torch.tensor([2.0, 2.0, 0.5, 0.5])
    mask = torch.tensor([[False, True]] * 4)
    batch = Batch(
        tokens=torch.zeros(4, 2, dtype=torch.long),
        lengths=torch.full((4,), 2),
        mask=mask,
        logprobs=torch.zeros(4, 2),
        advantages=torch.tensor([[0, 1.0], [0, -1.0], [0, 1.0], [0, -1.0]]),
    )
    logprobs = ratio.log().requires_grad_()
    loss, metrics = ClippedLoss(clip_low=0.2, clip_high=0.3)(logprobs, batch)
    loss.backward()
    assert loss.item() == pytest.approx(-1.3 + 2.0 - 0.5 + 0.8)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 2.0, -0.5, 0.0])
    assert metrics["clip_fraction"].item() == 2
    assert metrics["ratio_max"].item() == pytest.approx(2.0)


def test_sft_is_the_cross_entropy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 6, dtype=torch.float64)
    tokens = torch.randint(0, 6, (2, 4))
    mask = torch.tensor([[False, True, True, False], [False, False, False, True]])
    batch = Batch(tokens=tokens, lengths=torch.tensor([4, 4]), mask=mask)
    logprobs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0][mask]
    expected = torch.nn.functional.cross_entropy(logits[mask], tokens[mask], reduction="sum")
    loss, metrics = SftLoss()(logprobs, batch)
    torch.testing.assert_close(loss, expected)
    assert metrics == {}
    by_row, _ = SftLoss(aggregate="seq-mean-token-mean")(logprobs, batch)
    torch.testing.assert_close(by_row, -(logprobs[:2].mean() + logprobs[2]))


def test_what_a_loss_is_the_mean_of() -> None:
    _, batch = make_batch(4)
    batch.mask[2] = False
    assert SftLoss().count(batch) == int(batch.mask.sum())
    assert SftLoss(aggregate="seq-mean-token-mean").count(batch) == 3
    assert DpoLoss().count(batch) == 2
    batch.mask[3] = False
    assert DpoLoss().count(batch) == 1


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_dpo_against_a_loop_over_pairs(beta: float) -> None:
    policy, batch = make_batch(6)
    assert batch.reference_logprobs is not None
    gains = [float(((policy[b] - batch.reference_logprobs[b]) * batch.mask[b]).sum()) for b in range(4)]
    margins = [gains[0] - gains[1], gains[2] - gains[3]]
    loss, metrics = DpoLoss(beta=beta)(policy[batch.mask], batch)
    assert loss.item() == pytest.approx(sum(math.log1p(math.exp(-beta * m)) for m in margins))
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "preferred": sum(m > 0 for m in margins),
            "margin": sum(margins),
            "gain_chosen": gains[0] + gains[2],
            "gain_rejected": gains[1] + gains[3],
        }
    )


def test_dpo_pulls_the_two_of_a_pair_apart_by_what_they_still_lack() -> None:
    policy, batch = make_batch(7)
    leaf = policy[batch.mask].requires_grad_()
    loss, _ = DpoLoss(beta=0.5)(leaf, batch)
    loss.backward()
    assert batch.reference_logprobs is not None
    gains = ((policy - batch.reference_logprobs) * batch.mask).sum(1)
    pull = 0.5 * torch.sigmoid(-0.5 * (gains[0::2] - gains[1::2]))
    sides = torch.stack([-pull, pull], 1).flatten()
    torch.testing.assert_close(leaf.grad, sides[batch.mask.nonzero()[:, 0]])


def test_dpo_wants_whole_pairs() -> None:
    policy, batch = make_batch(0)
    part = rows(batch, [0, 1, 2])
    with pytest.raises(ValueError, match="even"):
        DpoLoss()(policy[[0, 1, 2]][part.mask], part)


LOSSES: list[LossFn] = [
    ClippedLoss(kl=0.1),
    ClippedLoss(kl=0.1, aggregate="seq-mean-token-mean"),
    ReinforceLoss(),
    ReinforceLoss(aggregate="seq-mean-token-mean"),
    SftLoss(),
    SftLoss(aggregate="seq-mean-token-mean"),
]


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(4)), st.integers(1, 3))
def test_a_batch_may_be_cut_and_shuffled(order: list[int], cut: int) -> None:
    policy, batch = make_batch(2)
    in_pairs = [2, 3, 0, 1] if order[0] % 2 else [0, 1, 2, 3]
    for loss in [*LOSSES, DpoLoss()]:
        whole, metrics = loss(policy[batch.mask], batch)
        parts = []
        order, cut = (in_pairs, 2) if isinstance(loss, DpoLoss) else (order, cut)
        for index in (order[:cut], order[cut:]):
            part = rows(batch, index)
            parts.append(loss(policy[index][part.mask], part))
        torch.testing.assert_close(parts[0][0] + parts[1][0], whole)
        for name, value in metrics.items():
            a, b = (m[name] for _, m in parts)
            torch.testing.assert_close(torch.maximum(a, b) if name.endswith("_max") else a + b, value)


def test_rows_without_loss_tokens_and_empty_micro_batches_are_zero() -> None:
    policy, batch = make_batch(3)
    nothing = Batch(**{**{f: getattr(batch, f) for f in batch.__slots__}, "mask": torch.zeros_like(batch.mask)})
    for loss in [*LOSSES, DpoLoss()]:
        assert loss.count(nothing) == 0
        total, metrics = loss(policy[nothing.mask].requires_grad_(), nothing)
        assert total.item() == 0.0
        total.backward()
        assert all(float(v) == 0.0 for v in metrics.values())


@given(st.floats(-500, 0), st.floats(-500, 0), st.floats(-3, 3))
def test_far_apart_policies_stay_finite(new: float, old: float, advantage: float) -> None:
    batch = Batch(
        tokens=torch.zeros(1, 2, dtype=torch.long),
        lengths=torch.tensor([2]),
        mask=torch.tensor([[False, True]]),
        logprobs=torch.tensor([[0.0, old]]),
        advantages=torch.tensor([[0.0, advantage]]),
        reference_logprobs=torch.tensor([[0.0, old]]),
    )
    logprobs = torch.tensor([new], requires_grad=True)
    loss, metrics = ClippedLoss(kl=0.1)(logprobs, batch)
    loss.backward()
    assert math.isfinite(loss.item())
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert all(torch.isfinite(v) for v in metrics.values())


def test_k3_is_never_negative_and_estimates_the_divergence() -> None:
    torch.manual_seed(1)
    p, q = torch.randn(2, 6, dtype=torch.float64).log_softmax(-1)
    exact = (p.exp() * (p - q)).sum()
    drawn = torch.multinomial(p.exp(), 200_000, replacement=True)
    estimate = k3(p[drawn], q[drawn])
    assert (estimate >= 0).all()
    assert estimate.mean().item() == pytest.approx(exact.item(), rel=0.02)
    # Exact too: the expectation under p of k3 is KL(p || q).
    assert (p.exp() * k3(p, q)).sum().item() == pytest.approx(exact.item())


@pytest.mark.parametrize(
    ("loss", "missing"),
    [
        (ClippedLoss(), "logprobs"),
        (ClippedLoss(kl=0.1), "reference_logprobs"),
        (ReinforceLoss(), "advantages"),
        (DpoLoss(), "reference_logprobs"),
    ],
)
def test_what_a_loss_needs_is_named(loss: LossFn, missing: str) -> None:
    policy, batch = make_batch(0)
    without = Batch(**{**{f: getattr(batch, f) for f in batch.__slots__}, missing: None})
    with pytest.raises(ValueError, match=f"batch.{missing}"):
        loss(policy[batch.mask], without)


@pytest.mark.parametrize("loss", [*LOSSES, DpoLoss(beta=0.3)])
def test_losses_travel_to_other_processes(loss: LossFn) -> None:
    assert pickle.loads(pickle.dumps(loss)) == loss
