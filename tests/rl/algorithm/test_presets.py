"""The table of algorithms: each entry makes what it says, and settings it would ignore are refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.envs.errors import UserError
from harness.rl.algorithm.loss import ClippedLoss, DpoLoss, ReinforceLoss, SftLoss, ValueLoss
from harness.rl.algorithm.presets import PRESETS, check, estimator, loss
from harness.rl.config import AlgorithmConfig, ExplorerConfig, OptimizerConfig, SyncConfig, TrainerConfig


def refused(algorithm: AlgorithmConfig, *, given: tuple[str, ...] = (), **sections: Any) -> dict[str, str]:
    found = check(
        algorithm,
        sections.get("explorer", ExplorerConfig()),
        sections.get("trainer", TrainerConfig()),
        sections.get("sync", SyncConfig()),
        given=(lambda path, because: path in given) if given else None,
    )
    assert all(len(why) > 20 for _, why in found)
    return dict(found)


def test_defaults_of_every_algorithm_for_rl_are_accepted() -> None:
    for name in PRESETS:
        if name not in ("sft", "dpo"):
            assert refused(AlgorithmConfig(name=name)) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"name": "grpo"}, [0.57735, -1.1547, 0.57735]),
        ({"name": "grpo", "normalize_std": False}, [1 / 3, -2 / 3, 1 / 3]),
        ({"name": "dr_grpo"}, [1 / 3, -2 / 3, 1 / 3]),
        ({"name": "rloo"}, [0.5, -1.0, 0.5]),
        ({"name": "reinforce"}, [1.0, 0.0, 1.0]),
        ({"name": "ppo"}, [1.0, 0.0, 1.0]),
    ],
)
def test_advantages_of_each_algorithm(settings: dict[str, Any], expected: list[float]) -> None:
    assert estimator(AlgorithmConfig(**settings))(np.array([1.0, 0.0, 1.0])) == pytest.approx(expected, abs=1e-5)


def test_losses_carry_the_settings() -> None:
    settings: dict[str, Any] = {"clip_low": 0.1, "clip_high": 0.5, "kl": 0.02, "aggregate": "seq-mean-token-mean"}
    for name in ("grpo", "dr_grpo", "rloo", "ppo"):
        assert loss(AlgorithmConfig(name=name, **settings)) == ClippedLoss(**settings)
    assert loss(AlgorithmConfig(name="dpo", beta=0.3)) == DpoLoss(beta=0.3)
    assert loss(AlgorithmConfig(name="reinforce")) == ReinforceLoss()
    assert loss(AlgorithmConfig(name="sft")) == SftLoss()


def test_an_unknown_name_gets_a_suggestion() -> None:
    assert "Did you mean 'grpo'" in refused(AlgorithmConfig(name="grp0"))["algorithm.name"]
    with pytest.raises(UserError, match="Did you mean 'rloo'"):
        loss(AlgorithmConfig(name="rlo"))


def test_group_of_one_with_a_group_baseline_is_refused() -> None:
    one = ExplorerConfig(group_size=1)
    for name, preset in PRESETS.items():
        found = refused(AlgorithmConfig(name=name), explorer=one)
        assert ("explorer.group_size" in found) == preset.needs_group
    assert "reinforce" in refused(AlgorithmConfig(name="grpo"), explorer=one)["explorer.group_size"]


def test_settings_that_would_be_ignored_are_refused() -> None:
    assert list(refused(AlgorithmConfig(name="reinforce", kl=0.1))) == ["algorithm.kl"]
    assert list(refused(AlgorithmConfig(name="reinforce", clip_low=0.1))) == ["algorithm.clip_low"]
    assert list(refused(AlgorithmConfig(name="reinforce", clip_high=0.1))) == ["algorithm.clip_high"]
    assert list(refused(AlgorithmConfig(name="dr_grpo", aggregate="seq-mean-token-mean"))) == ["algorithm.aggregate"]
    assert list(refused(AlgorithmConfig(name="grpo", beta=0.2))) == ["algorithm.beta"]
    assert list(refused(AlgorithmConfig(name="reinforce", normalize_std=True), given=("algorithm.normalize_std",))) == [
        "algorithm.normalize_std"
    ]
    for name in ("grpo", "dr_grpo", "rloo"):
        assert refused(AlgorithmConfig(name=name, kl=0.1, clip_low=0.1, clip_high=0.9)) == {}


def test_a_critic_comes_with_its_settings_and_without_one_they_are_refused() -> None:
    ppo = AlgorithmConfig(name="ppo", gamma=0.9, lam=0.9, value_clip=0.1, kl=0.1)
    made = PRESETS["ppo"].critic
    assert made is not None
    assert made(ppo) == ValueLoss(clip=0.1)
    critic = TrainerConfig(critic=OptimizerConfig(lr=0.1))
    assert refused(ppo, trainer=critic, explorer=ExplorerConfig(group_size=1)) == {}
    for name in ("grpo", "reinforce"):
        settings: dict[str, Any] = {"gamma": 0.9, "lam": 0.9, "value_clip": 0.1}
        found = refused(AlgorithmConfig(name=name, **settings), trainer=critic)
        assert set(found) == {*(f"algorithm.{setting}" for setting in settings), "trainer.critic"}
        assert "ppo" in found["trainer.critic"]
    purpose = ("algorithm.normalize_std", "trainer.critic")
    assert list(refused(AlgorithmConfig(name="ppo"), given=purpose)) == ["algorithm.normalize_std"]
    assert "trainer.critic" in refused(AlgorithmConfig(name="grpo"), given=purpose)


def test_what_was_written_on_purpose_is_refused_though_it_is_the_default() -> None:
    purpose = ("algorithm.normalize_std", "algorithm.clip_low")
    assert list(refused(AlgorithmConfig(name="dr_grpo"), given=purpose)) == ["algorithm.normalize_std"]
    assert refused(AlgorithmConfig(name="dr_grpo", normalize_std=False), given=purpose) == {}
    assert set(refused(AlgorithmConfig(name="reinforce"), given=purpose)) == set(purpose)
    assert refused(AlgorithmConfig(name="grpo"), given=purpose) == {}
    # And what was not is left alone: kl of a recipe under another algorithm of the command line.
    assert refused(AlgorithmConfig(name="reinforce", kl=0.1), given=("trainer.lr",)) == {}


def test_reinforce_is_refused_off_policy() -> None:
    late: dict[str, Any] = {"trainer": TrainerConfig(updates=2), "sync": SyncConfig(interval=2, offset=1)}
    expected = {"trainer.updates", "sync.interval", "sync.offset"}
    assert set(refused(AlgorithmConfig(name="reinforce"), **late)) == expected
    assert refused(AlgorithmConfig(name="grpo"), **late) == {}


def test_imitation_is_no_reinforcement_learning_and_has_no_advantages() -> None:
    assert "demonstrations" in refused(AlgorithmConfig(name="sft"))["algorithm.name"]
    assert "pairs" in refused(AlgorithmConfig(name="dpo"))["algorithm.name"]
    with pytest.raises(ValueError, match="no rewards"):
        estimator(AlgorithmConfig(name="sft"))


def test_a_low_clip_that_holds_nothing_is_refused() -> None:
    assert "algorithm.clip_low" in refused(AlgorithmConfig(clip_low=1.5))


MINE = """
from dataclasses import dataclass
from harness.rl.algorithm.advantage import centred
from harness.rl.algorithm.presets import Preset

