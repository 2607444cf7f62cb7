"""`harness env play`: a person plays a world in the terminal, or watches its expert or a model.

Knows worlds through their contract alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.envs.base import Expert, Task, TextEnv
from harness.envs.errors import UserError
from harness.envs.registry import world_class
from harness.envs.tasks import tasks_of

from .load import options_of

HELP = ":admissible lists valid actions, :task tells what the task is made of, :quit leaves, anything else is an action"


def play(
    env: str, split: str, index: int, seed: int | None, options: Sequence[str], who: str | None, console: Console
) -> None:
    """Play one task. who: None (the person at the keyboard), `expert`, or a model as in `harness eval`.

    Raises UserError on unknown names, and where the world has no expert.
    """
    world = world_class(env)
    task = pick(world, split, index, seed, options)
    console.print(Text(f"{task.key}, at most {world.world.max_steps} actions", style="dim"))
    if who is not None and who != "expert":
        from .evaluate import watch

        watch(env, task, who, console)
        return
    game = world()
    try:
        observation, info = game.reset(seed=task.seed, options={"task": task})
        expert = game.expert() if who == "expert" else None
        if who == "expert" and expert is None:
            raise UserError(f"the world '{env}' has no expert.")
        console.print(Text(observation))
        if expert is None:
            console.print(Text(HELP, style="dim"))
        _episode(game, task, observation, info, expert, console)
    finally:
        game.close()


def pick(world: type[TextEnv], split: str, index: int, seed: int | None, options: Sequence[str]) -> Task:
    """The task at `index` of a split, or the one that `seed` draws. Raises UserError."""
    tasks = tasks_of(world, split, options_of(options))
    if not len(tasks):
        raise UserError(f"the split '{split}' of '{world.world.id}' has no tasks.")
    if seed is not None:
        from random import Random

        index = Random(seed).randrange(len(tasks))
    if index >= len(tasks):
        raise UserError(f"the split '{split}' has {len(tasks)} tasks, so the last index is {len(tasks) - 1}.")
    return tasks[index]


def _episode(
    game: TextEnv, task: Task, observation: str, info: Mapping[str, Any], expert: Expert | None, console: Console
) -> None:
    spec, total, steps = game.world, 0.0, 0
    while steps < spec.max_steps:
        if expert is not None:
            thought, action = expert.act(observation, info)
            console.print(Text(f"  {thought}", style="italic dim"))
            console.print(Text(f"> {action}", style="bold cyan"))
        else:
            asked = _ask(task, info, console)
            if asked is None:
                console.print(Text(f"left after {steps} steps, reward {total:g}", style="dim"))
                return
            action = asked
        observation, reward, terminated, truncated, info = game.step(action)
        total, steps = total + float(reward), steps + 1
        console.print(Text(observation))
        if terminated or truncated:
            break
    won = total >= spec.success
    end = "solved" if won else "not solved"
    console.print(Text(f"{end}: reward {total:g} in {steps} steps", style="bold green" if won else "bold yellow"))


def _ask(task: Task, info: Mapping[str, Any], console: Console) -> str | None:
    """The person's next action, or None where they leave."""
    while True:
        try:
            line = console.input("[bold cyan]> [/]").strip()
        except EOFError:
            return None
        match line:
            case "":
                continue
            case ":quit" | ":q":
                return None
            case ":admissible" | ":a":
                actions = info.get("admissible")
                console.print(Text("\n".join(map(str, actions)) if actions else "this world lists none", style="cyan"))
            case ":task":
                console.print(Text("\n".join(f"{k}: {v}" for k, v in task.data.items()) or "nothing", style="dim"))
            case _ if line.startswith(":"):
                console.print(Text(HELP, style="dim"))
            case _:
                return line
