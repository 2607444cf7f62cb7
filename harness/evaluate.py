"""Play the first n tasks of a split and write a board's entry.

Plays through the same `agents/rollout.py` as training, and never imports `rl`. Invariant: what was played is on disk
before the next figure is shown; the same call goes on where a killed one was, and plays nothing twice.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
from .config import RunConfig
from .display import Display
from .leaderboard.entry import Entry, EntryWriter, Record, prompt_hash
from .leaderboard.score import Proportion, Result, Scores
from .leaderboard.tokens import tokenizer_hash
from .load import default_recipe, load, reload
from .players import Player, Source, open_player, source
from .runs import root, writing
from .transcript import print_episode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVALUATED = ("env.", "agent.", "model.", "sampling.", "limits.", "eval.", "run.seed")
"""Settings that an evaluation reads."""


def held_out(config: RunConfig) -> Sequence[Task]:
    """The tasks that `eval` asks for: the first `eval.n` of `env.eval_split`. Raises UserError."""
    tasks = tasks_of(world_class(config.env.name), config.env.eval_split, config.env.options)
    if not len(tasks):
        raise UserError(f"the split '{config.env.eval_split}' of '{config.env.name}' has no tasks.")
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
        sampling=asdict(config.sampling) | {"temperature": config.eval.temperature},
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
                if display is not None:
                    display.update(len(writer.done), progress.figures())
    finally:
        await hosts.close()
        writer.sitting({"ended": _now(), "episodes": len(writer.done)} | progress.sitting())


class _Progress:
    """Figures so far."""

    def __init__(self, before: Iterable[Result]) -> None:
        self._began = time.monotonic()
        self._sampled = self._prompted = 0
        self._scored = self._won = 0
        self._lost: Counter[str] = Counter()
        for result in before:
            self._count(result)

    def see(self, result: Result) -> None:
        self._count(result)
        self._sampled += result.sampled_tokens
        self._prompted += result.prompt_tokens

    def figures(self) -> dict[str, str]:
        figures = {"success": str(Proportion(successes=self._won, n=self._scored))}
        if self._lost:
            figures["lost"] = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self._lost.items()))
        if self._sampled:
            figures["tokens/s"] = f"{self._sampled / max(1e-9, time.monotonic() - self._began):,.0f}"
        return figures

    def sitting(self) -> dict[str, object]:
        seconds = round(time.monotonic() - self._began, 3)
        return {"seconds": seconds, "prompt_tokens": self._prompted, "sampled_tokens": self._sampled}

    def _count(self, result: Result) -> None:
        if result.scored:
            self._scored += 1
            self._won += result.success
        else:
            self._lost[str(result.outcome)] += 1


def evaluate_command(
    model: str, env: str | None, recipe: str | None, settings: Sequence[str], out: Path | None, console: Console
) -> None:
    """`harness eval`. Raises UserError."""
    who = source(model)
    config = _config(who, env, recipe, settings)
    tasks = held_out(config)

    async def job(display: Display) -> Entry:
        player = open_player(who, config, tasks)
        try:
            folder = out or _folder(who, record_of(player, config, tasks))
            return await evaluate(player, config, tasks, folder, display)
        finally:
            await player.model.close()

    if len(tasks) < config.eval.n:
        console.print(Text(f"the split has {len(tasks)} tasks; all of them are played", style="dim"))
    with Display(console) as display:
        entry = asyncio.run(job(display))
    print_scores(entry, console)


def _config(who: Source, env: str | None, recipe: str | None, settings: Sequence[str]) -> RunConfig:
    scripted = who.kind in ("expert", "random")
    for text in settings:
        key = text.partition("=")[0]
        if not key.startswith(EVALUATED) and "=" in text:
            raise UserError(f"{key}: would be ignored: an evaluation does not train.")
        if key == "sampling.temperature":
            raise UserError("sampling.temperature: would be ignored: evaluations read eval.temperature.")
        if scripted and (key.startswith(("model.", "sampling.")) or key == "eval.temperature"):
            raise UserError(f"{key}: would be ignored: '{who.name}' samples from no model.")
    if who.kind == "checkpoint" and not any(text.startswith("model.threads=") for text in settings):
        settings = [*settings, f"model.threads={machine.cores()}"]  # nothing else computes meanwhile
    if recipe is not None:
        return load(recipe, settings, training=False)
    if who.run is not None and (env is None or env == who.run.config().env.name):
        return reload(who.run.config_file, settings)
    if env is None:
        raise UserError(f"say which world '{who.name}' is to play: --env alfworld.")
    return load(default_recipe(env), settings, training=False)


def _folder(who: Source, record: Record) -> Path:
    """Where an entry lives: the run's own evaluation where it is the same, else a folder named for the record."""
    short = record.digest[:8]
    if who.run is not None and who.label is not None:
        own = who.run.evals / who.label
        if (own / "record.json").is_file() and Entry(own).record == record:
            return own
        return who.run.evals / f"{who.label}-{slug(record.env)}-{record.split}-{short}"
    return root() / "evals" / f"{slug(who.name)}-{slug(record.env)}-{record.split}-{short}"


def slug(text: str) -> str:
    """Text as a part of a folder's name."""
    text = Path(text).stem if text.endswith(".py") else text
    return re.sub(r"[^A-Za-z0-9._@-]+", "-", text).strip("-.") or "x"


def _steps(config: RunConfig, world: WorldSpec) -> int:
    return world.max_steps if config.agent.max_steps is None else config.agent.max_steps


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def print_scores(entry: Entry, console: Console) -> None:
    """The figures of an entry as a table."""
    record, scores = entry.record, entry.scores()
    title = f"{record.model} on {record.env} {record.split}"
    table = Table("", "success", "95% interval", "n", title=title, title_justify="left", box=None, header_style="bold")
    kinds = scores.by_type if len(scores.by_type) > 1 else {}
    for name, p in [("all", scores.success), *kinds.items()]:
        low, high = p.interval
        value = f"{100 * p.value:.1f}%" if p.n else "-"
        table.add_row(name, value, f"{100 * low:.1f} to {100 * high:.1f}", str(p.n))
    console.print(table)
    console.print(Text(_footnote(entry, scores), style="dim"))
    console.print(Text(f"entry: {entry.path}"))


def _footnote(entry: Entry, scores: Scores) -> str:
    record = entry.record
    parts = [f"temperature {record.sampling['temperature']:g}, seed {record.seed}, at most {record.max_steps} steps"]
    if scores.mean_reward is not None and scores.steps is not None:
        parts.append(f"mean reward {scores.mean_reward:.3f}, mean steps {scores.steps:.1f}")
    if scores.lost:
        why = {str(t.outcome): t.error for t in entry.trajectories() if not t.scored}
        lost = ", ".join(f"{n} {outcome} ({why[outcome]})" for outcome, n in scores.lost.items())
        low, high = scores.bounds
        parts.append(f"lost and not scored: {lost}; with them success lies within {100 * low:.1f} to {100 * high:.1f}%")
    return "; ".join(parts)


def watch(env: str, task: Task, model: str, console: Console) -> None:
    """Let a model play one task, and print the episode. Raises UserError."""
    who = source(model)
    config = _config(who, env, None, [f"env.name={env}", "eval.n=1"])

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