@dataclass(frozen=True)
class Weighted:
    clip_high: float
    def count(self, batch):
        return int(batch.mask.sum())
    def __call__(self, logprobs_N, batch):
        return -(logprobs_N * batch.advantages[batch.mask]).sum() * self.clip_high, {}

paper = Preset(
    summary="mine", advantage=centred, loss=lambda c: Weighted(c.clip_high), settings=("clip_high",), needs_group=True
)
"""


def test_a_users_own_algorithm_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_test_presets.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    name = "mine_of_test_presets:paper"
    made: Any = loss(AlgorithmConfig(name=name, clip_high=0.5))
    assert made.clip_high == 0.5
    assert estimator(AlgorithmConfig(name=name))(np.array([1.0, 0.0])).tolist() == [0.5, -0.5]
    assert refused(AlgorithmConfig(name=name)) == {}
    assert list(refused(AlgorithmConfig(name=name, kl=0.1, clip_high=0.5, clip_low=0.1))) == [
        "algorithm.clip_low",
        "algorithm.kl",
    ]
    assert "explorer.group_size" in refused(AlgorithmConfig(name=name), explorer=ExplorerConfig(group_size=1))
    assert "has nothing named 'pap'" in refused(AlgorithmConfig(name=name[:-2]))["algorithm.name"]
    (tmp_path / "broken_of_test_presets.py").write_text("1 / 0")
    for wrong, why in (("broken_of_test_presets:x", "ZeroDivisionError"), ("nowhere_of_test:x", "ModuleNotFoundError")):
        assert why in refused(AlgorithmConfig(name=wrong))["algorithm.name"]


def test_checking_needs_no_torch() -> None:
    code = "import sys, harness.rl.algorithm.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
