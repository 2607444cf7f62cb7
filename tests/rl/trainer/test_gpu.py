"""The local engine on a GPU: the CPU's results, and memory that the token budget bounds. `scripts/gpu_check.sh`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.rl.algorithm.loss import ClippedLoss
from harness.rl.config import OptimizerConfig, TrainerConfig
from harness.rl.trainer.engine import make_engine
from harness.rl.trainer.local import LocalEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    made: Path = tiny.write(tmp_path / "model")
    return made


def test_steps_and_logprobs_are_the_cpus(tiny: Any, folder: Path) -> None:
    gpu, cpu = (LocalEngine(folder, TrainerConfig(token_budget=64), device=d) for d in ("cuda", "cpu"))
    for engine in (gpu, cpu):
        engine.begin(OptimizerConfig(lr=1e-3), 3)
    for seed in range(3):
        batch = tiny.batch(seed)
        for row, want in zip(gpu.logprobs(batch), cpu.logprobs(batch), strict=True):
            torch.testing.assert_close(row, want, atol=1e-4, rtol=0)
        assert gpu.step(batch, ClippedLoss()) == pytest.approx(cpu.step(batch, ClippedLoss()), rel=1e-3, abs=1e-5)


def test_bfloat16_learns_and_keeps_float32_weights(tiny: Any, folder: Path) -> None:
    engine = LocalEngine(folder, TrainerConfig(dtype="bfloat16"))
    engine.begin(OptimizerConfig(lr=1e-3), 10)
    losses = [engine.step(tiny.batch(), ClippedLoss())["loss"] for _ in range(10)]
    assert losses[-1] < losses[0]
    assert {w.dtype for _, w in engine.weights()} == {torch.float32}


def test_memory_is_bounded_by_the_token_budget(tiny: Any, folder: Path) -> None:
    engine = LocalEngine(folder, TrainerConfig(token_budget=2048))
    engine.begin(OptimizerConfig(), 4)
    peaks = []
    for rows in (64, 512):
        batch = tiny.batch(lengths=(100,) * rows)
        torch.cuda.reset_peak_memory_stats()
        engine.step(batch, ClippedLoss())
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 1.2 * peaks[0]


def test_verl_on_one_gpu_takes_the_local_engines_step(tiny: Any, folder: Path) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    verl, local = (make_engine(folder, TrainerConfig(engine=e, token_budget=64)) for e in ("verl", "local"))
    for engine in (verl, local):
        engine.begin(OptimizerConfig(lr=1e-3), 2)
    for seed in range(2):
        batch = tiny.batch(seed)
        assert verl.step(batch, ClippedLoss()) == pytest.approx(local.step(batch, ClippedLoss()), rel=1e-3, abs=1e-5)
