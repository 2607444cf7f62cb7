"""Text worlds of other packages, known to Gymnasium by id, behind our contract.

Knows Gymnasium's registry. Invariant: the task's seed is all that an episode starts from, since that is all that
Gymnasium promises.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from .base import AnyText, Task, TextEnv, WorldSpec
from .errors import UserError, one_line
from .tasks import ENDLESS, LazyTasks, check_choice

MOST_STEPS = 100
"""Actions of an episode where the id is registered without a limit."""
TEXT = (AnyText, gymnasium.spaces.Text)


@cache
def world_of_id(gym_id: str) -> type[TextEnv]:
    """The world registered as `ID` or, if a module must be imported for that, `module:ID`.

    A `TextEnv` is given as it is; any other text environment is wrapped: its tasks are seeds, and it is held in a
    worker process. Raises UserError where Gymnasium does not know the id, or the environment does not speak text.
    """
    module, _, bare = gym_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        spec = gymnasium.spec(bare)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"'{gym_id}' is no Gymnasium id: {error} Where a package registers it: package:ID.") from error
    ours = _own_class(spec)
    return ours if ours is not None else _wrapped(gym_id, spec)


def _own_class(spec: EnvSpec) -> type[TextEnv] | None:
    try:
        entry = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    except (ImportError, AttributeError) as error:
        raise UserError(f"the Gymnasium id '{spec.id}' cannot be loaded: {one_line(error)}.") from error
    plain = isinstance(entry, type) and issubclass(entry, TextEnv) and not spec.kwargs and not spec.additional_wrappers
    return entry if plain else None  # type: ignore[return-value]  # `plain` says so


def _wrapped(gym_id: str, spec: EnvSpec) -> type[TextEnv]:
    try:
        sample = gymnasium.make(gym_id, disable_env_checker=True)
    except Exception as error:  # another package's constructor may raise anything
        raise UserError(f"gymnasium.make('{gym_id}') fails: {one_line(error)}.") from error
    observations, actions = sample.observation_space, sample.action_space
    sample.close()
    for what, space in (("observations", observations), ("actions", actions)):
        if not isinstance(space, TEXT):
            raise UserError(f"'{gym_id}' cannot be played by a language model: its {what} are {space}, not text.")
    declared = WorldSpec(
        id=gym_id,
        description=f"Gymnasium's {gym_id}",
        max_steps=spec.max_episode_steps or MOST_STEPS,
        reward_range=(-math.inf, math.inf),
        success=1.0 if spec.reward_threshold is None else spec.reward_threshold,
    )

    class Foreign(TextEnv):
        """One environment of another package."""

        world = declared
        observation_space = observations  # type: ignore[assignment]
        action_space = actions  # type: ignore[assignment]

        def __init__(self) -> None:
            self._env: gymnasium.Env[str, str] = gymnasium.make(gym_id, disable_env_checker=True)

        @classmethod
        def tasks(cls, split: str, **options: Any) -> Sequence[Task]:
            check_choice(gym_id, split, cls.world.splits, options)
            lane = cls.world.splits.index(split)  # even seeds train, odd ones are held out
            return LazyTasks(ENDLESS // 2, lambda i: Task(env=gym_id, split=split, id=str(i), seed=2 * i + lane))

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            return self._env.reset(seed=seed)

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            observation, reward, terminated, truncated, info = self._env.step(action)
            return observation, float(reward), terminated, truncated, info

        def close(self) -> None:
            self._env.close()

    return Foreign
