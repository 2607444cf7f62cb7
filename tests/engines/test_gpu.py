"""vLLM on a GPU that it shares with a trainer, and on one beside it. `scripts/gpu_check.sh`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import ModelConfig
from harness.agents.models.base import Prompt, Sampling

from ..rl.sync.near import Near

pytest.importorskip("vllm", reason="needs vLLM")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_an_engine_that_sleeps_gives_its_memory_back(tiny: Any, tmp_path: Path) -> None:
    from harness.agents.models.vllm import VllmModel

    folder = tiny.write(tmp_path, "qwen3")
    model = VllmModel(folder, ModelConfig(engine="vllm", slots=8, cache_gib=4, sleep=True))
    prompt, greedy = Prompt(messages=(), tokens=tuple(range(3, 23))), Sampling(temperature=0.0, max_tokens=12)

    async def work() -> None:
        first = await model.complete(prompt, greedy, session="a")
        awake = torch.cuda.mem_get_info()[0]
        await model.sleep()
        assert torch.cuda.mem_get_info()[0] - awake > 3 * 2**30
        assert (await model.complete(prompt, greedy, session="b")).tokens == first.tokens
        await model.sleep()
        own = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        await model.update(own.named_parameters(), 1)
        again = await model.complete(prompt, greedy, session="c")
        assert (again.tokens, again.version) == (first.tokens, 1), "new weights wake it too"
        await model.close()

    asyncio.run(work())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each of two processes")
def test_an_engine_pulls_weights_over_nccl(tiny: Any, tmp_path: Path) -> None:
    from harness.agents.models.vllm import VllmModel

    folder = tiny.write(tmp_path, "qwen3")
    trained = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    prompt = tuple(range(3, 23))
    # The second of two engines lives on the second GPU; the trainer, this process, is on the first.
    model, trainer = VllmModel(folder, ModelConfig(engine="vllm", slots=8, cache_gib=1, engines=2), index=1), Near()

    async def work() -> None:
        trainer.outlets.keep(1, trained.named_parameters(), 1, "cuda")
        assert await model.pull(trainer.link(device="cuda"), 1) == 1
        greedy = Sampling(temperature=0.0, max_tokens=12)
        answer = await model.complete(Prompt(messages=(), tokens=prompt), greedy, session="a")
        await model.close()
        assert answer.version == 1
        with torch.inference_mode():
            logits = trained(torch.tensor([[*prompt, *answer.tokens]])).logits[0, len(prompt) - 1 : -1]
        truth = logits.log_softmax(-1).gather(1, torch.tensor([answer.tokens]).T)[:, 0]
        assert torch.allclose(truth, torch.tensor(answer.logprobs), atol=1e-2)

    asyncio.run(work())
