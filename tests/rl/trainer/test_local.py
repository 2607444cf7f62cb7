"""The engine against plain torch: logprobs, loss and gradient, for any cut, architecture and temperature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from harness.envs.errors import UserError
from harness.rl.algorithm.loss import ClippedLoss, DpoLoss, LossFn, SftLoss, ValueLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.experience import Example, Pair
from harness.rl.trainer.batch import Batch, from_pairs
from harness.rl.trainer.engine import make_engine
from harness.rl.trainer.local import LocalEngine

KINDS = ("llama", "qwen3", "gemma2", "gpt2")
STILL = OptimizerConfig(lr=0.0, grad_clip=0.0)


@pytest.fixture(scope="module")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: tiny.write(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def plain_logprobs(folder: Path, batch: Batch, temperature: float = 1.0) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """Each row alone, unpadded, all logits: float32[length] a row, 0.0 at position 0."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for tokens, n in zip(batch.tokens, batch.lengths.tolist(), strict=True):
        logits = model(tokens[None, :n]).logits[0, :-1] / temperature
        chosen = logits.log_softmax(-1).gather(-1, tokens[1:n, None])[:, 0]
        rows.append(torch.cat([torch.zeros(1), chosen]))
    return model, rows


class Gradients:
    """A loss that is any other, and keeps the gradients: asks the engine's own parameters just before they are used."""

    def __init__(self, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, torch.Tensor] = {}
        model = engine._model
        assert engine._optimizer is not None
        step = engine._optimizer.step

        def keep() -> dict[str, float]:
            self.seen = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            return step()

        monkeypatch.setattr(engine._optimizer, "step", keep)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_are_those_of_rows_alone(tiny: Any, folders: dict[str, Path], kind: str, temperature: float) -> None:
    batch = tiny.batch()
    engine = LocalEngine(folders[kind], TrainerConfig(token_budget=64), temperature=temperature)
    _, expected = plain_logprobs(folders[kind], batch, temperature)
    for row, want, mask, n in zip(engine.logprobs(batch), expected, batch.mask, batch.lengths.tolist(), strict=True):
        assert row.shape == (n,)
        torch.testing.assert_close(row, torch.where(mask[:n], want.detach(), 0.0), atol=2e-6, rtol=0)


