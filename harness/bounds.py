"""The least and the most that a number among the settings may be, each by itself.

Knows paths and numbers; what settings mean together is in rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from .config import RunConfig

FAULTS = tuple(f"env.faults.{kind}" for kind in ("slow", "hang", "error", "exit", "garbage", "lost"))
OPTIMIZERS = ("trainer.optimizer", "trainer.critic", "warmup.optimizer")

AT_LEAST: dict[str, float] = {
    **dict.fromkeys(FAULTS, 0),
    "run.seed": 0,
    "run.steps": 0,
    "agent.observation_chars": 1,
    "agent.max_steps": 1,
    "model.slots": 1,
    "model.threads": 1,
    "model.context": 64,
    "model.engines": 1,
    "model.tensor_parallel": 1,
    "model.tiny.layers": 1,
    "model.tiny.width": 1,
    "model.tiny.heads": 1,
    "model.tiny.kv_heads": 1,
    "model.tiny.mlp": 1,
    "model.tiny.context": 64,
    "sampling.temperature": 0,
    "sampling.max_tokens": 1,
    "limits.call_retries": 0,
    "limits.episode_retries": 0,
    "limits.failures_in_row": 1,
    "explorer.groups": 1,
    "explorer.group_size": 1,
    "explorer.workers": 0,
    "data.batch": 1,
    "explorer.max_steps": 1,
    "algorithm.clip_low": 0,
    "algorithm.clip_high": 0,
    "algorithm.kl": 0,
    "algorithm.gamma": 0,
    "algorithm.lam": 0,
    "trainer.ranks": 1,
    "trainer.lora.rank": 0,
    "trainer.updates": 1,
    "trainer.token_budget": 1,
    "trainer.threads": 1,
    "trainer.checkpoint_every": 1,
    "trainer.keep": 1,
    "sync.interval": 1,
    "sync.offset": 0,
    "sync.staleness": 0,
    "explorer.oversample": 1,
    "buffer.bound": 1,
    "buffer.lease_seconds": 0,
    "buffer.reward_seconds": 0,
    "buffer.reuse": 1,
    "buffer.keep": 1,
    "warmup.passes": 1,
    "warmup.batch_tokens": 1,
    "eval.n": 1,
    "eval.repeats": 1,
    "eval.temperature": 0,
    "eval.price_in": 0,
    "eval.price_out": 0,
    **{
        f"{optimizer}.{name}": 0
        for optimizer in OPTIMIZERS
        for name in ("weight_decay", "warmup_steps", "decay_steps", "final", "grad_clip")
    },
}
POSITIVE = (
    "env.faults.slow_seconds",
    "sampling.top_p",
    "limits.episode_seconds",
    "limits.step_seconds",
    "limits.call_seconds",
    "algorithm.beta",
    "trainer.lora.alpha",
    "algorithm.value_clip",
    "sync.transfer_seconds",
    *(f"{optimizer}.lr" for optimizer in OPTIMIZERS),
)
AT_MOST: dict[str, float] = {
    "algorithm.gamma": 1,
    "algorithm.lam": 1,
    "sampling.top_p": 1,
    "warmup.noise": 1,
}


def value(config: RunConfig, path: str) -> Any:
    """The setting at a dotted path."""
    return reduce(getattr, path.split("."), config)


def out_of_bounds(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Every number that is too small or too large, as (path, what is wrong)."""
    for path, low in AT_LEAST.items():
        v = value(config, path)
        if v is not None and not v >= low:
            yield path, f"must be at least {low:g}, not {v!r}"
    for path in POSITIVE:
        if not (v := value(config, path)) > 0:
            yield path, f"must be greater than 0, not {v!r}"
    for path, high in AT_MOST.items():
        if not (v := value(config, path)) <= high:
            yield path, f"must be at most {high:g}, not {v!r}"
    for i, stage in enumerate(config.warmup.stages):
        if stage.episodes < 1:
            yield f"warmup.stages.{i}.episodes", f"must be at least 1, not {stage.episodes}; leave the stage out"
        if stage.turns < 0:
            yield f"warmup.stages.{i}.turns", f"must be at least 0, not {stage.turns}"
    if config.env.faults.total > 1:
        yield "env.faults", f"are shares of a world's answers and at most 1 together, not {config.env.faults.total:g}"
    if config.warmup.noise < 0:
        yield "warmup.noise", f"must be at least 0, not {config.warmup.noise!r}"
