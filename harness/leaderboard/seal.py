"""An attempt without what its world said, for tasks whose texts are not ours to copy.

The agent's words and ids, and every reward, stay as they are. Each text of the world becomes a digest, and each id of
a prompt 0, so that lengths still count; the digest of a turn is over the ids of its prompt too. Whoever has the data
makes the texts again from the answers (replay.py), and compares digests. Knows trajectories, no world. Invariant:
sealing twice is sealing once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harness.agents.types import Trajectory, Turn
    from harness.envs.base import Task

_MARK: Final = "sha256:"


def sealed(trajectory: Trajectory) -> Trajectory:
    """The same attempt with digests in place of task data, opening and observations, and zeros for prompts' ids."""
    if is_sealed(trajectory):
        return trajectory
    return replace(
        trajectory,
        task=sealed_task(trajectory.task),
        opening=_digest(trajectory.opening),
        turns=tuple(map(_sealed_turn, trajectory.turns)),
    )


def sealed_task(task: Task) -> Task:
    """The task with a digest in place of its data."""
    return replace(task, data={"sealed": _digest(task.data)})


def is_sealed(trajectory: Trajectory) -> bool:
    """Whether digests stand for what the world said."""
    return trajectory.task.data.keys() == {"sealed"}


def plain(value: Any) -> Any:
    """As JSON gives it back: tuples are lists, every mapping is a dict."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _sealed_turn(turn: Turn) -> Turn:
    said = _digest([turn.prompt_tokens, turn.observation])
    return replace(turn, prompt_tokens=(0,) * len(turn.prompt_tokens), observation=said)


def _digest(value: Any) -> str:
    return _MARK + hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()
