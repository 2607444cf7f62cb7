"""A low-rank change is trained by verl as by the local engine, by one rank or two.

Runs where verl is installed (`scripts/engines_env.sh` makes such an environment).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.agents.models.adapter import changed, changes
from harness.envs.errors import UserError
from harness.rl.algorithm.loss import ClippedLoss, LossFn, SftLoss
from harness.rl.config import LoraConfig, OptimizerConfig, TrainerConfig
from harness.rl.trainer.engine import TrainEngine, make_engine

from .test_trainers import CLOSE, grpo, sft

pytest.importorskip("verl", reason="needs verl: scripts/engines_env.sh makes an environment that has it")

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("ray_of_one_machine")]


def engine(folder: Path, ranks: int) -> TrainEngine:
    """ranks: 0 for the local engine."""
    lora = LoraConfig(rank=3)
    config = TrainerConfig(engine="verl" if ranks else "local", ranks=ranks or 1, token_budget=64, lora=lora)
    made = make_engine(folder, config, temperature=0.7)
    made.begin(OptimizerConfig(lr=1e-2, weight_decay=0.01, warmup_steps=2), 4)
    return made


def same(folder: Path, ours: TrainEngine, theirs: TrainEngine) -> None:
    """Every changed weight, to 1e-4 of the largest number in it."""
    base = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    got, want = (
        {name: changed(base[name], change) for name, change in changes(dict(engine.weights())).items()}
        for engine in (ours, theirs)
    )
    assert got.keys() == want.keys()
    assert len(got) == 2 * 7, "all linear layers"
    for name, weight in want.items():
        assert float((got[name] - weight).abs().max()) <= 1e-4 * float(weight.abs().max()), name


def close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for row, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(row, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("ranks", "kind"), [(1, "llama"), (2, "qwen3")])
def test_verl_trains_the_change_as_the_local_engine_does_and_goes_on_from_its_checkpoint(
    tiny: Any, folders: dict[str, Path], tmp_path: Path, ranks: int, kind: str
) -> None:
    verl, local = engine(folders[kind], ranks), engine(folders[kind], 0)
    same(folders[kind], verl, local)
    steps: list[tuple[Any, LossFn]] = [(grpo, ClippedLoss(kl=0.1)), (sft, SftLoss())]
    for make, loss in steps:
        assert verl.step(make(tiny), loss) == pytest.approx(local.step(make(tiny), loss), **CLOSE)
        same(folders[kind], verl, local)
    batch = grpo(tiny)
    beneath = verl.reference(folders[kind]), local.reference(folders[kind])
    for ours, theirs in (beneath, (verl, local)):
        close(ours.logprobs(batch), theirs.logprobs(batch))
    for writer, reader in ((verl, local), (local, verl)):
        folder = tmp_path / type(writer).__name__
        folder.mkdir()
        writer.save(folder)
        plain = make_engine(folder, TrainerConfig(token_budget=64), temperature=0.7)
        close(plain.logprobs(batch), writer.logprobs(batch))
        reader.load(folder)
        assert reader.step(sft(tiny), SftLoss()) == pytest.approx(writer.step(sft(tiny), SftLoss()), **CLOSE)
        same(folders[kind], reader, writer)
    with pytest.raises(UserError, match="holds no adapter"):
        verl.load_weights(folders[kind])
