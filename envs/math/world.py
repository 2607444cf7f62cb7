"""Maths problems with one graded answer: generated arithmetic and countdown, or a set from files or the hub.

One action an episode. Invariant: the true answer is never in an observation or in `info`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import Expert, Task, TextEnv, WorldSpec
from ..errors import GraderError, UserError
from ..tasks import ENDLESS, LazyTasks, check_choice
from . import arithmetic, countdown, rewards
from .datasets import rows
from .extract import answer_in
from .grade import START_SECONDS, VERSION, Kind, Verdict, at_once, grade, ready, warm

HELD_OUT = 100_000
"""Length of the held-out splits of what is generated."""
GENERATED: dict[str, tuple[int, Mapping[int, object]]] = {
    "arithmetic": (2, arithmetic.LEVELS),
    "countdown": (1, countdown.LEVELS),
}
"""Source -> the level that is taken where none is given, and all of them."""
OPTIONS = ("source", "level", "folder", "rewards", "words")


class Math(TextEnv):
    """Options: `source` (arithmetic, countdown, a known set such as gsm8k, the path of a .jsonl file, or hub:NAME);
    `level` of what is generated; `folder`, where the files of known sets lie; `rewards` and `words` (rewards.py)."""

    world = WorldSpec(
        id="math",
        description="maths problems with one graded answer: generated arithmetic, or a set such as gsm8k",
        max_steps=1,
        instructions="Solve the problem. The action is the word answer and the result, for example: answer 42",
        isolation="thread",  # grading may wait for a process
        reset_seconds=START_SECONDS,  # which starts with the first problem that may need it
        cloneable=True,
        grader_version=VERSION,
        splits=arithmetic.SPLITS,
    )

    @classmethod
    def tasks(
        cls,
        split: str,
        *,
        source: str = "arithmetic",
        level: int | None = None,
        folder: str | None = None,
        rewards: Mapping[str, float] | None = None,
        words: Sequence[int] | None = None,
        **options: Any,
    ) -> Sequence[Task]:
        check_choice("math", split, cls.world.splits, options, known=OPTIONS)
        paid = _paid(rewards, words)
        if source not in GENERATED:
            if level is not None:
                raise UserError(
                    f"option level of math would be ignored: {source} has none, only what is generated has."
                )
            found = rows(source, split, folder)

            def of_set(i: int) -> Task:
                row = found[i]
                data = {"question": row.question, "answer": row.answer, "kind": source, **paid}
                return Task(env="math", split=split, id=f"{row.origin}/{row.number}", data=data)

            return LazyTasks(len(found), of_set)
        if folder is not None:
            raise UserError(f"option folder of math would be ignored: {source} is generated and reads no files.")
        usual, levels = GENERATED[source]
        chosen = usual if level is None else level
        if chosen not in levels:
            listed = ", ".join(f"{number} ({what})" for number, what in levels.items())
            raise UserError(f"option level of math must be one of: {listed}; got {level!r}.")

        def made(i: int) -> Task:
            data = _arithmetic(split, chosen, i) if source == "arithmetic" else _countdown(split, chosen, i)
            return Task(env="math", split=split, id=f"{source}{chosen}/{i}", seed=i, data={**data, **paid})

        return LazyTasks(ENDLESS if split == "train" else HELD_OUT, made)

    @classmethod
    def texts(cls) -> Sequence[str]:
        texts = ["0 1 2 3 4 5 6 7 8 9", "Correct. Wrong. No answer found. answer 42"]
        for level in arithmetic.LEVELS:
            for i in range(40):
                question = arithmetic.problem("train", level, i).question
                working, value = arithmetic.work_out(question)
                texts.append(f"{question}\n{working}\nanswer {value}")
        texts.append(f"{countdown.problem('train', 1, 0).question}\nanswer (1 + 2) * 3 - 4 / 5")
        return texts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        task = (options or {}).get("task")
        if task is None:
            super().reset(seed=seed)
            task = self.tasks("train")[int(self.np_random.integers(ENDLESS))]
        self._task = task.data
        self._kind = str(task.data["kind"])
        if not _generated(self._kind):
            warm()
        return str(task.data["question"]), {"task_type": self._kind}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        verdict = self._verdict(action)
        info = {"task_type": self._kind, "verdict": verdict.kind.value, "answer": verdict.answer}
        if verdict.kind is Kind.GRADER_TIMEOUT:
            raise GraderError(f"could not grade '{verdict.answer[:80]}' in time")
        says = {Kind.CORRECT: "Correct.", Kind.WRONG: "Wrong.", Kind.UNPARSED: "No answer found."}[verdict.kind]
        reward = verdict.score
        if "rewards" in self._task:
            low, high = self._task["words"]
            reward = rewards.composed(action, verdict.score, self._task["rewards"], (low, high))
        return says, reward, True, False, info

    @classmethod
    def at_once(cls, task: Task, action: str | None) -> bool:
        kind = str(task.data["kind"])
        if action is None:
            return _generated(kind) or ready()
        if kind == "countdown":
            return True
        return at_once(action, str(task.data["answer"]), worked_out=kind in arithmetic.KINDS) is not None

    @classmethod
    def borrowed(cls, task: Task) -> bool:
        return not _generated(str(task.data["kind"]))

    def _verdict(self, action: str) -> Verdict:
        if self._kind == "countdown":
            taken = answer_in(action)
            given = countdown.Problem(tuple(self._task["numbers"]), self._task["target"])
            return Verdict(Kind(countdown.verify(taken, given)), taken[:1000])
        return grade(action, str(self._task["answer"]), worked_out=self._kind in arithmetic.KINDS)

    def expert(self) -> Expert | None:
        """Works generated problems out; there is none for other sources."""
        if self._kind == "countdown":
            return CountdownExpert()
        return ArithmeticExpert() if self._kind in arithmetic.KINDS else None


class ArithmeticExpert:
    """Thinks column by column, and answers."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        working, value = arithmetic.work_out(observation)
        return working, f"answer {value}"


class CountdownExpert:
    """Searches, and answers with the expression."""

    def act(self, observation: str, info: Mapping[str, Any]) -> tuple[str, str]:
        given = countdown.asked(observation)
        return "", f"answer {countdown.solve(given)}"


def _generated(kind: str) -> bool:
    """Whether problems of this kind are made here, and their answers are graded without algebra."""
    return kind == "countdown" or kind in arithmetic.KINDS


def _paid(weights: Mapping[str, float] | None, words: Sequence[int] | None) -> dict[str, Any]:
    """What a task says of its reward: nothing where the answer alone counts."""
    if weights is None and words is None:
        return {}
    chosen, pair = rewards.check(weights, words)
    return {"rewards": chosen, "words": list(pair)}


def _arithmetic(split: str, level: int, index: int) -> dict[str, Any]:
    kind, question, answer = arithmetic.problem(split, level, index)
    return {"question": question, "answer": str(answer), "kind": kind}


def _countdown(split: str, level: int, index: int) -> dict[str, Any]:
    given = countdown.problem(split, level, index)
    return {
        "question": given.question,
        "kind": "countdown",
        "numbers": list(given.numbers),
        "target": given.target,
    }
