"""One training run from beginning to end: score, warm up, score, reinforce, score, and show what came of it.

Knows the order of the phases and how to tell people; not how any of them works. Invariant: each phase leaves something
on disk when it is finished and is skipped where that is found, so the same call begins a run and goes on with one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from harness.envs.errors import UserError
from harness.envs.registry import world_class

from . import machine
from .config import RunConfig
from .disk import writing
from .display import Display, duration, sparkline
from .evaluate import evaluate, held_out
from .leaderboard.guard import refuse_contamination
from .players import of_checkpoint, open_player
from .runs import RunFolder
from .show import draw, points, success_table

if TYPE_CHECKING:
    from harness.rl.config import SourceConfig
    from harness.rl.monitor import Monitor
    from harness.rl.place import Handle, Place


def train(config: RunConfig, run: RunFolder) -> None:
    """Train in `run`, a fresh folder or one that was left at any moment. Raises UserError."""
    refuse_contamination(config)
    console = Console(highlight=False)
    # Idle OpenMP threads that spin would take the cores from the other processes of the run.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with run.lock(), writing(run.path):
        _announce(config, run, console)
        began = time.monotonic()
        with Display(console) as display:
            asyncio.run(_Training(config, run, display).go())
        _finish(config, run, time.monotonic() - began, console)


def resume(run: RunFolder) -> None:
    """Go on with a run where it was. Raises UserError."""
    if run.summary() is not None:
        raise UserError(f"the run '{run.name}' is finished; see it with `harness show {run.name}`.")
    train(run.config(), run)


class _Training:
    """The phases of one run."""

    def __init__(self, config: RunConfig, run: RunFolder, display: Display) -> None:
        self.config, self.run, self.display = config, run, display
        self.tasks = held_out(config)

    async def go(self) -> None:
        from harness.rl.monitor import Monitor
        from harness.rl.place import open_place

        config, run = self.config, self.run
        base = self._base()
        place, monitor = open_place(config.run.place), Monitor(run.path)
        try:
            trainer = self._trainer(place, base)
            done = await trainer.call("resume")
            monitor.rewind("train", done)
            # The untrained model is scored while the trainer warms up, where that has a process of its own: in a shared
            # one each would hold the other up, and episodes would run out of time.
            beside = config.run.place != "inline"
            untrained = asyncio.create_task(self._score("initial", base, threads=1 if beside else None, quiet=beside))
            try:
                if not beside:
                    await untrained
                if config.warmup.episodes and "warmup" not in run.labels():
                    monitor.rewind("warmup", -1)
                    await self._warm_up(trainer, monitor)
                if not untrained.done():
                    self.display.phase("scoring the untrained model", 1)
                    await untrained
                    self.display.update(1)
            finally:
                untrained.cancel()
            if config.warmup.episodes:
                await self._score("warmup")
            if config.run.steps:
                await self._train(place, trainer, monitor, base, done)
                await self._score(f"step-{config.run.steps:06d}")
        finally:
            monitor.close()
            place.close()

    def _trainer(self, place: Place, base: Path) -> Handle:
        from harness.rl.gpus import seats, trainer_seats
        from harness.rl.loop import RESPAWNS
        from harness.rl.trainer.offline import OfflineTrainer
        from harness.rl.trainer.trainer import Trainer

        config, run = self.config, self.run
        place.reserve(seats(config, place.gpus()))
        part: tuple[Any, ...] = (Trainer, config, base, run.checkpoints, run.buffer_url)
        if config.data.file is not None:
            part = (OfflineTrainer, config, base, run.checkpoints)
        # Where explorers pull, each transfer has a thread beside the training's, those to explorers that died too.
        pulled = config.explorer.workers * config.model.engines if config.sync.transport == "group" else 0
        calls, several = 1 + (1 + RESPAWNS) * pulled, trainer_seats(config) > 1
        return place.put(*part, threads=config.trainer.threads, seat=0, host=several, calls=calls)

    def _base(self) -> Path:
        """The model that the run begins with."""
        if self.config.model.path is not None:
            return Path(self.config.model.path)
        initial = self.run.checkpoint("initial")
        if "initial" not in self.run.labels():
            from harness.agents.models.tiny import make_tiny
            from harness.agents.prompts import prompt_of
            from harness.rl.trainer import checkpoint

            world = world_class(self.config.env.name)
            told = prompt_of(self.config.agent).system.format(instructions=world.world.instructions)
            texts = [*world.texts(), *([told] if told else [])]  # what is told has words of its own
            shape, seed = self.config.model.tiny, self.config.run.seed
            # Whole or not at all: explorers apart wait for it, and a kill may come in the middle.
            fill = partial(make_tiny, config=shape, texts=texts, seed=seed)
            checkpoint.write(self.run.checkpoints, initial.name, fill, {"step": 0, "seed": seed})
        return initial

    async def _score(
        self, label: str, folder: Path | None = None, threads: int | None = None, quiet: bool = False
    ) -> None:
        """Success on held-out tasks, kept under `evals/<label>`; on all cores unless told otherwise."""
        who = of_checkpoint(self.run, label)
        if folder is not None:
            who = replace(who, path=str(folder))
        model = replace(self.config.model, threads=threads or machine.cores())
        player = open_player(who, self.config.model_copy(update={"model": model}), self.tasks)
        try:
            await evaluate(player, self.config, self.tasks, self.run.evals / label, None if quiet else self.display)
        finally:
            await player.model.close()

    async def _warm_up(self, trainer: Handle, monitor: Monitor) -> None:
        losses: list[float] = []
        self.display.phase("warm-up", 1)
        async for metrics in trainer.stream("warm_up"):
            losses.append(metrics["loss"])
            if len(losses) == 1:
                self.display.phase("warm-up", int(metrics["steps"]))
            monitor.log("warmup", len(losses), metrics)
            figures = {
                "loss": f"{sparkline(losses)} {losses[-1]:.3f}",
                "tokens/s": f"{metrics['tokens_per_second']:,.0f}",
            }
            self.display.update(len(losses), figures)

    async def _train(self, place: Place, trainer: Handle, monitor: Monitor, base: Path, done: int) -> None:
        from harness.rl.loop import Loop

        config, run = self.config, self.run
        # Pairs are told by the share that is preferred, demonstrations by their loss, the rest by its rewards.
        shown: list[float] = []
        phase = "reinforcement learning" if config.data.file is None else f"{config.algorithm.name} on a file"
        self.display.phase(phase, config.run.steps, done)

        def report(version: int, metrics: Mapping[str, float]) -> None:
            monitor.log("train", version, metrics)
            figures: dict[str, str] = {}
            if name := next((n for n in ("reward", "preferred", "loss") if n in metrics), None):
                shown.append(metrics[name])
                figures[name] = f"{sparkline(shown)} {shown[-1]:.3f}"
            if "success" in metrics:
                figures["success"] = f"{100 * metrics['success']:.0f}%"
            figures["tokens/s"] = f"{metrics['tokens_per_second']:,.0f}"
            self.display.update(version, figures)

        loop = Loop(
            plan=config,
            folder=base,
            place=place,
            trainer=trainer,
            buffer_url=run.buffer_url,
            outlet=run.weights,
            report=report,
        )
        await loop.run(done)


def _announce(config: RunConfig, run: RunFolder, console: Console) -> None:
    tiny = config.model.tiny
    player = "the expert" if world_class(config.env.name).has_expert() else "random play, for the form (no expert)"
    model = config.model.path or f"made from scratch ({tiny.layers} layers of width {tiny.width})"
    if rank := config.trainer.lora.rank:
        model += f"; a change of rank {rank} (LoRA) is trained"
    batch = f"{config.explorer.groups} x {config.explorer.group_size} episodes each"
    if config.data.file is not None:
        batch = f"{config.data.batch} lines of {config.data.file} each"
    elif not config.explorer.workers:
        batch = (
            f"{config.explorer.groups} groups each of those stored by {', '.join(map(_share, config.buffer.sources))}"
        )
    plan = [
        (
            "world",
            f"{config.env.name}, trained on {config.env.split}, scored on {config.eval.n} of {config.env.eval_split}",
        ),
        ("model", model),
        ("warm-up", f"{config.warmup.episodes} episodes of {player}" if config.warmup.episodes else "none"),
        ("training", f"{config.run.steps} steps of {config.algorithm.name}, {batch}"),
        *(
            [("start", f"{config.explorer.workers} x `harness explore {run.name}`, in other terminals")]
            if config.run.place == "apart"
            else []
        ),
        ("time", config.run.about or "not measured for this recipe; the display shows what is left"),
        ("folder", str(run.path)),
    ]
    for name, text in plan:
        console.print(Text.assemble((f"{name:>8}  ", "dim"), text))


def _share(source: SourceConfig) -> str:
    return f"{source.name} ({source.share:.0%})"


def _finish(config: RunConfig, run: RunFolder, seconds: float, console: Console) -> None:
    found = points(run)
    summary: dict[str, Any] = {"seconds_last_sitting": round(seconds, 1)}
    for point in found:
        success = point.scores.success
        summary[point.label] = {"success": success.value, "n": success.n, "interval": list(success.interval)}
    run.finish(summary)
    console.print()
    console.print(success_table(found))
    if draw(run):
        console.print(Text(f"curve: {run.curve}"))
    console.print(Text(f"run: {run.path} ({duration(seconds)})"))
    console.print(Text("\nnext:", style="dim"))
    env = config.env
    for command in (
        f"harness show {run.name}",
        f"harness show {run.name} --episode 0",
        f"harness eval --env {env.name} --model {run.name} --split {env.eval_split} --n 500",
    ):
        console.print(Text(f"  {command}"))