@pytest.mark.parametrize("budget", [1, 40, 64, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_plain_torch_however_the_batch_is_cut(
    tiny: Any, folders: dict[str, Path], kind: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = tiny.batch()
    model, rows = plain_logprobs(folders[kind], batch)
    losses = []
    for b, row in enumerate(rows):
        for i in batch.mask[b].nonzero()[:, 0].tolist():
            ratio = (row[i] - batch.logprobs[b, i]).exp()
            advantage = batch.advantages[b, i]
            losses.append(-torch.minimum(advantage * ratio, advantage * ratio.clamp(0.8, 1.28)))
    loss = torch.stack(losses).mean()
    loss.backward()

    engine = LocalEngine(folders[kind], TrainerConfig(token_budget=budget))
    engine.begin(STILL, 1)
    gradients = Gradients(engine, monkeypatch)
    metrics = engine.step(batch, ClippedLoss())
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert metrics["loss_tokens"] == len(losses)
    assert metrics["tokens"] == int(batch.lengths.sum())
    norms = [p.grad.norm() for p in model.parameters()]
    assert metrics["grad_norm"] == pytest.approx(torch.stack(norms).norm().item(), rel=1e-5)
    assert gradients.seen.keys() == {n for n, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients.seen[name], parameter.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("budget", [1, 64, 10_000])
def test_a_mean_of_sequence_means_is_one_whatever_the_cut(tiny: Any, folders: dict[str, Path], budget: int) -> None:
    batch = tiny.batch()
    _, rows = plain_logprobs(folders["llama"], batch)
    want = torch.stack([-row[mask[: len(row)]].mean() for row, mask in zip(rows, batch.mask, strict=True)]).mean()
    engine = LocalEngine(folders["llama"], TrainerConfig(token_budget=budget))
    engine.begin(STILL, 1)
    loss = SftLoss(aggregate="seq-mean-token-mean")
    assert engine.step(batch, loss)["loss"] == pytest.approx(want.item(), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_computing_layers_twice_changes_nothing_and_keeps_less(tiny: Any, folders: dict[str, Path], kind: str) -> None:
    found, kept = [], []
    for gradient_checkpointing in (False, True):
        engine = LocalEngine(folders[kind], TrainerConfig(gradient_checkpointing=gradient_checkpointing))
        engine.begin(OptimizerConfig(lr=1e-3), 2)
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            found.append([engine.step(tiny.batch(), ClippedLoss()) for _ in range(2)])
        kept.append(sum(sizes))
    for plain, again in zip(*found, strict=True):
        assert again == pytest.approx(plain, rel=1e-5)
    assert kept[1] < 0.5 * kept[0]


@pytest.mark.parametrize("budget", [1, 64, 10_000])
def test_dpo_is_one_whatever_the_cut(tiny: Any, folders: dict[str, Path], budget: int) -> None:
    rng = np.random.default_rng(0)
    made = [
        Example(tokens=rng.integers(0, tiny.V, n, dtype=np.int32), mask=np.arange(n) > 2)
        for n in (9, 20, 14, 14, 31, 8)
    ]
    batch = from_pairs([Pair(chosen=a, rejected=b) for a, b in zip(made[0::2], made[1::2], strict=True)])
    engine = LocalEngine(folders["qwen3"], TrainerConfig(token_budget=budget))
    engine.begin(STILL, 1)
    reference = engine.reference(folders["llama"])
    batch = batch.with_reference(reference.logprobs(batch))
    with torch.no_grad():
        _, ours = plain_logprobs(folders["qwen3"], batch)
        _, theirs = plain_logprobs(folders["llama"], batch)
    gains = [float(((a - b) * m[: len(a)]).sum()) for a, b, m in zip(ours, theirs, batch.mask, strict=True)]
    want = np.mean([np.log1p(np.exp(-0.5 * (c - r))) for c, r in zip(gains[0::2], gains[1::2], strict=True)])
    metrics = engine.step(batch, DpoLoss(beta=0.5))
    assert metrics["loss"] == pytest.approx(want, abs=1e-5)
    assert metrics["gain_chosen"] == pytest.approx(np.mean(gains[0::2]), abs=1e-4)


def test_metrics_of_the_loss_do_not_depend_on_the_cut(tiny: Any, folders: dict[str, Path]) -> None:
    found = []
    for budget in (1, 10_000):
        engine = LocalEngine(folders["llama"], TrainerConfig(token_budget=budget))
        engine.begin(STILL, 1)
        found.append(engine.step(tiny.batch(), ClippedLoss()))
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0]["ratio_max"] > 1.0
    assert 0.0 < found[0]["clip_fraction"] < 1.0


def test_tokens_without_loss_have_no_influence_but_as_context(tiny: Any, folders: dict[str, Path]) -> None:
    """What stands after the last loss token changes nothing; neither do the ids that fill the padding."""
    batch = tiny.batch()
    engine = LocalEngine(folders["qwen3"], TrainerConfig())
    engine.begin(STILL, 2)
    before = engine.step(batch, ClippedLoss())
    padding = torch.arange(batch.tokens.shape[1])[None] >= batch.lengths[:, None]
    other = Batch(
        tokens=torch.where(padding, 7, batch.tokens),
        lengths=batch.lengths,
        mask=batch.mask,
        logprobs=batch.logprobs,
        advantages=batch.advantages,
    )
    assert engine.step(other, ClippedLoss()) == before


def test_bfloat16_computes_nearly_the_same_and_keeps_float32_weights(tiny: Any, folders: dict[str, Path]) -> None:
    results = []
    for dtype in ("float32", "bfloat16"):
        engine = make_engine(folders["llama"], TrainerConfig(dtype=dtype))  # type: ignore[arg-type]
        engine.begin(OptimizerConfig(), 1)
        results.append(engine.step(tiny.batch(), SftLoss())["loss"])
        assert {w.dtype for _, w in engine.weights()} == {torch.float32}
    assert results[0] != results[1]
    assert results[0] == pytest.approx(results[1], rel=1e-2)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(
    tiny: Any, folders: dict[str, Path], name: Any
) -> None:
    class Broken(SftLoss):
        def __call__(self, logprobs_N: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            return logprobs_N.sum() * float("inf"), {}

    engine = LocalEngine(folders["llama"], TrainerConfig())
    engine.begin(OptimizerConfig(name=name, weight_decay=0.1), 3)
    engine.step(tiny.batch(), SftLoss())
    before = {n: w.clone() for n, w in engine.weights()}
    broken: LossFn = Broken()
    assert engine.step(tiny.batch(), broken)["skipped"] == 1.0
    assert all(torch.equal(before[n], w) for n, w in engine.weights())
    after = engine.step(tiny.batch(), SftLoss())
    assert after["skipped"] == 0.0
    assert all(torch.isfinite(w).all() for _, w in engine.weights())
    assert not all(torch.equal(before[n], w) for n, w in engine.weights())


@pytest.mark.parametrize("kind", KINDS)
def test_a_critics_values_and_gradient_are_those_of_plain_torch(
    tiny: Any, folders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    """Each row alone: the value of token i is what the head says of the hidden state at i - 1."""
    batch, loss = tiny.batch(), ValueLoss(clip=0.1)
    critic = LocalEngine(folders[kind], TrainerConfig(token_budget=64), temperature=0.5).critic(folders[kind])
    assert not any(row.any() for row in critic.values(batch))
    critic.begin(OptimizerConfig(lr=1e-2, grad_clip=0.0), 3)
    rng = np.random.default_rng(1)
    old, returns = (torch.from_numpy(rng.random(batch.tokens.shape, np.float32)) for _ in range(2))
    judged = replace(batch, values=old, returns=returns)
    critic.step(judged, loss)
    critic.save(tmp_path)
    plain = AutoModelForTokenClassification.from_pretrained(tmp_path, dtype=torch.float32).eval()
    said = []
    for tokens, mask, row, n in zip(
        batch.tokens, batch.mask, critic.values(batch), batch.lengths.tolist(), strict=True
    ):
        want = torch.cat([torch.zeros(1), plain(tokens[None, :n]).logits[0, :-1, 0]])
        torch.testing.assert_close(row, torch.where(mask[:n], want.detach(), 0.0), atol=2e-6, rtol=0)
        said.append(want[mask[:n]])
    assert all(row.any() for row, mask in zip(critic.values(batch), batch.mask, strict=True) if mask.any())
    total = loss(torch.cat(said), judged)[0] / loss.count(judged)
    total.backward()
    norms = [p.grad.norm() for p in plain.parameters() if p.grad is not None]
    metrics = critic.step(judged, loss)
    assert metrics["loss"] == pytest.approx(total.item(), abs=1e-6)
    assert metrics["grad_norm"] == pytest.approx(torch.stack(norms).norm().item(), rel=1e-4)


def test_tied_weights_are_streamed_once(tiny: Any, folders: dict[str, Path]) -> None:
    names = [n for n, _ in LocalEngine(folders["qwen3"], TrainerConfig()).weights()]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    untied = [n for n, _ in LocalEngine(folders["llama"], TrainerConfig()).weights()]
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= set(untied)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_going_on_from_a_checkpoint_is_going_on_bit_for_bit(
    tiny: Any, folders: dict[str, Path], tmp_path: Path, name: Any
) -> None:
    optimizer = OptimizerConfig(name=name, lr=1e-2, weight_decay=0.01, warmup_steps=2, decay_steps=3)
    first = LocalEngine(folders["qwen3"], TrainerConfig())
    first.begin(optimizer, 6)
    for seed in range(3):
        first.step(tiny.batch(seed), SftLoss())
    first.save(tmp_path)
    second = LocalEngine(folders["qwen3"], TrainerConfig())
    second.begin(optimizer, 6)
    second.load(tmp_path)
    for seed in range(3, 6):
        assert first.step(tiny.batch(seed), SftLoss()) == second.step(tiny.batch(seed), SftLoss())
    theirs = dict(second.weights())
    assert all(torch.equal(w, theirs[n]) for n, w in first.weights())


def test_another_models_checkpoint_is_refused_and_changes_nothing(
    tiny: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    wider = tiny.write(tmp_path / "wider", "qwen3", intermediate_size=64)
    engine = LocalEngine(folders["qwen3"], TrainerConfig())
    before = {n: w.clone() for n, w in engine.weights()}
    with pytest.raises(UserError, match=r"another model.*Qwen3ForCausalLM.*mlp.*\(32, 64\) and \(32, 48\)"):
        engine.load_weights(wider)
    with pytest.raises(UserError, match=r"another model.*LlamaForCausalLM there and Qwen3ForCausalLM here"):
        engine.load_weights(folders["llama"])
    assert all(torch.equal(before[n], w) for n, w in engine.weights())


def test_another_optimizers_state_is_refused(tiny: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    engine = LocalEngine(folders["qwen3"], TrainerConfig())
    engine.begin(OptimizerConfig(name="muon"), 1)
    engine.step(tiny.batch(), SftLoss())
    engine.save(tmp_path)
    engine.begin(OptimizerConfig(name="adamw"), 1)
    with pytest.raises(UserError, match=r"'muon'.*'adamw'"):
        engine.load(tmp_path)


def test_what_cannot_be_trained_on_is_said(tiny: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model"):
        LocalEngine(tmp_path, TrainerConfig())
    with pytest.raises(UserError, match="temperature"):
        make_engine(folders["llama"], TrainerConfig(), temperature=0.0)
    with pytest.raises(UserError, match="Did you mean"):
        make_engine(folders["llama"], TrainerConfig(engine="locl"))
    engine = LocalEngine(folders["llama"], TrainerConfig())
    engine.begin(STILL, 1)
    batch = tiny.batch()
    with pytest.raises(ValueError, match="loss"):
        engine.step(Batch(tokens=batch.tokens, lengths=batch.lengths, mask=torch.zeros_like(batch.mask)), SftLoss())
    with pytest.raises(UserError, match="tokenizer"):
        engine.step(Batch(tokens=batch.tokens + tiny.V, lengths=batch.lengths, mask=batch.mask), SftLoss())
