"""What each mode costs on this machine: one explorer and one trainer, each a process, learning rate 0.

    python benchmarks/modes.py [--quick] [--out modes.png]

The shape of a training on ALFWorld with a tiny model, twice: as it is, and with a world whose answers come late (a
log-normal wait with a median of 50 ms, one in a hundred over 5 s). --quick: three modes and the late world alone, with
waits of a fifth. Per mode: seconds a
training step, the share of the time in which explorer and trainer had nothing to do, how old what was trained on was,
the share of answers that were actions. Each RATIO is the speed beside that of strictly on-policy training (sync 1) on
the same workload. Two free cores are needed: on fewer the parts cannot overlap.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.agents.models.tiny import make_tiny
from harness.config import RunConfig
from harness.envs.registry import world_class
from harness.rl.loop import Loop
from harness.rl.place import Place, open_place
from harness.rl.trainer.learner import WARMUP
from harness.rl.trainer.trainer import Trainer

WORLD = str(Path(__file__).with_name("late_alfworld.py"))
MODES: dict[str, dict[str, Any]] = {
    "sync1": {"interval": 1},
    "sync2": {"interval": 2},
    "sync10": {"interval": 10},
    "one_step_off": {"interval": 1, "offset": 1},
    # Weights in the middle of episodes have every cache computed anew: asynchronous explorers get them as seldom as
    # those of sync10 do, and play up to six batches ahead of the trainer meanwhile.
    "async": {"interval": 10, "staleness": 16, "partial": True},
}
QUICK = ("sync1", "one_step_off", "async")
LOOK = 0.05
FORM = 1600
"""Episodes, of their first turn alone, from which the model learns to answer in the form that the world reads."""


@dataclass
class Measured:
    """One mode on one workload; times in seconds since the clock started."""

    mode: str
    burn_in: int
    """Training steps before the clock starts: those until weights have come once, two at least."""
    steps: int = 0
    began: float = 0.0
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list)
    acted: list[float] = field(default_factory=list)
    """Share of the answers that were actions."""
    trained: list[tuple[float, float]] = field(default_factory=list)
    """(start, length) of each training step."""
    explored: list[tuple[float, float]] = field(default_factory=list)
    """(time, share of the process's time on the CPU since the last look)."""

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps

    @property
    def trainer_idle(self) -> float:
        return 1 - sum(length for _, length in self.trained) / self.seconds

    @property
    def explorer_idle(self) -> float:
        busy = [share for _, share in self.explored]
        return 1 - sum(busy) / max(1, len(busy))


def plan_of(sync: Mapping[str, Any], steps: int, options: Mapping[str, Any]) -> RunConfig:
    optimizer = {"name": "muon", "lr": 0.02, "adam_lr": 2e-3, "grad_clip": 0}
    tiny = {"layers": 2, "width": 64, "heads": 2, "kv_heads": 2, "mlp": 192, "context": 1024}
    return RunConfig.model_validate(
        {
            "run": {"steps": steps},
            "env": {"name": WORLD, "options": dict(options)},
            "agent": {"prompt": "plain"},
            "model": {"slots": 96, "tiny": tiny},
            "sampling": {"max_tokens": 40},
            "warmup": {"stages": [{"episodes": FORM, "turns": 1}], "batch_tokens": 2048, "optimizer": optimizer},
            "explorer": {"groups": 4, "group_size": 4, "max_steps": 6},
            "trainer": {"optimizer": {"lr": 0.0}, "checkpoint_every": 10**6},
            "sync": dict(sync),
        }
    )


async def warmed_up(place: Place, folder: Path) -> Path:
    """The tiny model, after a warm-up that is just long enough for answers to be actions."""
    plan = plan_of({}, 1, {})
    make_tiny(folder / "made", plan.model.tiny, world_class(WORLD).texts(), 0)
    trainer = place.put(Trainer, plan, folder / "made", folder, f"sqlite:///{folder / 'unused.db'}")
    async for _ in trainer.stream("warm_up"):
        pass
    trainer.kill()
    return folder / WARMUP


class Enough(Exception):
    """The steps on the clock are over."""


async def measure(mode: str, plan: RunConfig, steps: int, place: Place, base: Path, folder: Path) -> Measured:
    """Run one mode, and measure `steps` training steps after the burn-in. The run is longer, so that explorers that are
    ahead have as much to do at the end of the clock as at its beginning."""
    url, found = (
        f"sqlite:///{folder / 'buffer.db'}",
        Measured(mode, max(2, plan.sync.interval)),
    )
    trainer = place.put(Trainer, plan, base, folder / "checkpoints", url)

    def report(version: int, metrics: Mapping[str, float]) -> None:
        now = time.perf_counter()
        if version == found.burn_in:
            found.began = now
        elif version > found.burn_in:
            found.steps, found.seconds = found.steps + 1, now - found.began
            found.lags.append(metrics["lag_mean"])
            if metrics.get("steps"):
                found.acted.append(1 - metrics["invalid"] / (metrics["steps"] * metrics["episodes"]))
            found.trained.append((found.seconds - metrics["train_seconds"], metrics["train_seconds"]))
            if found.steps == steps:
                raise Enough

    loop = Loop(
        plan=plan, folder=base, place=place, trainer=trainer, buffer_url=url, outlet=folder / "weights", report=report
    )

    async def look() -> None:
        before, at = 0.0, 0.0
        while True:
            await asyncio.sleep(LOOK)
            if not loop.explorers:
                continue
            activity = await loop.explorers[0].call("activity")
            now = time.perf_counter()
            if found.began and found.steps < steps:
                found.explored.append((now - found.began, min(1.0, (activity["cpu_seconds"] - before) / (now - at))))
            before, at = activity["cpu_seconds"], now

    looking = asyncio.create_task(look())
    try:
        with suppress(Enough):
            await loop.run(await trainer.call("resume"))
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        trainer.kill()
    return found


def draw(measured: Mapping[str, list[Measured]], file: Path) -> None:
    """A column a workload, a band a mode: the trainer's steps above, how busy the explorer was below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(measured), 5), dpi=110, layout="constrained")
    for axes, (workload, modes) in zip(
        figure.subplots(1, len(measured), squeeze=False)[0], measured.items(), strict=True
    ):
        shown = min(modes[0].seconds, 6 * modes[0].step_seconds)
        for band, m in enumerate(modes):
            axes.broken_barh(m.trained, (band - 0.42, 0.36), color="tab:orange", edgecolor="white", linewidth=0.3)
            at, low = [t for t, _ in m.explored], band + 0.36
            busy = [low - 0.36 * share for _, share in m.explored]
            axes.fill_between(at, busy, low, step="pre", color="tab:blue", linewidth=0)
            speed = f"{60 / m.step_seconds:.0f} steps/min\n{modes[0].step_seconds / m.step_seconds:.1f}x"
            axes.text(1.01 * shown, band, speed, va="center", fontsize=9)
        axes.set(xlim=(0, shown), ylim=(len(modes) - 0.5, -0.5), xlabel="seconds")
        axes.set_yticks(range(len(modes)), [m.mode for m in modes])
        axes.set_title(f"{workload}: trainer (orange) above explorer (blue)", loc="left")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three modes, one workload, waits of a fifth")
    parser.add_argument("--out", type=Path, default=Path("modes.png"))
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        help="training steps on the clock; a multiple of 10 is the same part of every mode's cycle",
    )
    parser.add_argument("--only", choices=("plain", "longtail"), help="one workload")
    args = parser.parse_args()
    waits = {"median": 0.01, "late": 1.0} if args.quick else {"median": 0.05, "late": 5.0}
    workloads: dict[str, dict[str, float]] = {"plain": {}, "longtail": waits}
    only = args.only or ("longtail" if args.quick else None)
    modes = {mode: sync for mode, sync in MODES.items() if mode in QUICK or not args.quick}
    measured: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as name:
        place = open_place("ray")
        began = time.perf_counter()
        base = asyncio.run(warmed_up(place, Path(name)))
        print(f"warm-up: {time.perf_counter() - began:.0f} s", flush=True)
        for workload, options in workloads.items():
            if only not in (None, workload):
                continue
            columns = f"{'s/step':>8}{'explorer idle':>15}{'trainer idle':>14}{'lag':>6}{'acted':>7}"
            print(f"{workload}\n  {'mode':14}{columns}", flush=True)
            for mode, sync in modes.items():
                folder = Path(name) / workload / mode
                folder.mkdir(parents=True)
                plan = plan_of(sync, args.steps + 100, options)
                m = asyncio.run(measure(mode, plan, args.steps, place, base, folder))
                measured.setdefault(workload, []).append(m)
                lag, acted = (sum(numbers) / max(1, len(numbers)) for numbers in (m.lags, m.acted))
                idle = f"{m.explorer_idle:15.0%}{m.trainer_idle:14.0%}"
                print(f"  {mode:14}{m.step_seconds:8.3f}{idle}{lag:6.1f}{acted:7.0%}", flush=True)
        place.close()
    draw(measured, args.out)
    print(f"timelines: {args.out}")
    for workload, (first, *others) in measured.items():
        prefix = "" if workload == "plain" else f"{workload}_"
        for m in others:
            print(f"RATIO {prefix}{m.mode}_vs_sync1 {first.step_seconds / m.step_seconds:.2f}")


if __name__ == "__main__":
    main()
