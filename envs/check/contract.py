"""The letter of the contract: Gymnasium's own checker, wrappers, tasks, and the keys of `info`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium import wrappers
from gymnasium.utils.env_checker import check_env

from ..base import Task
from ..child import packed
from ..errors import UserError, one_line
from .report import Finding
from .subject import Subject, finding, reset, show, step

TASKS = 200
"""Tasks of each split that are looked at."""

WRAPPERS: dict[str, Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]] = {
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 2),
    "OrderEnforcing": wrappers.OrderEnforcing,
    "PassiveEnvChecker": wrappers.PassiveEnvChecker,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "TransformObservation": lambda env: wrappers.TransformObservation(env, str.upper, None),
    "TransformAction": lambda env: wrappers.TransformAction(env, str.strip, None),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda r: -float(r)),
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 1),
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 2),
}


def contract(subject: Subject) -> Iterator[Finding]:
    """An episode can be played; Gymnasium finds nothing to say; its wrappers work; `info` keeps to its keys."""
    spec, name = subject.spec, "contract"
    (low, high), success = spec.reward_range, spec.success
    if not (spec.max_steps >= 1 and low <= success <= high and spec.splits):
        yield finding(
            name,
            "failed",
            f"the spec contradicts itself: {spec.max_steps} steps, rewards {low:g} to {high:g}, success {success:g}",
            subject.type.__name__,
            "Declare at least one step and one split, and a success within the reward range.",
        )
    said = len(list(subject.played(subject.scripts[0])))
    yield finding(name, "passed", f"an episode of {said - 1} steps can be played")
    if not subject.shows_form:
        yield finding(
            name,
            "warning",
            "nothing tells how an action looks, so that checks and small models can only guess",
            subject.type.__name__,
            "Give action_space = AnyText(examples), info['admissible'], or an expert.",
        )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        env = subject.type()
        try:
            check_env(env, skip_render_check=True)
        except (AssertionError, TypeError, ValueError, gymnasium.error.Error) as error:
            yield finding(
                name,
                "failed",
                f"gymnasium's check_env: {one_line(error)}",
                subject.where("reset"),
                "See https://gymnasium.farama.org/api/env, or compare with harness.envs.echo.",
            )
        finally:
            env.close()
    for warning in {str(w.message) for w in heard}:
        yield finding(
            name,
            "warning",
            f"gymnasium's check_env warns: {show(warning)}",
            subject.type.__name__,
            "Mend what it names.",
        )
    yield from _wrapped(subject)
    yield from _info(subject)


def _wrapped(subject: Subject) -> Iterator[Finding]:
    task, broken, world = subject.tasks[0], 0, subject.type()
    for name, wrap in WRAPPERS.items():
        env = wrap(world)
        try:
            env.reset(seed=task.seed, options={"task": task})
            env.step(subject.scripts[0].actions[0])
        except Exception as error:  # the world's boundary: its failure is the finding
            broken += 1
            yield finding(
                "contract",
                "failed",
                f"gymnasium.wrappers.{name} breaks it: {one_line(error)}",
                subject.where("step"),
                "Take and give what gymnasium.Env says, and accept `options` in reset.",
            )
    world.close()
    if not broken:
        yield finding("contract", "passed", f"{len(WRAPPERS)} wrappers of Gymnasium work")


_KINDS: dict[str, Callable[[Any], bool]] = {
    "admissible": lambda v: _is_list(v) and all(isinstance(a, str) for a in v),
    "tools": lambda v: _is_list(v) and all(_is_tool(t) for t in v),
    "progress": lambda v: isinstance(v, (int, float)) and 0 <= v <= 1,
    "task_type": lambda v: isinstance(v, str),
    "refused": lambda v: isinstance(v, bool),
}
_MEANT = {
    "admissible": "a list of texts",
    "tools": 'a list of {"name": ..., "description": ..., "parameters": ...}',
    "progress": "a number from 0 to 1",
    "task_type": "a text",
    "refused": "True or False",
}


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_tool(value: object) -> bool:
    match value:
        case {"name": str(), "description": str(), "parameters": Mapping()}:
            return True
    return False


def _info(subject: Subject) -> Iterator[Finding]:
    world, wrong = subject.type(), dict[str, Any]()
    for script in subject.scripts:
        infos = [reset(world, subject.tasks[script.index])[1]]
        for action in script.actions:
            *_, terminated, truncated, info = step(world, action)
            infos.append(info)
            if terminated or truncated:
                break
        for info in infos:
            try:
                packed(info)
            except (TypeError, OverflowError) as error:
                wrong["info"] = f"cannot cross a process boundary: {one_line(error)}"
            wrong |= {key: info[key] for key, fits in _KINDS.items() if key in info and not fits(info[key])}
    world.close()
    for key, value in wrong.items():
        meant = _MEANT.get(key, "plain data: text, numbers, lists, mappings")
        yield finding(
            "contract",
            "failed",
            f"info['{key}'] is {show(repr(value))}" if key != "info" else f"info {value}",
            subject.where("step"),
            f"Give {meant} (harness.envs.base.Info).",
        )


def tasks(subject: Subject) -> Iterator[Finding]:
    """Tasks are complete, stable, their own, and held-out ones are not trained on."""
    spec, name, seen = subject.spec, "tasks", dict[str, dict[object, Task]]()
    where = subject.where("tasks")
    for split in spec.splits:
        try:
            found = subject.type.tasks(split, **subject.options)
            again = subject.type.tasks(split, **subject.options)
        except UserError as error:
            yield finding(name, "skipped", f"the split '{split}' cannot be had here: {error}")
            continue
        first = [found[i] for i in range(min(TASKS, len(found)))]
        if not first:
            yield finding(
                name, "failed", f"the split '{split}' is empty", where, "Give it tasks, or do not declare it."
            )
            continue
        problem = _faults(first, split, spec.id)
        if first != [again[i] for i in range(len(first))]:
            problem = "is another list when asked for again"
        if problem:
            yield finding(
                name,
                "failed",
                f"the split '{split}' {problem}",
                where,
                "A task's env and split are the world's, its id is unique, its data plain JSON, its place fixed.",
            )
        seen[split] = {_essence(task): task for task in first}
    train = seen.get(spec.splits[0], {})
    for split, found_there in list(seen.items())[1:]:
        if shared := train.keys() & found_there.keys():
            one = train[next(iter(shared))]
            yield finding(
                name,
                "failed",
                f"{len(shared)} of the first {len(found_there)} tasks of '{split}' are also training tasks",
                one.key,
                "Give each split seeds or data of its own: for instance even and odd seeds.",
            )
    if seen:
        yield finding(name, "passed", ", ".join(f"{len(found)} of {split} looked at" for split, found in seen.items()))


def _faults(found: list[Task], split: str, world: str) -> str:
    for task in found:
        if not isinstance(task, Task):
            return f"holds {show(repr(task))}, which is no Task"
        if (task.env, task.split) != (world, split):
            return f"holds the task {task.key}, which is not of {world}/{split}"
        try:
            packed(dict(task.data))
        except (TypeError, OverflowError) as error:
            return f"holds the task {task.key}, whose data is not plain: {one_line(error)}"
    if len({task.id for task in found}) < len(found):
        return "gives two tasks one id"
    return ""


def _essence(task: Task) -> object:
    return task.seed, packed(dict(task.data))
