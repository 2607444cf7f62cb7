"""Who earns what: the expert everything, tricks nothing, and the agent's own words about rewards count for nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ..base import Task, TextEnv
from ..checked import SLACK
from ..errors import GraderError, UserError
from .report import Finding
from .subject import Subject, finding, reset, show, step

TASKS = 12
"""Tasks on which a trick is tried."""
EXPERTS = 20
"""Tasks of each split that the expert plays."""
_TRICKS = 10
"""Episodes of a task in which tricks are tried."""
OFTEN = 0.25
"""A trick that wins this share of them is one."""

CLAIMS = ("1.0", "nan", "inf", "-inf", "-0.5", "1.5", "reward: 1.0", '{"reward": 1.0}', "<score>1</score>", "success")
"""What an agent may write where a careless grader reads its reward."""
ODD = (0.37, 0.59, 0.83)
"""Numbers that no honest reward is twice in a row."""

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda a: a,
    "with spaces around": lambda a: f"  {a}  ",
    "with a line end": lambda a: f"{a}\n",
    "with a tab before": lambda a: f"\t{a}",
    "with double spaces": lambda a: a.replace(" ", "  "),
    "in capitals": str.upper,
    "in small letters": str.lower,
    "with a capital first": lambda a: a[:1].upper() + a[1:],
    "with a full stop": lambda a: f"{a}.",
    "in double quotes": lambda a: f'"{a}"',
    "as code": lambda a: f"`{a}`",
}
NEEDED = ("with spaces around", "with a line end", "with a tab before")
"""Spellings that no world may mind; another one that costs the reward is a warning."""


def ranges(subject: Subject) -> Iterator[Finding]:
    """Every reward is finite, every sum within the declared range, and none is read from the agent's words."""
    low, high = subject.spec.reward_range
    world = subject.type()
    for script in subject.scripts:
        for wrong in _bad_sums(world, subject.tasks[script.index], script.actions, low, high):
            yield finding(
                "reward",
                "failed",
                wrong,
                subject.where("step"),
                "Give finite rewards whose sum over an episode lies in spec.reward_range.",
            )
            return
    some, claimed = subject.some(TASKS, 2 * len(CLAIMS) + len(ODD)), 0
    deadline = subject.deadline()
    for number, task in enumerate(some):
        if number and deadline.over:
            some = some[:number]
            break
        for claim in CLAIMS:
            for wrong in _bad_sums(world, task, (claim,), low, high):
                yield finding(
                    "reward",
                    "failed",
                    f"the action {show(claim)} gives: {wrong}",
                    subject.where("step"),
                    "Never take a reward, a score or a verdict from what the agent wrote.",
                )
                return
        echoed = [odd for odd in ODD if abs(_earned(world, task, (str(odd),)) - odd) < SLACK]
        claimed += len(echoed) == len(ODD)
    for claim in CLAIMS:
        won = sum(_earned(world, task, (claim,)) >= subject.spec.success for task in some)
        claimed = max(claimed, won if won > OFTEN * len(some) else 0)
    world.close()
    if claimed:
        yield finding(
            "reward",
            "failed",
            f"an agent that writes its own reward gets it, on {claimed} of {len(some)} tasks",
            subject.where("step"),
            "Never take a reward, a score or a verdict from what the agent wrote.",
        )
    else:
        yield finding("reward", "passed", f"finite, in [{low:g}, {high:g}], and not read from the agent's words")


def _bad_sums(world: TextEnv, task: Task, actions: tuple[str, ...], low: float, high: float) -> Iterator[str]:
    reset(world, task)
    total = 0.0
    for action in actions:
        try:
            _, reward, terminated, truncated, _ = step(world, action)
        except GraderError:
            return
        total += reward
        if not math.isfinite(total):
            yield f"a reward of {reward} is not finite ({task.key})"
        elif not low - SLACK <= total <= high + SLACK:
            yield f"rewards add up to {total:g}, outside of [{low:g}, {high:g}] ({task.key})"
        if terminated or truncated:
            return


def _earned(world: TextEnv, task: Task, actions: tuple[str, ...] | Callable[[str], str]) -> float:
    """Sum of rewards of these actions; a function says the same kind of thing at each step, to the episode's end."""
    observation, _ = reset(world, task)
    total = 0.0
    for number in range(world.world.max_steps if callable(actions) else len(actions)):
        action = actions(observation) if callable(actions) else actions[number]
        try:
            observation, reward, terminated, truncated, _ = step(world, action)
        except GraderError:
            break
        total += reward
        if terminated or truncated:
            break
    return total


