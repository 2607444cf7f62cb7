"""Whether what a world gave is what a world may give.

Knows the contract's types and ranges; worlds themselves, no. Invariant: what comes out here is well-formed, and its
rewards are finite and add up to a number in the declared range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import WorldError

if TYPE_CHECKING:
    from .base import WorldSpec

Reset = tuple[str, dict[str, Any]]
"""Observation and info."""
Step = tuple[str, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""

SLACK = 1e-6
"""Rounding allowed on a sum of rewards before it counts as out of range."""


def checked_reset(result: Any) -> Reset:
    """Raises WorldError where a world's `reset` gave something else than text and a mapping."""
    match result:
        case (str() as observation, Mapping() as info):
            return observation, dict(info)
    raise WorldError(f"reset must give (text, info), got {_shape(result)}")


def checked_step(result: Any, total: float, spec: WorldSpec) -> Step:
    """Raises WorldError where a step is no 5-tuple, or where its reward is not finite or takes the episode's sum
    (`total` so far) out of the declared range."""
    try:
        observation, reward, terminated, truncated, info = result
        reward = float(reward)
    except (TypeError, ValueError):
        raise WorldError(f"step must give (text, reward, terminated, truncated, info), got {_shape(result)}") from None
    if not isinstance(observation, str) or not isinstance(info, Mapping):
        raise WorldError(f"step must give (text, reward, terminated, truncated, info), got {_shape(result)}")
    low, high = spec.reward_range
    if not math.isfinite(reward):
        raise WorldError(f"reward {reward} is not finite")
    if not low - SLACK <= total + reward <= high + SLACK:
        raise WorldError(f"sum of rewards {total + reward:g} is outside of the declared range [{low:g}, {high:g}]")
    return observation, reward, bool(terminated), bool(truncated), dict(info)


def _shape(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"({', '.join(type(part).__name__ for part in result)})"
    return type(result).__name__
