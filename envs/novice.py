"""A player that knows how actions look, and nothing else: what is drawn where there is no expert.

Knows the contract alone. Invariant: its actions depend on its seed and on what it was shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from .errors import UserError, one_line

if TYPE_CHECKING:
    from .base import TextEnv

EPISODES = 64
"""Episodes that are listened to for a vocabulary."""


class Novice:
    """Takes one of the admissible actions; calls a tool where there are tools; else samples the action space.

    An `Expert` in form: `act` gives an empty thought and the action.
    """

    def __init__(self, world: type[TextEnv], seed: int | str = 0) -> None:
        self._space = world.action_space
        self._random = Random(seed)

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        if actions := info.get("admissible"):
            return "", self._random.choice(sorted(actions))
        if tools := info.get("tools"):
            return "", self._call(self._random.choice(tools))
        examples: Sequence[str] = getattr(self._space, "examples", ())
        return "", self._random.choice(examples) if examples else self._letters()

    def _call(self, tool: Mapping[str, Any]) -> str:
        schema = tool.get("parameters", {})
        needed = set(schema.get("required", ()))
        properties = schema.get("properties", {}).items()
        arguments = {name: self._value(kind) for name, kind in properties if name in needed}
        return json.dumps({"name": tool["name"], "arguments": arguments})

    def _value(self, schema: Mapping[str, Any]) -> Any:
        """Something that a JSON Schema allows, as far as its type says."""
        if choices := schema.get("enum"):
            return self._random.choice(choices)
        match schema.get("type", "string"):
            case "integer" | "number":
                return self._random.randint(1, 9)
            case "boolean":
                return self._random.random() < 0.5
            case "array":
                return [self._value(schema.get("items", {}))]
            case "object":
                return {}
            case _:
                return self._letters()

    def _letters(self) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=self._random.randint(1, 8)))


def overheard(world: type[TextEnv]) -> list[str]:
    """Texts that are said in a few training episodes of the expert, or of a novice where there is none.

    Raises UserError where the world breaks at it.
    """
    texts = [world.world.instructions, *getattr(world.action_space, "examples", ())]
    tasks = world.tasks("train" if "train" in world.world.splits else world.world.splits[0])
    game = world()
    try:
        for i in range(min(EPISODES, len(tasks))):
            observation, info = game.reset(seed=tasks[i].seed, options={"task": tasks[i]})
            player = game.expert() or Novice(world, i)
            texts.append(observation)
            for _ in range(world.world.max_steps):
                thought, action = player.act(observation, info)
                observation, _, terminated, truncated, info = game.step(action)
                texts += [thought, action, observation]
                if terminated or truncated:
                    break
    except UserError:
        raise
    except Exception as error:  # the world's own code: whatever it raises is for its author to mend
        raise UserError(
            f"the world '{world.world.id}' broke in a practice episode: {one_line(error)}. Try `harness env check`."
        ) from error
    finally:
        game.close()
    return texts
