"""Training a low-rank change alone: what it touches, what travels, and that it goes on where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import ModelConfig
from harness.agents.models.base import Prompt, Sampling
from harness.agents.models.local import LocalModel
from harness.envs.errors import UserError
from harness.rl.algorithm.loss import ClippedLoss, SftLoss
from harness.rl.config import LoraConfig, OptimizerConfig, TrainerConfig
from harness.rl.experience import Example
from harness.rl.trainer.batch import Batch, from_examples
from harness.rl.trainer.local import LocalEngine

LORA = LoraConfig(rank=4)
ADAM = OptimizerConfig(lr=1e-2, weight_decay=0.01, warmup_steps=2)
KINDS = ("llama", "qwen3", "gpt2")


@pytest.fixture(scope="module")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: tiny.write(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def engine(folder: Path, lora: LoraConfig = LORA, steps: int = 10, **settings: Any) -> LocalEngine:
    made = LocalEngine(folder, TrainerConfig(token_budget=64, lora=lora, **settings))
    made.begin(ADAM, steps)
    return made


def logprobs(folder: Path, batch: Batch) -> list[torch.Tensor]:
    return LocalEngine(folder, TrainerConfig(token_budget=64)).logprobs(batch)


def close(ours: list[torch.Tensor], theirs: list[torch.Tensor], atol: float = 1e-5) -> bool:
    return all(torch.allclose(a, b, atol=atol, rtol=0) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [SftLoss(), ClippedLoss()])
def test_it_learns_and_the_weights_beneath_stay(tiny: Any, folders: dict[str, Path], kind: str, loss: Any) -> None:
    batch, made = tiny.batch(), engine(folders[kind])
    before = logprobs(folders[kind], batch)
    assert close(made.logprobs(batch), before, 0.0), "an untrained change is none"
    losses = [made.step(batch, loss)["loss"] for _ in range(8)]
    assert losses[-1] < losses[0]
    assert not close(made.logprobs(batch), before, 1e-3)
    base = AutoModelForCausalLM.from_pretrained(folders[kind]).state_dict()
    own = {name.replace(".base_layer.", "."): w for name, w in made._model.state_dict().items()}
    assert all(torch.equal(own[name], w) for name, w in base.items())
    assert all(p.requires_grad == (".lora_" in name) for name, p in made._model.named_parameters())


@pytest.mark.parametrize(("setting", "rel"), [({"gradient_checkpointing": True}, 1e-5), ({"dtype": "bfloat16"}, 5e-2)])
def test_other_ways_to_compute_give_the_same_steps(
    tiny: Any, folders: dict[str, Path], setting: dict[str, Any], rel: float
) -> None:
    plain, other = engine(folders["llama"]), engine(folders["llama"], **setting)
    for _ in range(3):
        want, got = (e.step(tiny.batch(), ClippedLoss()) for e in (plain, other))
        assert (got["loss"], got["grad_norm"]) == pytest.approx((want["loss"], want["grad_norm"]), rel=rel)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_a_model_like_any_other_and_peft_reads_the_change(
    tiny: Any, folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    from peft import PeftModel

    batch, made = tiny.batch(), engine(folders[kind])
    for _ in range(3):
        made.step(batch, SftLoss())
    made.save(tmp_path)
    assert close(logprobs(tmp_path, batch), made.logprobs(batch))
    base = AutoModelForCausalLM.from_pretrained(folders[kind])
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload().state_dict()
    ours = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-6, rtol=0)
    assert sum(p.numel() for p in torch.load(tmp_path / "optimizer.pt")["parts"][0][0].values()) < 1000


def test_going_on_from_a_checkpoint_is_going_on_bit_for_bit(
    tiny: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    first, second = engine(folders["qwen3"]), engine(folders["qwen3"])
    for seed in range(3):
        first.step(tiny.batch(seed), SftLoss())
    first.save(tmp_path)
    second.load(tmp_path)
    for seed in range(3, 6):
        assert first.step(tiny.batch(seed), SftLoss()) == second.step(tiny.batch(seed), SftLoss())
    theirs = dict(second.weights())
    assert all(torch.equal(w, theirs[n]) for n, w in first.weights())


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_change_travels_and_a_sampler_makes_the_same_of_it(
    tiny: Any, folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    made = engine(folders[kind])
    sampler = LocalModel.from_folder(folders[kind], ModelConfig(dtype="float32", slots=4), "cpu")
    prompt = list(range(3, 23))

    async def scene() -> None:
        for version in range(1, 4):
            made.step(tiny.batch(version), SftLoss())
            weights = dict(made.weights())
            assert all(name.endswith((".lora_A", ".lora_B")) for name in weights)
            await sampler.update(weights.items(), version)
            answer = await sampler.complete(
                Prompt(messages=(), tokens=tuple(prompt)), Sampling(max_tokens=30, seed=version), session="s"
            )
            mine = made.logprobs(experience(prompt, answer.tokens))[0][len(prompt) :]
            torch.testing.assert_close(mine, torch.tensor(answer.logprobs), atol=1e-5, rtol=0)

    asyncio.run(scene())
    made.save(tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(weight, saved[name]) for name, weight in sampler._weights._state.items())


def experience(prompt: list[int], answer: tuple[int, ...]) -> Batch:
    import numpy as np

    tokens = np.array([*prompt, *answer], np.int32)
    return from_examples([Example(tokens=tokens, mask=np.arange(len(tokens)) >= len(prompt))])


def test_the_reference_is_the_model_without_the_change_or_the_one_that_is_named(
    tiny: Any, folders: dict[str, Path], tmp_path: Path
) -> None:
    batch, made = tiny.batch(), engine(folders["llama"])
    before = made.logprobs(batch)
    made.step(batch, SftLoss())
    made.save(tmp_path)
    warm = made.logprobs(batch)
    made.step(batch, SftLoss())
    after = made.logprobs(batch)
    assert close(made.reference(folders["llama"]).logprobs(batch), before, 0.0)
    assert close(made.reference(tmp_path).logprobs(batch), warm)
    assert close(made.logprobs(batch), after, 0.0), "asking changes nothing"
    assert made.step(batch, SftLoss())["grad_norm"] > 0


def test_targets_are_ends_of_names(folders: dict[str, Path]) -> None:
    made = engine(folders["qwen3"], LoraConfig(rank=2, targets=("q_proj", "1.mlp.down_proj")))
    changed = {name.rsplit(".", 2)[0] for name, _ in made.weights()}
    assert changed == {
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.mlp.down_proj",
    }
    with pytest.raises(UserError, match=r"q_proy.*Did you mean 'q_proj'"):
        engine(folders["qwen3"], LoraConfig(rank=2, targets=("q_proy",)))
    with pytest.raises(UserError, match="lm_head"):
        engine(folders["llama"], LoraConfig(rank=2, targets=("lm_head",)))


def test_what_is_of_another_change_is_refused(tiny: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    made = engine(folders["qwen3"])
    made.step(tiny.batch(), SftLoss())
    made.save(tmp_path)
    before = {n: w.clone() for n, w in made.weights()}
    with pytest.raises(UserError, match="holds no adapter"):
        made.load_weights(folders["qwen3"])
    for other in (LoraConfig(rank=2), LoraConfig(rank=4, targets=("q_proj",))):
        with pytest.raises(UserError, match=r"another trainer\.lora"):
            engine(folders["qwen3"], other).load(tmp_path)
    with pytest.raises(UserError, match=r"another trainer\.lora"):
        engine(folders["qwen3"], LoraConfig()).load(tmp_path)
    assert all(torch.equal(before[n], w) for n, w in made.weights())
