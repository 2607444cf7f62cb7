"""Does every mode learn the same? GRPO in four modes, three seeds each, at equal numbers of trained episodes.

    python benchmarks/same_learning.py [--quick] [--out FOLDER]

The full version trains the ALFWorld recipe for a laptop with half its batch, one core's worth of processes and fewer
steps (twelve runs of it); --quick a tiny model on the echo world. All runs begin with one warmed-up model (--model: one
that is there already); modes differ in `sync` alone. A run that is in FOLDER already is gone on with, or taken as it
is. Draws FOLDER/same_learning.png: success of the training episodes over their number (mean and range of the seeds),
and prints held-out success before and after with its 95% interval over all seeds, clustered by task.
RATIO same_learning is the lowest mode's held-out success over the highest's: 1 is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from harness.config import RunConfig
from harness.evaluate import evaluate, held_out
from harness.leaderboard.score import Result, result_of, score
from harness.load import load
from harness.players import open_player, source
from harness.rl.monitor import read
from harness.rl.place import open_place
from harness.runs import RunFolder, root
from harness.show import series
from harness.train import resume, train

MODES: Mapping[str, tuple[str, ...]] = {
    "sync1": ("sync.interval=1",),
    "sync10": ("sync.interval=10",),
    "one_step_off": ("sync.interval=1", "sync.offset=1"),
    "async": ("sync.staleness=4", "sync.partial=true"),
}
SEEDS = (0, 1, 2)
ECHO = (
    "env.name=echo",
    "env.options={rounds: 2}",
    "agent.prompt=plain",
    "agent.max_steps=2",
    "model.slots=32",
    "sampling.max_tokens=16",
    "explorer.groups=4",
    "explorer.group_size=4",
    "trainer.optimizer.lr=2e-3",
)
MADE = (
    "model.tiny={layers: 2, width: 64, heads: 2, kv_heads: 2, mlp: 128, context: 128}",
    "warmup.optimizer.lr=5e-3",
    "warmup.stages=[{episodes: 96}]",
    "run.steps=0",
)
"""The model that --quick begins with."""
ALFWORLD = (
    "explorer.groups=8",
    "explorer.workers=1",
    "trainer.threads=1",
    "trainer.optimizer.decay_steps=10",
)
WINDOW = 5
"""Steps over which a curve is smoothed."""


def done(name: str, config: RunConfig) -> RunFolder:
    """The finished run of that name, made, gone on with, or found."""
    run = RunFolder(root() / name)
    if not run.is_run:
        run = RunFolder.create(config, name)
        train(config, run)
    elif run.summary() is None:
        resume(run)
    return run


def results(path: Path, config: RunConfig, folder: Path) -> list[Result]:
    """Held-out episodes of a checkpoint, played once and kept in `folder`."""

    async def play() -> list[Result]:
        tasks = held_out(config)
        player = open_player(source(str(path)), config, tasks)
        try:
            entry = await evaluate(player, config, tasks, folder)
        finally:
            await player.model.close()
        return [result_of(t, entry.record.success_at) for t in entry.trajectories()]

    return asyncio.run(play())


def curve(run: RunFolder) -> tuple[list[float], list[float]]:
    """Episodes trained on so far, and the training episodes' success, step by step (smoothed)."""
    lines = read(run.path)
    _, attempts = series(lines, "train", "attempts")
    _, success = series(lines, "train", "success")
    smooth = [float(np.nanmean(success[max(0, i + 1 - WINDOW) : i + 1])) for i in range(len(success))]
    return list(np.cumsum(attempts)), smooth


def draw(curves: Mapping[str, Sequence[tuple[list[float], list[float]]]], title: str, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    for mode, of_seeds in curves.items():
        at = of_seeds[0][0]
        values = np.array([success[: len(at)] for _, success in of_seeds])
        (line,) = axes.plot(at, values.mean(0), linewidth=2, label=mode)
        axes.fill_between(at, values.min(0), values.max(0), color=line.get_color(), alpha=0.12)
    axes.set(xlabel="episodes trained on", ylabel=f"success of training episodes (mean of {WINDOW} steps)", ylim=(0, 1))
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny model on the echo world")
    parser.add_argument("--out", type=Path, default=Path("same_learning"), help="folder of runs and plot")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument("--steps", type=int, help="training steps; a multiple of 10 suits all modes")
    parser.add_argument("--model", type=Path, help="folder of a warmed-up model to begin with")
    args = parser.parse_args()
    steps, n = args.steps or 30, 40 if args.quick else 300
    os.environ["HARNESS_RUNS"] = str((args.out / "runs").resolve())
    recipe, shared = ("default", ECHO) if args.quick else ("alfworld/tiny", ALFWORLD)

    def plan(*settings: str) -> RunConfig:
        return load(recipe, [*shared, "eval.n=4", *settings])

    place = open_place("ray")  # one for all the runs, which find it
    base = args.model or done("warm", plan(*(MADE if args.quick else ["run.steps=0"]))).checkpoint("warmup")
    judge = load(recipe, [*shared, f"eval.n={n}"])
    before = score(results(base.resolve(), judge, args.out / "evals" / "before")).success
    curves: dict[str, list[tuple[list[float], list[float]]]] = {mode: [] for mode in MODES}
    played: dict[str, list[list[Result]]] = {mode: [] for mode in MODES}
    for seed in SEEDS[: args.seeds]:
        for mode, sync in MODES.items():
            begin = (f"model.path={base.resolve()}", "warmup.stages=[]", f"run.steps={steps}", f"run.seed={seed}")
            run = done(f"{mode}-{seed}", plan(*sync, *begin))
            curves[mode].append(curve(run))
            after = results(run.checkpoint(steps), judge, args.out / "evals" / run.name)
            played[mode].append([replace(result, attempt=seed) for result in after])  # seeds repeat the tasks
    place.close()
    file = args.out / "same_learning.png"
    world = "echo" if args.quick else "ALFWorld"
    draw(curves, f"{world}: GRPO in {len(MODES)} modes, {args.seeds} seeds (mean and range)", file)
    print(f"\n{'mode':14}{'episodes':>10}  held-out success, 95% interval   seeds")
    print(f"{'before':14}{0:10}  {before}")
    found = {}
    for mode, of_seeds in played.items():
        pooled = score(chain(*of_seeds)).success
        found[mode] = pooled.value
        each = " ".join(f"{100 * score(one).success.value:.1f}" for one in of_seeds)
        print(f"{mode:14}{curves[mode][0][0][-1]:10.0f}  {pooled!s:30}   {each}")
    print(f"largest difference: {100 * (max(found.values()) - min(found.values())):.1f} points; plot: {file}")
    print(f"RATIO same_learning {min(found.values()) / max(max(found.values()), 1e-9):.2f}")


if __name__ == "__main__":
    main()
