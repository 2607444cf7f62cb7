"""The client of a vLLM server, against a stand-in; `tests/engines/test_vllm.py` has the real one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from harness.agents.config import ModelConfig, TinyConfig
from harness.agents.models.base import Sampling
from harness.agents.models.tiny import make_tiny
from harness.agents.models.vllm_server import VllmServer
from harness.agents.types import Completion
from harness.envs.echo import Echo

from .test_openai import PROMPT, Server, server, tokens

__all__ = ["server"]


def test_an_answer_across_an_update_has_the_oldest_version(server: Server, tmp_path: Path) -> None:
    asked, go = threading.Event(), threading.Event()

    def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        match path.partition("?")[0]:
            case "/v1/models":
                return 200, {"data": [{"id": "m", "max_model_len": 64}]}
            case "/server_info":
                return 200, {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}}
            case "/v1/completions":
                asked.set()
                assert go.wait(60)
                return 200, tokens([5, 6], "x")
            case "/collective_rpc":
                return 200, {"results": [""]}
        return 200, {}

    server.reply = reply
    make_tiny(tmp_path, TinyConfig(layers=1, width=16, heads=1, kv_heads=1, mlp=16, context=64), Echo.texts(), seed=0)
    weights = list(AutoModelForCausalLM.from_pretrained(tmp_path).named_parameters())

    async def scene() -> list[Completion]:
        model = VllmServer(server.url, tmp_path, ModelConfig(engine="vllm-server", exchange=str(tmp_path)))
        await model.update(weights, 3)
        answers = []
        for version in (4, 5):
            asked.clear()
            go.clear()
            answering = asyncio.create_task(model.complete(PROMPT, Sampling(), session="s"))
            await asyncio.to_thread(asked.wait, 60)
            await model.update(weights, version)
            go.set()
            answers.append(await answering)
        answers.append(await model.complete(PROMPT, Sampling(), session="s"))
        await model.close()
        return answers

    assert [answer.version for answer in asyncio.run(scene())] == [3, 4, 5]