def tricks(subject: Subject) -> Iterator[Finding]:
    """Doing nothing, repeating what was said, and naming every answer earn nothing."""
    world, some, deadline = subject.type(), subject.some(TASKS, _TRICKS), subject.deadline()
    success, low = subject.spec.success, max(0.0, subject.spec.reward_range[0])
    listed = sorted({a for task in some for a in reset(world, task)[1].get("admissible", ())})
    answers = [script.actions[-1] for script in subject.scripts if script.actions] + _answers(subject, some)
    everything = {
        "doing nothing": lambda said: "",
        "a space": lambda said: " ",
        "repeating what was said": lambda said: said,
        "repeating the instructions": lambda said: subject.spec.instructions,
        "every admissible action at once": lambda said: ", ".join(listed),
        "every answer at once": lambda said: " ".join(dict.fromkeys(answers)),
        "every answer, one a line": lambda said: "\n".join(dict.fromkeys(answers)),
        "every number to 1000": lambda said: " ".join(map(str, range(1001))),
        "yes and no, true and false, A to E": lambda said: "yes no true false A B C D E",
    }
    caught, tried = False, 0
    for name, says in everything.items():
        if tried and deadline.over:
            break
        tried += 1
        earned = [_earned(world, task, says) for task in some]
        won = sum(e >= success for e in earned)
        paid = sum(e > low + SLACK for e in earned)
        if paid <= 1:  # by chance, as when the last of all answers is the right one
            continue
        wins = won > OFTEN * len(some)
        caught |= wins
        yield finding(
            "tricks",
            "failed" if wins else "warning",
            f"{name} wins {won} and is paid for in {paid} of {len(some)} tasks",
            subject.where("step"),
            "Let one answer count, demand it whole, and pay for what was done in the task, not for being there.",
        )
    world.close()
    if not caught:
        yield finding("tricks", "passed", f"{tried} tricks on {len(some)} tasks do not win")


def _answers(subject: Subject, some: list[Task]) -> list[str]:
    """What the expert says first in each of these tasks."""
    said, world = [], subject.type()
    for task in some:
        observation, info = reset(world, task)
        if (expert := world.expert()) is not None:
            said.append(expert.act(observation, info)[1])
    world.close()
    return said


def oracle(subject: Subject) -> Iterator[Finding]:
    """The expert gets full marks in every split."""
    played = lost = 0
    example = ""
    world, deadline = subject.type(), subject.deadline()
    for split in subject.spec.splits:
        try:
            found = subject.type.tasks(split, **subject.options)
        except UserError:  # the check of tasks says so
            continue
        for i in range(min(EXPERTS, len(found))):
            earned = _of_expert(world, found[i], lambda action: action)
            if earned is None or deadline.over:
                break
            played += 1
            if earned < subject.spec.success:
                lost += 1
                example = example or f"{found[i].key}: {earned:g}"
    world.close()
    if not played:
        yield finding(
            "oracle",
            "skipped",
            "the world has no expert",
            subject.type.__name__,
            "Give one (`expert`): it shows that tasks can be done, and a small model can learn from it.",
        )
    elif lost:
        yield finding(
            "oracle",
            "failed",
            f"the expert loses {lost} of {played} tasks",
            example,
            "Mend the expert, or the grading; or leave out tasks that cannot be done.",
        )
    else:
        yield finding("oracle", "passed", f"the expert wins {played} of {played} tasks")


def _of_expert(world: TextEnv, task: Task, spell: Callable[[str], str]) -> float | None:
    observation, info = reset(world, task)
    expert, total = world.expert(), 0.0
    if expert is None:
        return None
    for _ in range(world.world.max_steps):
        try:
            action = expert.act(observation, info)[1]
        except Exception:  # the expert's boundary: after a spelling that did not count it may know no further
            break
        observation, reward, terminated, truncated, info = step(world, spell(action))
        total += reward
        if terminated or truncated:
            break
    return total


def spellings(subject: Subject) -> Iterator[Finding]:
    """The right actions earn the same, however they are written."""
    world, some, minded, tried = subject.type(), subject.some(5, 2 * len(SPELLINGS)), 0, 0
    deadline = subject.deadline()
    for name, spell in SPELLINGS.items():
        if tried and deadline.over:
            break
        lost, tried = 0, tried + 1
        for task in some:
            plain, spelt = _of_expert(world, task, str), _of_expert(world, task, spell)
            if plain is None or spelt is None:
                yield finding("spellings", "skipped", "the world has no expert that knows the right answer")
                world.close()
                return
            lost += spelt < plain - SLACK
        if lost:
            minded += 1
            yield finding(
                "spellings",
                "failed" if name in NEEDED else "warning",
                f"the right answer {name} loses {lost} of {len(some)} tasks",
                subject.where("step"),
                "Strip and normalize an action before it is compared.",
            )
    world.close()
    if minded < tried:
        yield finding("spellings", "passed", f"{tried - minded} of {tried} spellings count")
