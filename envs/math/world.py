"""Maths problems with one graded answer: generated arithmetic, or a set from local files.

One action an episode. Invariant: the true answer is never in an observation or in `info`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import Expert, Task, TextEnv, WorldSpec
from ..errors import GraderError, UserError
from ..tasks import ENDLESS, LazyTasks, check_choice
from . import arithmetic
from .datasets import rows
from .grade import VERSION, Kind, grade

HELD_OUT = 100_000
"""Length of the held-out splits of arithmetic."""


class Math(TextEnv):
    """Options: `source` (arithmetic, a known set such as gsm8k, or the path of a .jsonl file), and for arithmetic
    `level` (see arithmetic.LEVELS)."""

    world = WorldSpec(
        id="math",
        description="maths problems with one graded answer: generated arithmetic, or a set such as gsm8k",
        max_steps=1,
        instructions="Solve the problem. The action is the word answer and the result, for example: answer 42",
        isolation="thread",  # grading may wait for a process
        cloneable=True,
        grader_version=VERSION,
        splits=arithmetic.SPLITS,
    )

    @classmethod
    def tasks(cls, split: str, *, source: str = "arithmetic", level: int = 2, **options: Any) -> Sequence[Task]:
        check_choice("math", split, cls.world.splits, options, known=("source", "level"))
        if source != "arithmetic":
            found = rows(source, split)

            def of_set(i: int) -> Task:
                row = found[i]
                data = {"question": row.question, "answer": row.answer, "kind": source}
                return Task(env="math", split=split, id=f"{source}/{row.number}", data=data)

            return LazyTasks(len(found), of_set)
        if level not in arithmetic.LEVELS:
            listed = ", ".join(f"{number} ({what})" for number, what in arithmetic.LEVELS.items())
            raise UserError(f"option level of math must be one of: {listed}; got {level!r}.")

        def generated(i: int) -> Task:
            kind, question, answer = arithmetic.problem(split, level, i)
            data = {"question": question, "answer": str(answer), "kind": kind}
            return Task(env="math", split=split, id=f"arithmetic{level}/{i}", seed=i, data=data)

        return LazyTasks(ENDLESS if split == "train" else HELD_OUT, generated)

    @classmethod
    def texts(cls) -> Sequence[str]:
        texts = ["0 1 2 3 4 5 6 7 8 9", "Correct. Wrong. No answer found. answer 42"]
        for level in arithmetic.LEVELS:
            for i in range(40):
                question = arithmetic.problem("train", level, i).question
                working, value = arithmetic.work_out(question)
                texts.append(f"{question}\n{working}\nanswer {value}")
        return texts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        task = (options or {}).get("task") or self.tasks("train")[int(self.np_random.integers(ENDLESS))]
        self._answer = str(task.data["answer"])
        self._kind = str(task.data["kind"])
        return str(task.data["question"]), {"task_type": self._kind}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        verdict = grade(action, self._answer, worked_out=self._kind in arithmetic.KINDS)
        info = {"task_type": self._kind, "verdict": verdict.kind.value, "answer": verdict.answer}
        match verdict.kind:
            case Kind.GRADER_TIMEOUT:
                raise GraderError(f"could not grade '{verdict.answer[:80]}' in time")
            case Kind.CORRECT:
                return "Correct.", 1.0, True, False, info
            case Kind.WRONG:
                return "Wrong.", 0.0, True, False, info
            case Kind.UNPARSED:
                return "No answer found.", 0.0, True, False, info

    def expert(self) -> Expert | None:
        """Works generated arithmetic out; there is none for other sources."""
        return ArithmeticExpert() if self._kind in arithmetic.KINDS else None


class ArithmeticExpert:
    """Thinks column by column, and answers."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        working, value = arithmetic.work_out(observation)
        return working, f"answer {value}"
