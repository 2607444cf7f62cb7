"""The table of agents, and `make`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from harness.envs.errors import UnknownName

if TYPE_CHECKING:
    from harness.envs.base import WorldSpec

    from .base import Agent
    from .config import AgentConfig

AGENTS: Mapping[str, str] = {
    "react": "harness.agents.react:ReactAgent",
    "tools": "harness.agents.tools:ToolsAgent",
    "single": "harness.agents.single:SingleAgent",
}
"""Name -> `module:factory`, called with (AgentConfig, WorldSpec)."""


def make(config: AgentConfig, world: WorldSpec) -> Agent:
    """An agent for one episode at a time in this world. Raises UnknownName."""
    if config.name not in AGENTS:
        raise UnknownName("agent", config.name, AGENTS)
    module, _, name = AGENTS[config.name].partition(":")
    factory: Callable[[AgentConfig, WorldSpec], Agent] = getattr(import_module(module), name)
    return factory(config, world)
