"""The `agent`, `model`, `sampling` and `limits` sections of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """Who plays."""

    name: str = "react"
    """A name from agents/registry.py."""
    prompt: str | None = None
    """Prompt template, a name from agents/prompts.py; None takes the agent's own."""
    thinking: bool | None = None
    """Switches the thinking of models whose chat template has a switch (enable_thinking); None leaves it alone."""
    max_steps: int | None = None
    """Actions an episode may take; None takes the world's own limit."""
    observation_chars: int = 4000
    """Longer observations are cut here, with a mark."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyConfig:
    """Shape of a model made from scratch when `model.path` is not given (a stock transformers architecture)."""

    layers: int = 3
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 384
    context: int = 1024
    rope_theta: float = 10000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Which policy, and what serves it."""

    path: str | None = None
    """Folder or hub name of a causal LM in transformers format; None makes the one described in `tiny`."""
    tiny: TinyConfig = field(default_factory=TinyConfig)
    engine: str = "local"
    """What samples: a name from agents/models/registry.py."""
    dtype: str = "float32"
    """float32 or bfloat16, of the sampling engine."""
    slots: int = 64
    """Sequences that one engine decodes side by side."""
    threads: int = 1
    """CPU threads of one engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How training episodes are sampled."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 64
    """Longest answer of one turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsConfig:
    """Seconds and tries before something is given up, each counted apart in the metrics."""

    episode_seconds: float = 300.0
    step_seconds: float = 30.0
    """One reset or step of the world."""
    call_seconds: float = 120.0
    """One completion of the model."""
    call_retries: int = 2
    """Further tries of a failed completion, with growing pauses."""
    episode_retries: int = 1
    """Further tries of an episode that the world or the model broke."""
    failures_in_row: int = 20
    """So many identical failures one after another stop the run, and name the cause."""
