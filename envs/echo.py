"""The smallest real world: repeat the word that is shown. A model for world files, and a stand-in in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from .base import Expert, Task, TextEnv, WorldSpec
from .errors import UserError
from .spelling import plain
from .tasks import ENDLESS, LazyTasks, check_choice

WORDS = ("apple", "bridge", "candle", "dragon", "engine", "forest", "garden", "hammer", "island", "jacket")


class Echo(TextEnv):
    """Each round shows a word; saying it is worth 1/rounds. `rounds` (default 2) is its one option."""

    world = WorldSpec(
        id="echo",
        description="repeat the word you are shown, a few times over",
        max_steps=20,
        instructions="Each turn shows one word. Say exactly that word, for example: say apple",
        isolation="none",
        cloneable=True,
    )

    @classmethod
    def tasks(cls, split: str, *, rounds: int = 2, **options: Any) -> Sequence[Task]:
        check_choice("echo", split, cls.world.splits, options, known=("rounds",))
        if not 1 <= rounds <= cls.world.max_steps:
            raise UserError(f"option rounds of echo must lie between 1 and {cls.world.max_steps}, got {rounds}.")
        parity = cls.world.splits.index(split)  # even seeds train, odd ones are held out

        def make(i: int) -> Task:
            return Task(env="echo", split=split, id=str(i), seed=2 * i + parity, data={"rounds": rounds})

        return LazyTasks(ENDLESS, make)

    @classmethod
    def texts(cls) -> Sequence[str]:
        return tuple(f"The word is {word}. Yes. No. All done. I repeat it. say {word}" for word in WORDS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        task = (options or {}).get("task") or self.tasks("train")[int(self.np_random.integers(ENDLESS))]
        self.words = Random(task.seed).choices(WORDS, k=task.data["rounds"])
        self.turn = self.hits = 0
        return f"The word is {self.words[0]}.", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        before = self.hits / len(self.words)
        right = plain(action) in (self.words[self.turn], f"say {self.words[self.turn]}")
        self.turn += 1
        self.hits += right
        done = self.turn == len(self.words)
        says = "All done." if done else f"The word is {self.words[self.turn]}."
        # the difference of two shares, so that the sum over an episode is exactly hits / rounds
        reward = self.hits / len(self.words) - before
        return f"{'Yes' if right else 'No'}. {says}", reward, done, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"admissible": [f"say {word}" for word in WORDS], "progress": self.turn / len(self.words)}

    def expert(self) -> Expert:
        return EchoExpert()


class EchoExpert:
    """Says the last word of the observation."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        return "I repeat it.", f"say {observation.rstrip('.').split()[-1]}"
