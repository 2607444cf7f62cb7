"""The schedule at its corners, Muon against torch's own, and which parameter goes to which rule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.rl.config import OptimizerConfig
from harness.rl.trainer.optimizer import Muon, Optimizer, orthogonalized, schedule


def shares(steps: int, **settings: Any) -> list[float]:
    return [schedule(OptimizerConfig(**settings), i, steps) for i in range(steps)]


def test_the_rate_rises_stays_and_falls() -> None:
    assert shares(4) == [1.0] * 4
    assert shares(8, warmup_steps=4, decay_steps=2) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 0.5]
    assert shares(5, decay_steps=4, final=0.2) == pytest.approx([1.0, 1.0, 0.8, 0.6, 0.4])
    assert schedule(OptimizerConfig(decay_steps=4, final=0.2), 9, 5) == pytest.approx(0.2)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 60), st.floats(0, 1))
def test_the_rate_is_never_0_before_the_end_nor_above_1(steps: int, warmup: int, decay: int, final: float) -> None:
    values = shares(steps, warmup_steps=warmup, decay_steps=decay, final=final)
    assert all(0.0 < v <= 1.0 for v in values)


@pytest.mark.parametrize("shape", [(8, 8), (4, 24), (24, 4)])
def test_orthogonalized_has_singular_values_near_1_and_the_same_directions(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    for before, after in zip(matrices, orthogonalized(matrices), strict=True):
        u, _, v = torch.linalg.svd(before, full_matrices=False)
        values = torch.linalg.svdvals(after)
        assert 0.6 < values.min() < values.max() < 1.3
        middle = u.T @ after @ v.T
        assert (middle - middle.diag().diag()).abs().max() < 1e-3


def test_muon_takes_the_steps_of_torchs_own() -> None:
    torch.manual_seed(0)
    shapes = [(16, 16), (48, 16), (16, 48), (16, 16)]
    ours = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    mine = Muon(ours, lr=0.1, weight_decay=0.01)
    reference = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.01, momentum=0.95)
    for _ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        starts = [a.detach().clone() for a in ours]
        mine.step()
        reference.step()
        for a, b, start in zip(ours, theirs, starts, strict=True):  # theirs iterates in bfloat16
            assert (a - b).norm() < 0.03 * (a - start).norm()
            b.data.copy_(a.data)


def test_only_hidden_matrices_go_to_muon(tiny: Any) -> None:
    for kind in ("llama", "qwen3", "gpt2"):
        model = tiny.make(kind)
        config = OptimizerConfig(name="muon", lr=0.5, adam_lr=0.25, vector_lr=0.75, weight_decay=0.1)
        optimizer = Optimizer(model, config, 1)
        names = {id(p): n for n, p in model.named_parameters()}
        muon, adam = optimizer._parts
        assert optimizer._rates == [[0.5], [0.25, 0.75]]
        assert all((p.ndim < 2) == (g["lr"] == 0.75) for g in adam.param_groups for p in g["params"])
        by_muon = {names[id(p)] for g in muon.param_groups for p in g["params"]}
        by_adam = {names[id(p)]: g["weight_decay"] for g in adam.param_groups for p in g["params"]}
        assert by_muon | by_adam.keys() == set(names.values())
        assert not by_muon & by_adam.keys()
        outer = ("embed", "lm_head", "wte", "wpe")
        assert all("norm" not in n and "bias" not in n and not any(o in n for o in outer) for n in by_muon)
        assert {n for n, p in model.named_parameters() if p.ndim == 2} - by_muon == {
            n for n in by_adam if any(o in n for o in outer)
        }
        assert all((decay > 0) == any(o in n for o in outer) for n, decay in by_adam.items())


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e9])
def test_clipping_bounds_the_gradient_and_reports_it_unclipped(tiny: Any, clip: float) -> None:
    model = tiny.make("llama")
    twin = tiny.make("llama")
    optimizer = Optimizer(model, OptimizerConfig(lr=1e-2, grad_clip=clip), 1)
    plain = torch.optim.AdamW(twin.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    torch.manual_seed(1)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        p.grad = torch.randn(p.shape)
        q.grad = p.grad.clone()
    want = torch.nn.utils.clip_grad_norm_(twin.parameters(), clip or float("inf"))
    plain.step()
    assert optimizer.step()["grad_norm"] == pytest.approx(want.item(), rel=1e-5)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=1e-5)
        assert p.grad is None
