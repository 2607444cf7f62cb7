"""The `agent`, `model`, `sampling` and `limits` sections of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


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
    context: int | None = None
    """Most tokens of prompt and answer together; None takes all that the model can."""
    threads: int = 1
    """CPU threads of one engine."""
    on_update: Literal["keep", "restart"] = "keep"
    """What becomes of answers under way when new weights come: keep goes on from the token they are at, restart samples
    them anew. Matters where weights come in the middle of episodes (`sync.partial`)."""
    engines: int = 1
    """vllm: engines of one explorer, behind a router that keeps an episode with its engine."""
    tensor_parallel: int = 1
    """vllm: devices that one engine is spread over."""
    cache_gib: float | None = None
    """vllm: GiB of keys and values of one engine; None takes what `slots` full contexts need on a CPU, at most 4, and
    what the device has left on a GPU."""
    sleep: bool = False
    """vllm on a GPU that it shares with the trainer: between two batches the engine gives its memory there back, while
    the weights wait in the host's."""
    urls: tuple[str, ...] = ()
    """vllm-server: addresses of running servers, such as http://127.0.0.1:8000."""
    exchange: str | None = None
    """vllm-server: folder in which weights are handed over, seen by explorer and servers under the same path; None
    takes this machine's shared memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How training episodes are sampled."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 64
    """Longest answer of one turn."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, beside the model's own end tokens."""


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
