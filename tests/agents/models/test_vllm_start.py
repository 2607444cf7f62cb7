"""What is said before vLLM is started, on machines with and without it."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import psutil
import pytest
import torch
from transformers import LlamaConfig

from harness.agents.config import ModelConfig
from harness.agents.models.vllm_start import GIB, arguments, check_installed, environment, why
from harness.envs.errors import UserError

SHAPE = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)

cpu_only = pytest.mark.skipif(torch.cuda.is_available(), reason="speaks of machines without a GPU")


@pytest.mark.parametrize(("found", "said"), [(None, "pip install vllm"), ("0.27.1", "0.27.1 is installed")])
def test_a_missing_or_other_vllm_is_said(found: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UserError, match=said):
        check_installed()


@cpu_only
def test_a_cpu_gets_a_cache_for_its_slots(tmp_path: Path) -> None:
    config = ModelConfig(engine="vllm", slots=4)
    made = arguments(tmp_path, config, SHAPE, 1000, 0)
    one = 2 * 2 * 2 * 16 * 4 * (1000 + 256)
    assert made["kv_cache_memory_bytes"] == 4 * one
    assert made["enforce_eager"]
    assert made["logprobs_mode"] == "processed_logprobs"
    assert made["max_num_batched_tokens"] >= 1000
    made = arguments(tmp_path, ModelConfig(engine="vllm", cache_gib=0.5), SHAPE, 1000, 0)
    assert made["kv_cache_memory_bytes"] == GIB // 2


@cpu_only
def test_only_a_gpu_has_memory_to_give_back(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.sleep needs a GPU"):
        arguments(tmp_path, ModelConfig(engine="vllm", sleep=True), SHAPE, 1000, 0)


@cpu_only
def test_too_little_memory_is_said_before_the_start(tmp_path: Path) -> None:
    free = psutil.virtual_memory().available / GIB
    with pytest.raises(UserError, match=r"too little memory.*model\.cache_gib"):
        arguments(tmp_path, ModelConfig(engine="vllm", cache_gib=free), SHAPE, 1000, 0)


def test_the_environment_is_vllms_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    monkeypatch.delenv("VLLM_LOGGING_CONFIG_PATH", raising=False)
    before = dict(os.environ)
    with environment(ModelConfig(engine="vllm"), tmp_path / "engine.log"):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "0", "what was set stays"
        written = json.loads(Path(os.environ["VLLM_LOGGING_CONFIG_PATH"]).read_text())
        assert written["handlers"]["file"]["filename"] == str(tmp_path / "engine.log")
    assert dict(os.environ) == before


def test_a_failed_start_shows_the_cause_and_the_logs_end(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert "no such thing" in why(log, RuntimeError("no such thing"))
    lines = [f"INFO line {i}" for i in range(40)]
    log.write_text("\n".join([*lines, "ERROR failed to start", "ValueError: no memory left", "INFO bye"]))
    told = why(log, RuntimeError("Engine core initialization failed"))
    assert told.startswith("ValueError: no memory left. Set model.cache_gib")
    assert "INFO bye" in told
    assert "line 3\n" not in told
