"""The tasks of reasoning-gym, each a world of its own: one question, one graded answer.

Knows the package by its process (package.py) alone, so that neither listing nor playing loads it here. Invariant: the
stored answer is never in an observation or in `info`, and a grader's failure is a GraderError, never a wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

from ..base import Expert, Task, TextEnv, WorldSpec
from ..child import ChildDied, ChildLate
from ..errors import GraderError, UnknownName, UserError, WorldError
from ..math.extract import without_thinking
from ..pool import ChildPool
from ..tasks import LazyTasks, check_choice
from .names import EXCLUDED, LEVELS, NO_ANSWER

FAMILY = "reasoning_gym"
TRAIN = 1 << 24
"""Training tasks; held-out ones have seeds beyond these."""
HELD_OUT = 100_000
GRADE_SECONDS = 10.0
MAKE_SECONDS = 60.0
"""Some puzzles are searched for, for seconds."""
START_SECONDS = 120.0
WORKERS = 2
"""Processes that make and grade questions, for all worlds of one process of ours."""
LONGEST = 20_000
_ANSWER = re.compile(r"(?i)(?:final\s+)?answer\s*(?:is\b|:|\s)\s*:?\s*")
_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)

_pool = ChildPool(
    "harness.envs.reasoning_gym.package",
    workers=WORKERS,
    start_seconds=START_SECONDS,
    env={"PYTHONHASHSEED": "0"},  # some puzzles walk over sets: the same question for ever needs the same order
)


class ReasoningGym(TextEnv):
    """One task of reasoning-gym. Options: `level` (of its curriculum, from 0; None takes the package's defaults), and
    `partial` (true pays the share of full marks that its grader gives; a share that nonsense gets too is 0)."""

    name: ClassVar[str]
    """The task's name in the package."""

    @classmethod
    def tasks(cls, split: str, *, level: int | None = None, partial: bool = False, **options: Any) -> Sequence[Task]:
        world = cls.world.id
        check_choice(world, split, cls.world.splits, options, known=("level", "partial"))
        if find_spec("reasoning_gym") is None:
            raise UserError(f"{world} needs the package reasoning-gym: pip install 'harness[reasoning-gym]'.")
        levels = LEVELS[cls.name]
        if level is not None and (type(level) is not int or not 0 <= level < levels):
            known = f"must lie between 0 and {levels - 1}" if levels else "would be ignored: it has no curriculum"
            raise UserError(f"option level of {world} {known}, got {level!r}.")
        if type(partial) is not bool:
            raise UserError(f"option partial of {world} is true or false, got {partial!r}.")
        held_out = split != "train"
        prefix = "" if level is None else f"level{level}/"
        data = {"level": level, "partial": partial}

        def make(i: int) -> Task:
            return Task(env=world, split=split, id=f"{prefix}{i}", seed=i + TRAIN * held_out, data=data)

        return LazyTasks(HELD_OUT if held_out else TRAIN, make)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        task = (options or {}).get("task") or self.tasks("train")[int(self.np_random.integers(TRAIN))]
        self._partial = bool(task.data["partial"])
        self._asked = [self.name, task.data["level"], task.seed, task.split != "train"]
        try:
            made = _pool.ask(["make", *self._asked], MAKE_SECONDS)
        except (ChildLate, ChildDied) as error:
            raise WorldError(f"reasoning-gym did not make {task.key}: {error}") from error
        if "error" in made:
            raise WorldError(f"reasoning-gym did not make {task.key}: {made['error']}")
        self._stored: str | None = made["answer"]
        return str(made["question"]), {"task_type": self.name}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        answer = answer_of(action)
        try:
            kind, share, why = _pool.ask(["judge", *self._asked, answer], GRADE_SECONDS)
        except (ChildLate, ChildDied) as error:
            raise GraderError(f"could not grade '{answer[:80]}': {error}") from error
        if kind == "broken":
            raise GraderError(f"the grader of {self.name} broke at '{answer[:80]}': {why}")
        info = {"task_type": self.name, "verdict": kind, "answer": answer[:1000], "share": share}
        says = {"correct": "Correct.", "wrong": "Wrong.", "unparsed": "No answer found."}[kind]
        reward = share if self._partial else float(kind == "correct")
        return says, reward, True, False, info


class Answered(ReasoningGym):
    """A task whose questions come with a stored answer."""

    def expert(self) -> Expert | None:
        return None if self._stored is None else Oracle(self._stored)


class Oracle:
    """Says the stored answer."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        return "", self._answer


def answer_of(action: str) -> str:
    """What of an action is graded: no thinking; what stands in the last `<answer>` tags, or in a fence that is all.

    >>> answer_of("<think>5?</think> so <answer> 4 </answer>"), answer_of("Answer: 4"), answer_of("4 + 1")
    ('4', '4', '4 + 1')
    """
    text = without_thinking(action)[-LONGEST:].strip()
    if (at := text.rfind("<answer>")) >= 0:
        text = text[at + len("<answer>") :].split("</answer>")[0].strip()
    elif match := _ANSWER.match(text):
        text = text[match.end() :].strip()
    fenced = _FENCE.fullmatch(text)
    return fenced[1].strip() if fenced else text


@cache
def world_of(name: str) -> type[ReasoningGym]:
    """The world of one task. Raises UnknownName, or UserError for one that is excluded."""
    if name in EXCLUDED:
        raise UserError(f"{FAMILY}/{name} is no world here: {EXCLUDED[name]}.")
    if name not in LEVELS:
        raise UnknownName(f"task of {FAMILY}", name, LEVELS)
    base = ReasoningGym if name in NO_ANSWER else Answered
    spec = WorldSpec(
        id=f"{FAMILY}/{name}",
        description=f"reasoning-gym's {name}",
        max_steps=1,
        instructions="Answer the question. The action is the final answer alone, in the form that is asked for.",
        isolation="thread",  # the work is done in another process, and may be waited for
        reset_seconds=START_SECONDS + MAKE_SECONDS,
        cloneable=True,
        version="0.1.25",
    )
    made: type[ReasoningGym] = type(
        f"ReasoningGym_{name}", (base,), {"world": spec, "name": name, "__doc__": spec.description}
    )
    return made
