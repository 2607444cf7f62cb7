from random import Random

from harness.envs.base import AnyText, Task, TextEnv, WorldSpec
from harness.envs.spelling import plain


class Higher(TextEnv):
    world = WorldSpec(id="higher", description="find a number from 1 to 15", max_steps=4, isolation="none")
    action_space = AnyText([str(n) for n in range(1, 16)])  # what actions look like

    @classmethod
    def tasks(cls, split):
        lane = cls.world.splits.index(split)  # even seeds are trained on, odd ones held out
        return [Task(env="higher", split=split, id=str(i), seed=2 * i + lane) for i in range(1000)]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = Random(seed).randint(1, 15)
        return "I think of a number from 1 to 15. Guess, and I say whether mine is higher or lower.", {}

    def step(self, action):
        guess = int(said) if (said := plain(action)) in self.action_space.examples else 0
        found = guess == self.number
        answer = "Yes." if found else "Higher." if guess < self.number else "Lower."
        return answer, float(found), found, False, {}
