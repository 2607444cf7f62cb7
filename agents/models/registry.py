"""Which engine samples: a table, and the one function that makes a model from the `model` section."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from harness.envs.errors import UnknownName

if TYPE_CHECKING:
    from ..config import ModelConfig
    from .base import Policy

ENGINES: Mapping[str, str] = {
    "local": "harness.agents.models.local:LocalModel",
    "vllm": "harness.agents.models.vllm:VllmModel",
    "vllm-server": "harness.agents.models.vllm_server:VllmServer",
}
"""Name -> "module:Class" with a `from_folder(path, config)`."""


def make_model(config: ModelConfig, path: Path | str) -> Policy:
    """The policy in the folder (or of the hub name) `path`, served by `config.engine`, on `config.threads` threads.

    Raises UserError on an unknown engine, and where nothing usable lies in `path`.
    """
    try:
        module, _, name = ENGINES[config.engine].partition(":")
    except KeyError:
        raise UnknownName("model.engine", config.engine, ENGINES) from None
    import torch  # late: this table is read where torch is not wanted

    torch.set_num_threads(config.threads)
    engine: type[Policy] = getattr(import_module(module), name)
    return engine.from_folder(path, config)  # type: ignore[attr-defined,no-any-return]  # engines' way of being made
