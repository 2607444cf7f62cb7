"""Play the first n tasks of a split, each as often as asked, and write a board's entry.

Plays through the same `agents/rollout.py` as training, and never imports `rl`. Invariant: what was played is on disk
before the next figure is shown; the same call goes on where a killed one was, and plays nothing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.agents.models.base import Sampling
from harness.agents.registry import make as make_agent
from harness.agents.rollout import Job, rollouts
from harness.agents.types import Trajectory
from harness.envs.base import Task, WorldSpec
from harness.envs.errors import UserError
from harness.envs.host import HostPool
from harness.envs.registry import world_class
from harness.envs.tasks import tasks_of

from . import __version__, machine
from .config import EvalConfig, RunConfig
from .disk import writing
from .display import Display
from .leaderboard.entry import Entry, EntryWriter
from .leaderboard.record import Record, prompt_hash
from .leaderboard.score import Result, pooled
from .leaderboard.tokens import tokenizer_hash
from .load import default_recipe, load, reload
from .players import Player, Source, open_player, source
from .transcript import print_episode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVALUATED = ("env.", "agent.", "model.", "sampling.", "limits.", "eval.", "run.seed")
"""Settings that an evaluation reads."""
FIGURES_EVERY = 0.2
"""Seconds between two looks at the figures so far."""


def all_held_out(config: RunConfig) -> Sequence[Task]:
    """The tasks of `env.eval_split`, at least one. Raises UserError."""
    tasks = tasks_of(world_class(config.env.name), config.env.eval_split, config.env.options)
    if not len(tasks):
        raise UserError(f"the split '{config.env.eval_split}' of '{config.env.name}' has no tasks.")
    return tasks


def held_out(config: RunConfig) -> Sequence[Task]:
    """The tasks that `eval` asks for: the first `eval.n` of them. Raises UserError."""
    tasks = all_held_out(config)
    return [tasks[i] for i in range(min(config.eval.n, len(tasks)))]


def record_of(player: Player, config: RunConfig, tasks: Sequence[Task]) -> Record:
    """Everything that moves the score of `player` on `tasks`."""
    world = world_class(config.env.name).world
    return Record(
        model=player.name,
        model_digest=player.digest,
        engine=player.engine,
        engine_options=player.options,
        tokenizer_hash=tokenizer_hash(player.model.tokenizer),
        env=config.env.name,
        world_version=world.version,
        grader_version=world.grader_version,
        split=config.env.eval_split,
        options=dict(config.env.options) | ({"faults": asdict(config.env.faults)} if config.env.faults.any else {}),
        task_ids=[task.id for task in tasks],
        repeats=config.eval.repeats,
        success_at=world.success,
        max_steps=_steps(config, world),
        agent=asdict(config.agent),
        prompt_hash=prompt_hash(config.agent, world),
        # A list, as it comes back from disk: a record that is read must equal the one that was written.
        sampling=asdict(config.sampling) | {"temperature": config.eval.temperature, "stop": list(config.sampling.stop)},
        seed=config.run.seed,
        seed_reaches_sampler=player.seed_reaches_sampler,
        limits=asdict(config.limits),
        harness_version=__version__,
    )


async def evaluate(
    player: Player, config: RunConfig, tasks: Sequence[Task], folder: Path, display: Display | None = None
) -> Entry:
    """Play `tasks` and leave a finished entry in `folder`; where one is there with the same record, return it.

    Raises UserError where `folder` holds another entry, or where the same failure comes too often in a row (what was
    played until then is kept).
    """
    record = record_of(player, config, tasks)
    with writing(folder):
        if (folder / "scores.json").is_file() and (done := Entry.open(folder)).record == record:
            return done
        with EntryWriter(folder, record) as writer:
            writer.keep(player.model.tokenizer)
            await _play_rest(player, config, tasks, writer, display)
            return writer.finish()


async def _play_rest(
    player: Player, config: RunConfig, tasks: Sequence[Task], writer: EntryWriter, display: Display | None
) -> None:
    jobs = (Job(task=task, attempt=number) for number in range(config.eval.repeats) for task in tasks)
    rest = [job for job in jobs if (job.task.id, job.attempt) not in writer.done]
    progress = _Progress(writer.done.values())
    if display is not None:
        total = len(rest) + len(writer.done)
        display.phase(f"{player.name} on {config.env.name} {config.env.eval_split}", total, len(writer.done))
        display.update(len(writer.done), progress.figures())
    if not rest:
        return
    began = {"began": _now(), "episodes_before": len(writer.done), "commit": machine.commit()}
    writer.sitting(began | {"versions": machine.versions(), "hardware": machine.hardware()})
    in_flight = min(config.model.slots, len(rest))
    hosts = HostPool(
        config.env.name,
        size=min(in_flight, 2 * machine.cores()),
        step_seconds=config.limits.step_seconds,
        faults=config.env.faults,
    )
    sampling = Sampling(
        temperature=config.eval.temperature,
        top_p=config.sampling.top_p,
        max_tokens=config.sampling.max_tokens,
        stop=config.sampling.stop,
        seed=config.run.seed,
    )
    try:
        stream = rollouts(
            rest,
            hosts=hosts,
            agent=partial(make_agent, config.agent, hosts.spec),
            model=player.model,
            limits=config.limits,
            sampling=sampling,
            in_flight=in_flight,
        )
        async with aclosing(stream) as finished:
            async for trajectory in finished:
                progress.see(writer.add(trajectory))
                if display is not None and progress.due():
                    display.update(len(writer.done), progress.figures())
    finally:
        await hosts.close()
        if display is not None:
            display.update(len(writer.done), progress.figures())
        writer.sitting({"ended": _now(), "episodes": len(writer.done)} | progress.sitting(config.eval))


class _Progress:
    """Figures so far."""

    def __init__(self, before: Iterable[Result]) -> None:
        self._began = self._shown = time.monotonic()
        self._sampled = self._prompted = 0
        self._wins: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        for result in before:
            self._count(result)

    def see(self, result: Result) -> None:
        self._count(result)
        self._sampled += result.sampled_tokens
        self._prompted += result.prompt_tokens

    def due(self) -> bool:
        """Whether it is time to show something: an interval over many tasks costs more than an episode may."""
        now = time.monotonic()
        if now - self._shown < FIGURES_EVERY:
            return False
        self._shown = now
        return True

    def figures(self) -> dict[str, str]:
        figures = {"success": str(pooled(self._wins, self._tries))}
        if self._lost:
            figures["lost"] = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self._lost.items()))
        if self._sampled:
            figures["tokens/s"] = f"{self._sampled / max(1e-9, time.monotonic() - self._began):,.0f}"
        return figures

    def sitting(self, settings: EvalConfig) -> dict[str, object]:
        seconds = round(time.monotonic() - self._began, 3)
        facts: dict[str, object] = {
            "seconds": seconds,
            "prompt_tokens": self._prompted,
            "sampled_tokens": self._sampled,
        }
        if settings.price_in is not None and settings.price_out is not None:
            facts["cost"] = (settings.price_in * self._prompted + settings.price_out * self._sampled) / 1e6
        return facts

    def _count(self, result: Result) -> None:
        if result.scored:
            self._tries[result.task] += 1
            self._wins[result.task] += result.success
        else:
            self._lost[str(result.outcome)] += 1


def configured(who: Source, env: str | None, recipe: str | None, settings: Sequence[str]) -> RunConfig:
    """The settings under which `who` plays: of its run, of the recipe, or of the world's default recipe.

    Raises UserError on settings that would do nothing.
    """
    given = {key for text in settings for key, equals, _ in [text.partition("=")] if equals}
    for key in sorted(given):
        if why := _idle(who, key):
            raise UserError(f"{key}: would be ignored: {why}.")
    if who.kind == "checkpoint" and "model.threads" not in given:
        settings = [*settings, f"model.threads={machine.cores()}"]  # nothing else computes meanwhile
    if recipe is not None:
        config = load(recipe, settings, training=False)
    elif who.run is not None and (env is None or env == who.run.config().env.name):
        config = reload(who.run.config_file, settings)
    elif env is None:
        raise UserError(f"say which world '{who.name}' is to play: --env alfworld.")
    else:
        config = load(default_recipe(env), settings, training=False)
    if config.eval.temperature == 0 and who.kind == "checkpoint":
        for key in {"eval.repeats", "run.seed"} & given:
            if key == "run.seed" or config.eval.repeats > 1:
                raise UserError(f"{key}: would be ignored: at eval.temperature=0 every attempt is the same.")
    return config


def _idle(who: Source, key: str) -> str:
    """Why a setting does nothing where `who` plays; empty where it does something."""
    if not key.startswith(EVALUATED):
        return "an evaluation does not train"
    if key == "sampling.temperature":
        return "evaluations read eval.temperature"
    sampled = key.startswith(("model.", "sampling.")) or key == "eval.temperature"
    if who.scripted and (sampled or (key == "run.seed" and who.kind != "random")):
        return f"'{who.name}' samples from no model"
    if who.remote and key.startswith("model.") and key != "model.slots":
        return f"'{who.name}' is served elsewhere"
    if key.startswith("eval.price") and not who.remote:
        return f"'{who.name}' costs nothing a token"
    return ""


def _steps(config: RunConfig, world: WorldSpec) -> int:
    return world.max_steps if config.agent.max_steps is None else config.agent.max_steps


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def watch(env: str, task: Task, model: str, console: Console) -> None:
    """Let a model play one task, and print the episode. Raises UserError."""
    who = source(model)
    config = configured(who, env, None, [f"env.name={env}", "eval.n=1"])

    async def job() -> Trajectory:
        player = open_player(who, config, [task])
        hosts = HostPool(env, size=1, step_seconds=config.limits.step_seconds)
        try:
            stream = rollouts(
                [Job(task=task)],
                hosts=hosts,
                agent=partial(make_agent, config.agent, hosts.spec),
                model=player.model,
                limits=config.limits,
                sampling=Sampling(
                    temperature=config.eval.temperature,
                    max_tokens=config.sampling.max_tokens,
                    stop=config.sampling.stop,
                    seed=0,
                ),
                in_flight=1,
            )
            return await anext(aiter(stream))
        finally:
            await hosts.close()
            await player.model.close()

    print_episode(asyncio.run(job()), console)
