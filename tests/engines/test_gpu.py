"""vLLM on a GPU that it shares with a trainer. `scripts/gpu_check.sh`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import ModelConfig
from harness.agents.models.base import Prompt, Sampling

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
